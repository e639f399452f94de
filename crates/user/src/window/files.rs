//! A window that maps nothing and only keeps the descriptor of each mapped file.
//!
//! For callers that want the daemon's files themselves: [`Files::take`] removes the descriptor of a range. There is at
//! most one for each range. Lock: `files`, held briefly.

use transom_wire::window::RANGE_LEN;

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
};

use parking_lot::Mutex;

/// Maximum number of ranges used, which bounds the descriptors that a daemon can make this process keep.
const RANGES_MAX: u64 = 64;

/// The descriptors of the files that the daemon mapped last.
#[derive(Debug)]
pub struct Files {
    ranges: u64,
    /// By range.
    files: Mutex<BTreeMap<u64, OwnedFd>>,
}

impl Files {
    /// Creates an empty list for a window of `len` bytes.
    pub(super) fn new(len: u64) -> Self {
        Self { ranges: (len / RANGE_LEN).min(RANGES_MAX), files: Mutex::default() }
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> u64 {
        self.ranges
    }

    /// Removes and returns the file that was mapped at `range`, if there is one.
    pub fn take(&self, range: u64) -> Option<OwnedFd> {
        self.files.lock().remove(&range)
    }

    /// Keeps a duplicate of `file`.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if this is not a range of the window, EEXIST if there is already a file, and the errors of
    /// dup(2).
    pub(super) fn map(&self, offset: u64, len: u64, file: impl AsFd) -> io::Result<()> {
        let range = self.range(offset, len)?;
        let file = file.as_fd().try_clone_to_owned()?;
        let mut files = self.files.lock();
        if files.contains_key(&range) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        files.insert(range, file);
        Ok(())
    }

    /// Forgets the file there, if it was not taken.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if this is not a range of the window.
    pub(super) fn unmap(&self, offset: u64, len: u64) -> io::Result<()> {
        let range = self.range(offset, len)?;
        drop(self.take(range));
        Ok(())
    }

    pub(super) fn clear(&self) {
        self.files.lock().clear();
    }

    fn range(&self, offset: u64, len: u64) -> io::Result<u64> {
        let range = offset / RANGE_LEN;
        let is_one = offset.is_multiple_of(RANGE_LEN) && len == RANGE_LEN && range < self.ranges;
        is_one.then_some(range).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_is_taken_once_and_its_range_can_be_mapped_again() {
        let (files, file) = (Files::new(2 * RANGE_LEN), tempfile::tempfile().unwrap());
        files.map(RANGE_LEN, RANGE_LEN, &file).unwrap();
        assert!(files.map(RANGE_LEN, RANGE_LEN, &file).is_err());
        let taken = std::fs::File::from(files.take(1).unwrap());
        assert_eq!(taken.metadata().unwrap().ino(), file.metadata().unwrap().ino());
        assert!(files.take(1).is_none() && files.take(0).is_none());
        files.map(RANGE_LEN, RANGE_LEN, &file).unwrap();
        files.unmap(RANGE_LEN, RANGE_LEN).unwrap();
        assert!(files.take(1).is_none());
    }

    #[test]
    fn what_is_no_range_of_the_window_is_refused() {
        let (files, file) = (Files::new(2 * RANGE_LEN), tempfile::tempfile().unwrap());
        let all = [(2 * RANGE_LEN, RANGE_LEN), (0, 2 * RANGE_LEN), (4096, RANGE_LEN), (0, 0), (u64::MAX, RANGE_LEN)];
        for (offset, len) in all {
            assert!(files.map(offset, len, &file).is_err() && files.unmap(offset, len).is_err(), "{offset} {len}");
        }
        assert_eq!(Files::new(1 << 40).ranges(), RANGES_MAX);
    }
}
