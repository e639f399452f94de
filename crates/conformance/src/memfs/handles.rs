//! Open files and directories.

use std::collections::BTreeMap;

use transom_host::Errno;

/// What a handle refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) nodeid: u64,
    pub(super) is_directory: bool,
    /// As in open(2).
    pub(super) flags: u32,
}

/// All handles by number; a number is never used again.
pub(super) struct Handles {
    opened: BTreeMap<u64, Opened>,
    next: u64,
    count_max: usize,
}

impl Handles {
    pub(super) fn new(count_max: usize) -> Self {
        Self { opened: BTreeMap::new(), next: 1, count_max }
    }

    /// Whether one more may be opened. Errors: ENFILE.
    pub(super) fn check_room(&self) -> Result<(), Errno> {
        if self.opened.len() < self.count_max { Ok(()) } else { Err(Errno::NFILE) }
    }

    /// The caller has asked [`Handles::check_room`].
    pub(super) fn add(&mut self, opened: Opened) -> u64 {
        let fh = self.next;
        self.next += 1;
        self.opened.insert(fh, opened);
        fh
    }

    /// The inode of an open file, or with `is_directory` of an open directory. Errors: EBADF.
    pub(super) fn get(&self, fh: u64, is_directory: bool) -> Result<Opened, Errno> {
        self.opened.get(&fh).copied().filter(|opened| opened.is_directory == is_directory).ok_or(Errno::BADF)
    }

    /// Errors: EBADF.
    pub(super) fn remove(&mut self, fh: u64, is_directory: bool) -> Result<Opened, Errno> {
        let opened = self.get(fh, is_directory)?;
        self.opened.remove(&fh);
        Ok(opened)
    }

    pub(super) fn clear(&mut self) {
        self.opened.clear();
    }

    pub(super) fn count(&self) -> usize {
        self.opened.len()
    }
}

impl Opened {
    /// Errors: EBADF where the file was not opened to read.
    pub(super) fn to_read(self) -> Result<u64, Errno> {
        if self.access() == libc::O_WRONLY { Err(Errno::BADF) } else { Ok(self.nodeid) }
    }

    /// Errors: EBADF where the file was not opened to write.
    pub(super) fn to_write(self) -> Result<u64, Errno> {
        if self.access() == libc::O_RDONLY { Err(Errno::BADF) } else { Ok(self.nodeid) }
    }

    fn access(self) -> i32 {
        self.flags as i32 & libc::O_ACCMODE
    }
}
