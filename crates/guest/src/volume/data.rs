//! The contents of files. [`OpenFile::read_at`] and [`OpenFile::write_at`] choose how to read and write.

use transom_wire::ops::{init::InitFlags, write::WriteFlags};

use super::OpenFile;
use crate::{Errno, Platform, session::Caller};

impl<P: Platform> OpenFile<P> {
    /// Reads from `offset`, in bytes, until `bytes` is full or the file ends.
    ///
    /// Errors: EBADF if it is not open for reading, EISDIR for a directory. An error after the first bytes is left for
    /// the next read.
    pub fn read_at(&self, caller: &Caller<'_>, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        if !self.is_readable() {
            return Err(Errno::BADF);
        }
        check_range(offset, bytes.len())?;
        if self.is_mapped() {
            return self.read_mapped(caller, offset, bytes);
        }
        if self.is_cached()
            && let Some(len) = self.read_cached(caller, offset, bytes)?
        {
            return Ok(len);
        }
        self.read_through(caller, offset, bytes)
    }

    /// Writes `bytes` at `offset`, or at the end if the file is open for appending. Returns the number of bytes
    /// written.
    ///
    /// Takes `size_lock`. Errors: EBADF if it is not open for writing, EFBIG beyond the maximum file size.
    pub fn write_at(&self, caller: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if self.is_appending() {
            return self.append(caller, bytes).map(|(_, len)| len);
        }
        if !self.is_writable() {
            return Err(Errno::BADF);
        }
        check_range(offset, bytes.len())?;
        let _size = self.inode().size_lock.lock();
        self.write_locked(caller, offset, bytes)
    }

    /// Appends `bytes` to the file. Returns their offset and the number of bytes written. Takes `size_lock`.
    pub fn append(&self, caller: &Caller<'_>, bytes: &[u8]) -> Result<(u64, usize), Errno> {
        if !self.is_writable() {
            return Err(Errno::BADF);
        }
        let _size = self.inode().size_lock.lock();
        let dirty_size = self.inode().pages.lock().dirty_size();
        let offset = match dirty_size {
            Some(size) => size,
            None => self.inode().ask_attributes(caller, Some(self.handle()))?.size.get(),
        };
        check_range(offset, bytes.len())?;
        self.write_locked(caller, offset, bytes).map(|len| (offset, len))
    }

    /// Chooses how to write. The caller holds `size_lock`.
    fn write_locked(&self, caller: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        if self.is_mapped() {
            return self.write_mapped(caller, offset, bytes);
        }
        if self.is_written_back() {
            return self.write_kept(caller, offset, bytes);
        }
        self.inode().write_dirty_locked();
        self.write_through(caller, offset, bytes)
    }

    /// Reads from the server, with as many requests as needed.
    pub(super) fn read_through(&self, caller: &Caller<'_>, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.inode().write_dirty();
        let session = &self.inode().shared.session;
        session.read_whole(caller, self.inode().nodeid(), self.handle(), self.flags(), offset, bytes)
    }

    /// Writes to the server, with as many requests as needed, and updates cached pages. The caller holds `size_lock`.
    pub(super) fn write_through(&self, caller: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let inode = self.inode();
        let session = &inode.shared.session;
        let kills = caller.uid != 0 && session.negotiated().flags.contains(InitFlags::HANDLE_KILLPRIV_V2);
        let write_flags = if kills { WriteFlags::KILL_SUIDGID } else { WriteFlags::empty() };
        inode.changed();
        let result =
            session.write_whole(caller, inode.nodeid(), self.handle(), self.flags(), write_flags, offset, bytes);
        match &result {
            Ok(len) if *len == bytes.len() => inode.pages.lock().written(offset, bytes),
            // It is unknown whether the rest has reached the file.
            _ => inode.drop_data(),
        }
        inode.changed();
        result
    }
}

/// Errors: EINVAL for an invalid offset, EFBIG for an invalid end.
fn check_range(offset: u64, len: usize) -> Result<(), Errno> {
    if offset > i64::MAX as u64 {
        return Err(Errno::INVAL);
    }
    match offset.checked_add(len as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Errno::FBIG),
    }
}
