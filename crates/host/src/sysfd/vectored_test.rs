use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use rustix::io::{Errno, ReadWriteFlags};
use vm_memory::VolatileSlice;

use super::*;

/// Cuts `memory` into volatile slices of the given lengths; the remainder is not part of the list.
fn cut<'a>(memory: &'a mut [u8], lengths: &[usize]) -> Vec<VolatileSlice<'a>> {
    let mut rest = memory;
    let mut slices = Vec::new();
    for &length in lengths {
        let (head, tail) = rest.split_at_mut(length.min(rest.len()));
        slices.push(VolatileSlice::from(head));
        rest = tail;
    }
    slices
}

#[test]
fn an_offset_that_is_no_offset_is_refused() {
    let file = tempfile::tempfile().unwrap();
    let mut memory = [0u8; 4];
    let slices = cut(&mut memory, &[4]);
    for offset in [u64::MAX, 1 << 63] {
        assert_eq!(read(&file, &slices, offset, ReadWriteFlags::empty()), Err(Errno::INVAL));
        assert_eq!(write(&file, &slices, offset, ReadWriteFlags::empty()), Err(Errno::INVAL));
    }
}

#[test]
fn append_writes_where_the_file_ends() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(b"head", 0).unwrap();
    let mut memory = *b"tail";
    assert_eq!(write(&file, &cut(&mut memory, &[1, 3]), 0, ReadWriteFlags::APPEND), Ok(4));
    let mut whole = [0u8; 8];
    file.read_exact_at(&mut whole, 0).unwrap();
    assert_eq!(&whole, b"headtail");
}

#[test]
fn one_call_takes_the_first_1024_slices_and_the_full_one_takes_all() {
    let file = tempfile::tempfile().unwrap();
    let mut memory: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    let expected = memory.clone();
    let lengths = vec![1; 3000];
    let slices = cut(&mut memory, &lengths);
    assert_eq!(write(&file, &slices, 0, ReadWriteFlags::empty()), Ok(1024));
    assert_eq!(write_full(&file, &slices, 0, ReadWriteFlags::empty()), Ok(3000));
    let mut back = vec![0u8; 4000];
    let lengths = vec![3; 1100];
    assert_eq!(read_full(&file, &cut(&mut back, &lengths), 0, ReadWriteFlags::empty()), Ok(3000));
    assert_eq!(back[..3000], expected[..]);
    assert!(back[3000..].iter().all(|&byte| byte == 0));
}

#[test]
fn an_error_after_some_bytes_is_a_short_count() {
    let mut memory = [7u8; 30];
    let slices = cut(&mut memory, &[10, 10, 10]);
    let mut calls = 0;
    let outcome = repeat(&slices, 0, |_, _| {
        calls += 1;
        if calls == 1 { Ok(15) } else { Err(Errno::NOSPC) }
    });
    assert_eq!(outcome, Ok(15));
    assert_eq!(repeat(&slices, 0, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
}

proptest! {
    /// The oracle is one slice of bytes: however the list is cut, and however little each call transfers, each byte is
    /// offered once and in order.
    #[test]
    fn repeating_covers_every_byte_once(
        lengths in proptest::collection::vec(0usize..20, 0..30),
        chunks in proptest::collection::vec(1usize..50, 1..10),
    ) {
        let total: usize = lengths.iter().sum();
        let mut memory: Vec<u8> = (0..total).map(|i| i as u8).collect();
        let expected = memory.clone();
        let mut seen = Vec::new();
        let mut turn = 0;
        let slices = cut(&mut memory, &lengths);
        let done = repeat(&slices, 100, |slices, offset| {
            assert_eq!(offset, 100 + seen.len() as u64);
            let mut budget = chunks[turn % chunks.len()];
            turn += 1;
            let before = seen.len();
            for slice in slices {
                let mut bytes = vec![0; slice.len().min(budget)];
                slice.copy_to(&mut bytes[..]);
                budget -= bytes.len();
                seen.extend(bytes);
            }
            Ok(seen.len() - before)
        });
        prop_assert_eq!(done, Ok(total));
        prop_assert_eq!(seen, expected);
    }
}
