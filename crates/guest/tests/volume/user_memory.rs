//! Reads and writes of lists and of memory that may fault, in each cache mode, compared with a plain copy of the file.

use std::{cell::Cell, sync::Arc};

use proptest::prelude::*;
use transom_guest::{
    Errno,
    cache::CacheMode,
    fs::{File, Fs, OpenOptions},
};

use crate::{
    MODES, in_memory,
    paged::{Memory, Paged, check_read, check_write},
    peer::Plain,
    written_back,
};

const SIZE_MAX: usize = 300_000;

#[derive(Debug, Clone)]
enum Step {
    Read(usize, usize, Memory),
    Write(usize, usize, Memory),
    Append(usize, Memory),
    Truncate(usize),
}

fn memory() -> impl Strategy<Value = Memory> {
    let bad = prop_oneof![0..8_usize, Just(usize::MAX >> 20)];
    prop_oneof![
        prop::collection::vec(prop_oneof![0..20_usize, 0..70_000_usize], 0..10).prop_map(Memory::List),
        (0..2000_usize, bad, any::<u64>()).prop_map(|(begin, bad, random)| Memory::Paged(begin, bad, random)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = prop_oneof![0..SIZE_MAX, (0..64_usize).prop_map(|page| page * 4096)];
    let len = prop_oneof![0..200_usize, 0..10_000_usize, 0..150_000_usize, Just(4096_usize)];
    let step = prop_oneof![
        4 => (offset.clone(), len.clone(), memory()).prop_map(|(at, len, memory)| Step::Read(at, len, memory)),
        4 => (offset.clone(), len.clone(), memory()).prop_map(|(at, len, memory)| Step::Write(at, len, memory)),
        1 => (len, memory()).prop_map(|(len, memory)| Step::Append(len, memory)),
        1 => offset.prop_map(Step::Truncate),
    ];
    prop::collection::vec(step, 1..40)
}

fn run(fs: &Fs<Plain>, steps: &[Step]) {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = fs.open("file", &options).unwrap();
    let appending = fs.open("file", &OpenOptions::new().append(true).write(true)).unwrap();
    let mut model: Vec<u8> = Vec::new();
    let mut bytes_written = 0_usize;
    for step in steps {
        let mut put = |file: &File<Plain>, at: usize, len: usize, memory: &Memory, model: &mut Vec<u8>| {
            bytes_written += 1;
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + bytes_written * 7) as u8).collect();
            let count = check_write(memory, &bytes, |source| file.write_from_at(at as u64, source));
            if count > 0 {
                model.resize(model.len().max(at + count), 0);
                model[at..at + count].copy_from_slice(&bytes[..count]);
            }
        };
        match step {
            Step::Read(at, len, memory) => {
                let expected = model.get(*at..).unwrap_or_default();
                check_read(memory, *len, expected, |sink| file.read_into_at(*at as u64, sink));
            }
            Step::Write(at, len, memory) => put(&file, *at, *len, memory, &mut model),
            Step::Append(len, memory) => {
                let end = model.len();
                put(&appending, end, *len, memory, &mut model);
            }
            Step::Truncate(size) => {
                file.set_len(*size as u64).unwrap();
                model.resize(*size, 0);
            }
        }
    }
    let mut found = vec![0; model.len() + 1];
    assert_eq!(file.read_at(0, &mut found), Ok(model.len()));
    assert!(found[..model.len()] == model, "the guest's view");
    file.sync_all().unwrap();
    drop((file, appending));
    // With its last reference, everything that is cached of the inode goes.
    fs.volume().drop_names();
    let fresh = fs.open_read("file").unwrap();
    assert_eq!(fresh.read_at(0, &mut found), Ok(model.len()));
    assert!(found[..model.len()] == model, "the server's view");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn files_have_what_lists_and_present_memory_said(steps in steps()) {
        for mode in MODES {
            run(&in_memory(mode).1, &steps);
        }
    }

    #[test]
    fn files_that_are_written_back_have_what_lists_and_present_memory_said(steps in steps()) {
        let (dir, _peer, fs) = written_back::mount(64 << 10);
        run(&fs, &steps);
        drop(dir);
    }
}

#[test]
fn whoever_serves_a_fault_may_use_the_same_file() {
    let (_dir, _peer, fs) = written_back::mount(16 << 20);
    let file = Arc::new(fs.open("file", &OpenOptions::new().read(true).write(true).create(true)).unwrap());
    file.write_at(0, &[1; 50_000]).unwrap();
    let faults = Cell::new(0);
    let serve = || {
        faults.set(faults.get() + 1);
        // Dirty pages are written before the server is asked, under the lock that a write holds.
        let mut byte = [0];
        file.write_at(60_000 + faults.get(), &[9]).unwrap();
        file.read_at(60_000 + faults.get(), &mut byte).unwrap();
        file.sync_data().unwrap();
        assert_eq!(byte, [9]);
    };
    let mut source = Paged::new(vec![2; 30_000], 7, usize::MAX >> 20, 3);
    source.serve = Some(Box::new(serve));
    assert_eq!(file.write_from_at(100, &mut source), Ok(30_000));
    let mut sink = Paged::new(vec![0; 40_000], 9, usize::MAX >> 20, 4);
    sink.serve = Some(Box::new(serve));
    assert_eq!(file.read_into_at(0, &mut sink), Ok(40_000));
    assert!(faults.get() > 10);
    assert!(sink.bytes[..100].iter().all(|&byte| byte == 1));
    assert!(sink.bytes[100..30_100].iter().all(|&byte| byte == 2));
    assert!(sink.bytes[30_100..].iter().all(|&byte| byte == 1));
}

#[test]
fn a_covered_page_keeps_the_rest_of_what_it_had_if_its_write_ends_early() {
    let (_dir, _peer, fs) = written_back::mount(16 << 20);
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = fs.open("file", &options).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs.volume().drop_names();
    let file = fs.open("file", &options).unwrap();
    // The page is not cached, the write covers it, and its memory ends in the middle.
    let mut source = Paged::new(vec![2; 4096], 0, 2, 3);
    assert_eq!(file.write_from_at(0, &mut source), Ok(2002));
    let mut found = [0; 8192];
    assert_eq!(file.read_at(0, &mut found), Ok(8192));
    assert!(found[..2002].iter().all(|&byte| byte == 2) && found[2002..].iter().all(|&byte| byte == 1));
}

#[test]
fn nothing_is_sent_or_changed_if_the_first_byte_is_at_a_bad_address() {
    for mode in MODES {
        let (peer, fs) = in_memory(mode);
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = fs.open("file", &options).unwrap();
        file.write_at(0, b"hello").unwrap();
        let before = peer.messages();
        let bad = || Paged::new(vec![7; 10], 0, 0, 1);
        assert_eq!(file.write_from(&mut bad()), Err(Errno::FAULT));
        assert_eq!(file.position(), 0);
        assert_eq!(peer.messages(), before, "{mode:?}");
        assert_eq!(file.read_into(&mut bad()), Err(Errno::FAULT));
        // Nothing is there to copy.
        assert_eq!(file.read_into_at(5, &mut bad()), Ok(0));
        assert_eq!(file.read_into_at(0, &mut Paged::new(Vec::new(), 0, 0, 1)), Ok(0));
        assert_eq!(file.write_from_at(0, &mut Paged::new(Vec::new(), 0, 0, 1)), Ok(0));
        let mut found = [0; 9];
        assert_eq!((file.read_at(0, &mut found), &found[..5]), (Ok(5), b"hello".as_slice()));
    }
    assert_eq!(MODES[0], CacheMode::None);
}
