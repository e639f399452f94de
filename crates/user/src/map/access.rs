//! Copies to and from a [`Mapping`] that fail instead of raising a signal, and the flush of stores.

#![expect(unsafe_code, reason = "a mapping is accessed by address")]

use std::ops::Range;

use transom_guest::Errno;

use super::{
    flush,
    mapping::{Mapping, Protection, Sharing},
};
use crate::fault::copy::copy;

impl Mapping {
    /// Copies from `offset`, in bytes of the mapping, to `bytes`.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if the range lies outside the mapping, and EIO if the file has no such bytes; then `bytes` may be
    /// partly filled.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: the caller has exclusive access to `bytes`. The source lies in the mapping, of which no Rust
        // reference is made here; others may store to it meanwhile, which yields a mixture of bytes.
        let copied = unsafe { copy(bytes.as_mut_ptr(), from, bytes.len()) };
        whole(copied, bytes.len())
    }

    /// Copies `bytes` to `offset`, in bytes of the mapping.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::read_at`], and EACCES if the mapping is read-only; a part may have been stored.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        if self.protection() != Protection::ReadWrite {
            return Err(Errno::ACCESS);
        }
        let to = self.at(offset, bytes.len())?;
        // SAFETY: as in `read_at`, with source and target exchanged.
        let copied = unsafe { copy(to, bytes.as_ptr(), bytes.len()) };
        whole(copied, bytes.len())
    }

    /// Makes what was stored to `range`, in bytes of the mapping, durable without a request. Errors: EINVAL for a range
    /// outside, EOPNOTSUPP where the mapping is not [`Sharing::SharedSync`].
    pub fn flush(&self, range: Range<usize>) -> Result<(), Errno> {
        self.check(&range)?;
        if self.sharing() != Sharing::SharedSync {
            return Err(Errno::OPNOTSUPP);
        }
        let start = self.as_ptr().as_ptr().wrapping_add(range.start);
        // SAFETY: the range lies in the mapping, as was checked, and faults there are served.
        unsafe { flush::write_back(start, range.len()) };
        Ok(())
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, Errno> {
        let end = offset.checked_add(len).ok_or(Errno::INVAL)?;
        self.check(&(offset..end))?;
        Ok(self.as_ptr().as_ptr().wrapping_add(offset))
    }
}

fn whole(copied: usize, len: usize) -> Result<(), Errno> {
    if copied == len { Ok(()) } else { Err(Errno::IO) }
}
