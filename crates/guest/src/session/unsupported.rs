//! The operations that the server does not know: each answers ENOSYS once and is not sent again.

use core::sync::atomic::{AtomicU64, Ordering};

use transom_wire::Opcode;

use super::Session;
use crate::{Errno, Platform};

/// One bit per operation.
#[derive(Default)]
pub(super) struct Unsupported(AtomicU64);

impl Unsupported {
    fn contains(&self, opcode: Opcode) -> bool {
        self.0.load(Ordering::Relaxed) & bit(opcode) != 0
    }

    fn insert(&self, opcode: Opcode) {
        self.0.fetch_or(bit(opcode), Ordering::Relaxed);
    }
}

const fn bit(opcode: Opcode) -> u64 {
    1 << opcode as u32
}

const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        assert!((Opcode::ALL[at] as u32) < u64::BITS);
        at += 1;
    }
};

impl<P: Platform> Session<P> {
    /// Returns whether the server has answered that it does not know `opcode`.
    pub fn is_unsupported(&self, opcode: Opcode) -> bool {
        self.unsupported.contains(opcode)
    }

    /// Runs `ask`, which sends `opcode`. Returns `None` if the server does not know it, now or by an earlier answer.
    pub(crate) fn if_known<T>(
        &self,
        opcode: Opcode,
        ask: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<Option<T>, Errno> {
        if self.unsupported.contains(opcode) {
            return Ok(None);
        }
        match ask() {
            Err(Errno::NOSYS) => {
                self.unsupported.insert(opcode);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }
}
