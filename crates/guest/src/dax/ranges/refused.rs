//! What the server has refused to map, and for how long it is not asked again.

use crate::{Errno, dax::Access};

/// After a refusal that may pass nothing is asked for, for so long, in nanoseconds.
const REFUSED_FOR_NS: u64 = 1_000_000_000;
/// The same where the server says EAGAIN.
const AGAIN_AFTER_NS: u64 = 10_000_000;

/// What the server has refused.
#[derive(Clone, Copy, Default)]
pub(super) struct Refused {
    error: Option<Errno>,
    /// Only to be written.
    is_for_writing: bool,
    /// Only this range: the end of a file, where that is not mapped.
    index: Option<u64>,
    /// Until then; `u64::MAX` for ever.
    until_ns: u64,
}

impl Refused {
    /// The refusal that holds, and whether it holds for ever.
    pub(super) fn get(&self, index: u64, access: Access, now_ns: impl FnOnce() -> u64) -> Option<(Errno, bool)> {
        let is_meant = self.index.is_none_or(|refused| refused == index);
        let error = self.error.filter(|_| is_meant && (access == Access::Write || !self.is_for_writing))?;
        let is_final = self.until_ns == u64::MAX;
        (is_final || now_ns() < self.until_ns).then_some((error, is_final))
    }

    /// Takes note that `index` was refused to `access`. A refusal of everything takes the place of one for writing,
    /// never the other way round.
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
            // A part that ends with the file may be whole one day; the parts before it are another matter.
            Errno::OPNOTSUPP if index > 0 => (Some(index), soon_ns),
            Errno::OPNOTSUPP => (None, u64::MAX),
            // The device was stopped meanwhile.
            Errno::AGAIN => (None, now_ns.saturating_add(AGAIN_AFTER_NS)),
            _ => (None, soon_ns),
        };
        Self { error: Some(error), is_for_writing: access == Access::Write, index, until_ns }
    }
}
