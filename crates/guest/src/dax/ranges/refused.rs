//! Mapping requests that the server has refused, and when they may be repeated.

use crate::{Errno, dax::Access};

/// Time without mapping requests after a temporary refusal, in nanoseconds.
const REFUSED_FOR_NS: u64 = 1_000_000_000;
/// The same after EAGAIN.
const AGAIN_AFTER_NS: u64 = 10_000_000;

/// What the server has refused.
#[derive(Clone, Copy, Default)]
pub(super) struct Refused {
    error: Option<Errno>,
    /// Only writable mappings were refused.
    is_for_writing: bool,
    /// Only this range was refused: the end of a file, if that cannot be mapped.
    index: Option<u64>,
    /// When it expires; `u64::MAX` for never.
    until_ns: u64,
}

impl Refused {
    /// Returns the refusal that applies, and whether it is permanent.
    pub(super) fn get(&self, index: u64, access: Access, now_ns: impl FnOnce() -> u64) -> Option<(Errno, bool)> {
        let is_meant = self.index.is_none_or(|refused| refused == index);
        let error = self.error.filter(|_| is_meant && (access == Access::Write || !self.is_for_writing))?;
        let is_final = self.until_ns == u64::MAX;
        (is_final || now_ns() < self.until_ns).then_some((error, is_final))
    }

    /// Records that `index` was refused for `access`. A refusal of everything replaces one for writing, never the other
    /// way round.
    pub(super) fn add(&mut self, index: u64, access: Access, error: Errno, now_ns: u64) {
        let keeps = self.error.is_some() && self.until_ns == u64::MAX && !self.is_for_writing;
        if !keeps {
            *self = Self::new(index, access, error, now_ns);
        }
    }

    fn new(index: u64, access: Access, error: Errno, now_ns: u64) -> Self {
        let soon_ns = now_ns.saturating_add(REFUSED_FOR_NS);
        let (index, until_ns) = match error {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY | Errno::NOSYS | Errno::NODEV | Errno::INVAL => {
                (None, u64::MAX)
            }
            // The range at the end of the file may become whole one day; the ranges before it are unaffected.
            Errno::OPNOTSUPP if index > 0 => (Some(index), soon_ns),
            Errno::OPNOTSUPP => (None, u64::MAX),
            // The device was stopped in the meantime.
            Errno::AGAIN => (None, now_ns.saturating_add(AGAIN_AFTER_NS)),
            _ => (None, soon_ns),
        };
        Self { error: Some(error), is_for_writing: access == Access::Write, index, until_ns }
    }
}
