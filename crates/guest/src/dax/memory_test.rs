//! The borders of a window, and copies in pieces where memory cannot be reached by address.

#![expect(unsafe_code, reason = "a window is made of raw memory")]

use alloc::{boxed::Box, vec, vec::Vec};
use core::ptr::NonNull;

use super::{
    MappedWindow, WindowMemory,
    transfer::{load_to, store_from},
};
use crate::{
    Errno,
    memory::{IoSlice, IoSliceMut, Origin, Target},
};

const LEN: usize = 4096;

fn window() -> MappedWindow {
    let memory: &'static mut [u8] = Box::leak(vec![0; LEN].into_boxed_slice());
    // SAFETY: the memory is leaked, so it lives for as long as the window, and nobody else refers to it.
    unsafe { MappedWindow::new(NonNull::from(memory).cast(), LEN) }
}

/// A window whose bytes have no address that may be used.
struct Remote(MappedWindow);

impl WindowMemory for Remote {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.0.load(offset, bytes)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.0.store(offset, bytes)
    }

    fn touch(&self, offset: u64) -> Result<(), Errno> {
        self.0.touch(offset)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn contents(window: &dyn WindowMemory) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    window.load(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_last_byte_is_inside_and_the_next_one_is_not() {
    let window = window();
    assert_eq!(window.len_bytes(), LEN as u64);
    let (inside, outside) = ([(0, LEN), (LEN as u64 - 3, 3), (LEN as u64, 0)], [(0, LEN + 1), (LEN as u64 - 3, 4)]);
    for (offset, len) in inside {
        assert_eq!(window.store(offset, &pattern(len)), Ok(()));
        let mut bytes = vec![0; len];
        assert_eq!(window.load(offset, &mut bytes), Ok(()));
        assert_eq!(bytes, pattern(len));
        assert_eq!(window.bytes(offset, len).map(|bytes| bytes.len()), Some(len));
    }
    for (offset, len) in outside.into_iter().chain([(LEN as u64 + 1, 0), (u64::MAX, 2), (u64::MAX, 0)]) {
        assert_eq!(window.store(offset, &pattern(len)), Err(Errno::FAULT), "{offset} {len}");
        assert_eq!(window.load(offset, &mut vec![0; len]), Err(Errno::FAULT), "{offset} {len}");
        assert!(window.bytes(offset, len).is_none());
    }
    assert_eq!(window.touch(LEN as u64 - 1), Ok(()));
    assert_eq!(window.touch(LEN as u64), Err(Errno::FAULT));
}

#[test]
fn a_touch_changes_nothing() {
    let window = window();
    window.store(0, &pattern(LEN)).unwrap();
    (0..LEN as u64).for_each(|offset| window.touch(offset).unwrap());
    assert_eq!(contents(&window), pattern(LEN));
    assert!(!window.make_synchronous(0, 1), "the memory says nothing of storage");
}

#[test]
fn copies_are_the_same_with_and_without_addresses() {
    // Shorter than a piece, a whole number of pieces, and a rest.
    for len in [0, 1, 511, 512, 513, 1024, 1300] {
        let (near, far) = (window(), Remote(window()));
        for window in [&near as &dyn WindowMemory, &far] {
            let bytes = pattern(len);
            window.store_from(100, IoSlice::new(&bytes)).unwrap();
            let mut expected = vec![0; LEN];
            expected[100..100 + len].copy_from_slice(&bytes);
            assert_eq!(contents(window), expected, "{len}");
            let mut back = vec![0xee; len];
            window.load_into(100, IoSliceMut::new(&mut back)).unwrap();
            assert_eq!(back, bytes, "{len}");

            let (mut source, mut back) = (pattern(len), vec![0xee; len]);
            source.reverse();
            let mut from = IoSlice::new(&source);
            assert_eq!(store_from(window, 2000, Origin::new(&mut from)), Ok(len));
            let mut to = IoSliceMut::new(&mut back);
            assert_eq!(load_to(window, 2000, Target::new(&mut to)), Ok(len));
            assert_eq!(back, source, "{len}");
        }
    }
}

#[test]
fn a_copy_that_leaves_the_window_is_an_error() {
    let (near, far) = (window(), Remote(window()));
    for window in [&near as &dyn WindowMemory, &far] {
        let (start, mut bytes) = (LEN as u64 - 600, vec![0; 601]);
        assert_eq!(window.store_from(start, IoSlice::new(&bytes)), Err(Errno::FAULT));
        assert_eq!(window.load_into(start, IoSliceMut::new(&mut bytes)), Err(Errno::FAULT));
    }
}
