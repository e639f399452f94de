//! Ranges of files: allocating, copying, seeking data and holes.

use transom_wire::linux::{SEEK_DATA, SEEK_HOLE};

use super::OpenFile;
use crate::{
    Errno, Platform,
    dax::Change,
    session::{Caller, RaisedSlots},
};

/// Modes of fallocate(2) that move what follows the range.
const COLLAPSE_RANGE: u32 = 0x08;
const INSERT_RANGE: u32 = 0x20;

impl<P: Platform> OpenFile<P> {
    /// Reserves, punches, zeroes, collapses or inserts a range, in bytes; `mode` is that of fallocate(2). Takes
    /// `size_lock`.
    pub fn fallocate(&self, caller: &Caller<'_>, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        if !self.is_writable() {
            return Err(Errno::BADF);
        }
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        if len == 0 || offset > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        if end > i64::MAX as u64 {
            return Err(Errno::FBIG);
        }
        let inode = self.inode();
        let _size = inode.size_lock.lock();
        inode.write_dirty_locked();
        let blocked = inode.block(offset..end_of_change(mode, end), mode & (COLLAPSE_RANGE | INSERT_RANGE) != 0);
        inode.mapped.forget();
        inode.changed();
        let raised = RaisedSlots::default();
        let caller = &caller.noting(&raised);
        let result = inode.shared.session.fallocate(caller, inode.nodeid(), self.handle(), offset, len, mode);
        if let (Ok(()), Some(blocked), Some(change)) = (&result, &blocked, movement(mode, offset, end)) {
            blocked.changed(change);
        }
        inode.drop_data();
        inode.changed();
        inode.account_for(&raised);
        result
    }

    /// Copies up to `len` bytes from `offset` to `to_offset` of another open file of the volume, on the server. Returns
    /// the number of bytes copied.
    ///
    /// Takes the other file's `size_lock`. Errors: EOPNOTSUPP if the server cannot.
    pub fn copy_range(
        &self,
        caller: &Caller<'_>,
        offset: u64,
        to: &Self,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Errno> {
        if !self.is_readable() || !to.is_writable() || to.is_appending() {
            return Err(Errno::BADF);
        }
        let target = to.inode();
        self.inode().write_dirty();
        let _size = target.size_lock.lock();
        target.write_dirty_locked();
        target.mapped.forget();
        target.changed();
        let (from, into) = ((self.inode().nodeid(), self.handle(), offset), (target.nodeid(), to.handle(), to_offset));
        let raised = RaisedSlots::default();
        let result = target.shared.session.copy_file_range(&caller.noting(&raised), from, into, len, 0);
        target.drop_data();
        target.changed();
        target.account_for(&raised);
        result
    }

    /// Returns where the next data at or after `offset` begins. Errors: ENXIO if no data follows.
    pub fn seek_data(&self, caller: &Caller<'_>, offset: u64) -> Result<u64, Errno> {
        self.seek_kind(caller, offset, SEEK_DATA)
    }

    /// Returns where the next hole at or after `offset` begins; the end of the file counts as one. Errors: ENXIO at or
    /// beyond the end.
    pub fn seek_hole(&self, caller: &Caller<'_>, offset: u64) -> Result<u64, Errno> {
        self.seek_kind(caller, offset, SEEK_HOLE)
    }

    fn seek_kind(&self, caller: &Caller<'_>, offset: u64, whence: u32) -> Result<u64, Errno> {
        self.inode().write_dirty();
        self.inode().shared.session.lseek(caller, self.inode().nodeid(), self.handle(), offset, whence)
    }
}

/// Returns where the bytes end that fallocate(2) changes, for a range that ends at `end`.
fn end_of_change(mode: u32, end: u64) -> u64 {
    if mode & (COLLAPSE_RANGE | INSERT_RANGE) != 0 { u64::MAX } else { end }
}

/// Returns what fallocate(2) moves, for a range from `offset` to `end`.
fn movement(mode: u32, offset: u64, end: u64) -> Option<Change> {
    match mode & (COLLAPSE_RANGE | INSERT_RANGE) {
        COLLAPSE_RANGE => Some(Change::Moved { from_bytes: end, to_bytes: offset }),
        INSERT_RANGE => Some(Change::Moved { from_bytes: offset, to_bytes: end }),
        _ => None,
    }
}
