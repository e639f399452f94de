//! A fuzzer's bytes, which several parts of a run consume in turn.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// More than this of an input is not used: a run stays short.
const LEN_MAX: usize = 4096;

pub(super) struct Tape {
    bytes: Box<[u8]>,
    /// The next one. A run has one thread.
    at: AtomicUsize,
}

impl Tape {
    pub(super) fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self { bytes: bytes[..bytes.len().min(LEN_MAX)].into(), at: AtomicUsize::new(0) })
    }

    /// `len` bytes; those that are missing are zero.
    pub(super) fn bytes(&self, len: usize) -> Vec<u8> {
        let at = self.at.load(Ordering::Relaxed);
        let end = self.bytes.len().min(at + len);
        self.advance(at, end);
        let mut taken = self.bytes[at..end].to_vec();
        taken.resize(len, 0);
        taken
    }

    pub(super) fn byte(&self) -> u8 {
        let at = self.at.load(Ordering::Relaxed);
        let byte = self.bytes.get(at).copied();
        self.advance(at, at + usize::from(byte.is_some()));
        byte.unwrap_or(0)
    }

    fn advance(&self, from: usize, to: usize) {
        self.at.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).expect("a run has one thread");
    }

    pub(super) fn u16(&self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(super) fn u32(&self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// One of `choices`.
    pub(super) fn choose<T: Copy>(&self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub(super) fn is_over(&self) -> bool {
        self.at.load(Ordering::Relaxed) == self.bytes.len()
    }
}
