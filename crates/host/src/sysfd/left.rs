//! The descriptors that a process has left behind which shared its table with this one and has died.

#![expect(unsafe_code, reason = "numbers become owned descriptors")]

use std::{
    collections::HashSet,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::{
    fs::{Dir, Mode, OFlags, openat},
    io::Errno,
};

/// Descriptors that nobody in this process owns. Those that are not taken are closed when this is dropped.
#[derive(Debug)]
pub struct LeftDescriptors(HashSet<RawFd>);

/// Returns the numbers of this process's descriptors, without that of `proc_self_fd`'s listing itself.
///
/// # Errors
///
/// If they cannot be listed.
pub fn open_descriptors(proc_self_fd: impl AsFd) -> Result<HashSet<RawFd>, Errno> {
    let listing = openat(proc_self_fd, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let own = listing.as_raw_fd();
    let mut numbers = HashSet::new();
    for entry in Dir::new(listing)? {
        let number = entry?.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
        numbers.extend(number.filter(|&number| number != own));
    }
    Ok(numbers)
}

impl LeftDescriptors {
    /// Finds the descriptors of this process that are not among those that its parent `kept` before it started the one
    /// that has died. Must be called once, before this process opens anything else and starts a thread.
    ///
    /// # Errors
    ///
    /// If they cannot be listed.
    pub fn find(proc_self_fd: impl AsFd, kept: &HashSet<RawFd>) -> Result<Self, Errno> {
        Ok(Self(open_descriptors(proc_self_fd)?.difference(kept).copied().collect()))
    }

    /// Returns the descriptor with this number, unless it is not there or was taken before.
    pub fn take(&mut self, number: RawFd) -> Option<OwnedFd> {
        // SAFETY:
        // 1. It is open: it was listed, and whoever opened it is dead.
        // 2. Nothing in this process owns it: this process was started with the descriptors that its parent keeps,
        //    which are not among these, and had opened nothing when these were listed.
        // 3. It is given out once: it is removed from the set.
        self.0.remove(&number).then(|| unsafe { OwnedFd::from_raw_fd(number) })
    }
}

impl Drop for LeftDescriptors {
    fn drop(&mut self) {
        for number in std::mem::take(&mut self.0) {
            // SAFETY: as in `take`.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}
