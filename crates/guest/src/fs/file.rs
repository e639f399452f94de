//! Open files.

use alloc::sync::Arc;

use super::{Fs, Metadata};
use crate::{
    Errno, Platform,
    memory::{ByteSink, ByteSource, IoSlice, IoSliceMut},
    sync::{Mutex, rank},
    volume::{Inode, Lock, LockKind, LockOwner, OpenFile, SetAttributes, SetTime},
};

/// The origin of a seek offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekFrom {
    /// The beginning of the file.
    Start(u64),
    /// The current position.
    Current(i64),
    /// The end of the file.
    End(i64),
    /// The next data at or after this offset. Errors: ENXIO if no data follows.
    Data(u64),
    /// The next hole at or after this offset. Errors: ENXIO beyond the end.
    Hole(u64),
}

/// An open file with a position. Dropping it closes it and ignores errors; to see them, call [`Self::close`].
pub struct File<P: Platform> {
    fs: Fs<P>,
    open: Arc<OpenFile<P>>,
    position: Mutex<P, { rank::LEAF }, u64>,
    is_closed: bool,
}

impl<P: Platform> File<P> {
    pub(super) fn new(fs: Fs<P>, open: Arc<OpenFile<P>>) -> Self {
        Self { fs, open, position: Mutex::new(0), is_closed: false }
    }

    /// Returns the volume's open file.
    pub fn as_open_file(&self) -> &Arc<OpenFile<P>> {
        &self.open
    }

    /// Returns the inode of the open file.
    pub fn inode(&self) -> &Arc<Inode<P>> {
        self.open.inode()
    }

    /// Reads from `offset`, in bytes, until `bytes` is full or the file ends.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.open.read_at(&self.fs.caller(), offset, bytes)
    }

    /// Writes at `offset`, or at the end if the file is open for appending. Returns the number of bytes written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.open.write_at(&self.fs.caller(), offset, bytes)
    }

    /// Reads from `offset`, in bytes, into a list of slices or memory that may fault: see [`OpenFile::read_into`].
    pub fn read_into_at(&self, offset: u64, sink: &mut dyn ByteSink) -> Result<usize, Errno> {
        self.open.read_into(&self.fs.caller(), offset, sink)
    }

    /// Writes at `offset` what a list of slices holds, or memory that may fault: see [`OpenFile::write_from`].
    pub fn write_from_at(&self, offset: u64, source: &mut dyn ByteSource) -> Result<usize, Errno> {
        self.open.write_from(&self.fs.caller(), offset, source)
    }

    /// As [`Self::read`], into a list of slices or memory that may fault.
    pub fn read_into(&self, sink: &mut dyn ByteSink) -> Result<usize, Errno> {
        let position = *self.position.lock();
        let len = self.read_into_at(position, sink)?;
        *self.position.lock() = position + len as u64;
        Ok(len)
    }

    /// As [`Self::write`], from a list of slices or memory that may fault.
    pub fn write_from(&self, source: &mut dyn ByteSource) -> Result<usize, Errno> {
        let (offset, len) = if self.open.is_appending() {
            self.open.append_from(&self.fs.caller(), source)?
        } else {
            let position = *self.position.lock();
            (position, self.write_from_at(position, source)?)
        };
        *self.position.lock() = offset + len as u64;
        Ok(len)
    }

    /// Reads at the current position and advances it. Two concurrent reads may read the same bytes.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.read_into(&mut IoSliceMut::alone(bytes))
    }

    /// Writes at the current position, or at the end if the file is open for appending, and advances the position.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.write_from(&mut IoSlice::new(bytes))
    }

    /// Writes all of `bytes`. See [`Self::write`].
    pub fn write_all(&self, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write(&bytes[done..])? {
                0 => return Err(Errno::IO),
                len => done += len,
            }
        }
        Ok(())
    }

    /// Moves the position and returns the new one. Errors: EINVAL before the beginning of the file.
    pub fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        let caller = self.fs.caller();
        let from = |base: u64, by: i64| {
            base.checked_add_signed(by).filter(|&offset| offset <= i64::MAX as u64).ok_or(Errno::INVAL)
        };
        let position = match to {
            SeekFrom::Start(offset) => from(offset, 0)?,
            SeekFrom::Current(by) => from(self.position(), by)?,
            SeekFrom::End(by) => {
                let attr = self.inode().getattr_without_times(&caller, Some(self.open.handle()))?;
                from(attr.size.get(), by)?
            }
            SeekFrom::Data(offset) => self.open.seek_data(&caller, offset)?,
            SeekFrom::Hole(offset) => self.open.seek_hole(&caller, offset)?,
        };
        *self.position.lock() = position;
        Ok(position)
    }

    /// Returns the current position.
    pub fn position(&self) -> u64 {
        *self.position.lock()
    }

    /// Returns the attributes of the open file.
    pub fn metadata(&self) -> Result<Metadata, Errno> {
        self.open.getattr(&self.fs.caller()).map(Metadata::new)
    }

    /// Truncates or extends the file to `size` bytes. Errors: EINVAL if it is not open for writing.
    pub fn set_len(&self, size: u64) -> Result<(), Errno> {
        self.set_attributes(&SetAttributes { size: Some(size), ..SetAttributes::default() }).map(|_| ())
    }

    /// Sets permissions, set-id and sticky bits.
    pub fn set_permissions(&self, mode: u32) -> Result<(), Errno> {
        self.set_attributes(&SetAttributes { mode: Some(mode), ..SetAttributes::default() }).map(|_| ())
    }

    /// Sets owner and group.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        self.set_attributes(&SetAttributes { uid, gid, ..SetAttributes::default() }).map(|_| ())
    }

    /// Sets the access and modification times.
    pub fn set_times(&self, atime: SetTime, mtime: SetTime) -> Result<(), Errno> {
        self.set_attributes(&SetAttributes { atime, mtime, ..SetAttributes::default() }).map(|_| ())
    }

    /// Changes several attributes at once and returns the resulting attributes.
    pub fn set_attributes(&self, set: &SetAttributes) -> Result<Metadata, Errno> {
        self.fs.change_attributes(&self.fs.caller(), self.inode(), Some(&self.open), set)
    }

    /// Makes data and attributes durable. Reports the error of an earlier write, once for each open file.
    pub fn sync_all(&self) -> Result<(), Errno> {
        self.open.fsync(&self.fs.caller(), false)
    }

    /// Makes the data durable, and the metadata needed to find it. Reports the error of an earlier write, once for each
    /// open file.
    pub fn sync_data(&self) -> Result<(), Errno> {
        self.open.fsync(&self.fs.caller(), true)
    }

    /// Reserves, punches or zeroes a range, in bytes; `mode` is that of fallocate(2).
    pub fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        self.open.fallocate(&self.fs.caller(), mode, offset, len)
    }

    /// Copies up to `len` bytes from `offset` to `to_offset` of another file, on the server. Returns the number of
    /// bytes copied.
    pub fn copy_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64, Errno> {
        self.open.copy_range(&self.fs.caller(), offset, &to.open, to_offset, len)
    }

    /// Returns the lock that conflicts with `lock`, if there is one.
    pub fn get_lock(&self, is_process: bool, lock: &Lock) -> Result<Option<Lock>, Errno> {
        self.open.get_lock(&self.fs.caller(), self.owner(is_process), lock)
    }

    /// Sets or releases a lock of this process, or of this open file. With `is_waiting`, waits for conflicting locks.
    pub fn set_lock(&self, is_process: bool, lock: &Lock, is_waiting: bool) -> Result<(), Errno> {
        self.open.set_lock(&self.fs.caller(), self.owner(is_process), lock, is_waiting)
    }

    /// Locks the whole open file as flock(2) does.
    pub fn flock(&self, kind: LockKind, is_waiting: bool) -> Result<(), Errno> {
        self.open.flock(&self.fs.caller(), kind, is_waiting)
    }

    /// Closes the file. Reports the error of an earlier write, once.
    pub fn close(mut self) -> Result<(), Errno> {
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.is_closed = true;
        // Must not be interrupted, because the error would be lost.
        let caller = crate::session::Caller { interrupt: None, ..self.fs.caller() };
        self.open.flush(&caller, self.fs.credentials().lock_owner)
    }

    fn owner(&self, is_process: bool) -> LockOwner {
        if is_process { LockOwner::Process(self.fs.credentials().lock_owner) } else { LockOwner::OpenFile }
    }
}

impl<P: Platform> Drop for File<P> {
    fn drop(&mut self) {
        if !self.is_closed {
            let _ = self.flush();
        }
    }
}
