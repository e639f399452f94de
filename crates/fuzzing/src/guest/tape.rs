//! A fuzzer's bytes, which several parts of a run consume in turn.

use std::sync::{Arc, Mutex};

/// More than this of an input is not used: a run stays short.
const LEN_MAX: usize = 4096;

pub(super) struct Tape(Mutex<Rest>);

struct Rest {
    bytes: Vec<u8>,
    at: usize,
}

impl Tape {
    pub(super) fn new(bytes: &[u8]) -> Arc<Self> {
        let bytes = bytes[..bytes.len().min(LEN_MAX)].to_vec();
        Arc::new(Self(Mutex::new(Rest { bytes, at: 0 })))
    }

    /// `len` bytes; those that are missing are zero.
    pub(super) fn bytes(&self, len: usize) -> Vec<u8> {
        let mut rest = self.0.try_lock().expect("a run has one thread");
        let end = rest.bytes.len().min(rest.at + len);
        let mut taken = rest.bytes[rest.at..end].to_vec();
        rest.at = end;
        taken.resize(len, 0);
        taken
    }

    pub(super) fn byte(&self) -> u8 {
        let mut rest = self.0.try_lock().expect("a run has one thread");
        let byte = rest.bytes.get(rest.at).copied();
        rest.at += usize::from(byte.is_some());
        byte.unwrap_or(0)
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
        let rest = self.0.try_lock().expect("a run has one thread");
        rest.at == rest.bytes.len()
    }
}
