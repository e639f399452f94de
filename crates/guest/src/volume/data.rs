//! The contents of files. [`OpenFile::read_into`] and [`OpenFile::write_from`] choose how to read and write.
//!
//! Copies to and from memory that may fault never wait. A read makes missing memory present and goes on, since it holds
//! no lock. A write makes memory present before it takes `size_lock`, piece by piece: whoever serves the fault may use
//! the same file.

use transom_wire::ops::{init::InitFlags, write::WriteFlags};

use super::OpenFile;
use crate::{
    Errno, Platform,
    cache::CacheMode,
    memory::{ByteSink, ByteSource, IoSlice, IoSliceMut, Origin, Patience, Target},
    session::{Caller, RaisedSlots},
};

impl<P: Platform> OpenFile<P> {
    /// Reads from `offset`, in bytes, until `bytes` is full or the file ends.
    ///
    /// Errors: EBADF if it is not open for reading, EISDIR for a directory. An error after the first bytes is left for
    /// the next read.
    pub fn read_at(&self, caller: &Caller<'_>, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.read_into(caller, offset, &mut IoSliceMut::alone(bytes))
    }

    /// As [`Self::read_at`], into anything. Returns the number of bytes that arrived.
    ///
    /// Slices that the device reaches are written in place if nothing is cached, with one message for as many as the
    /// queue has descriptors. Errors: also EFAULT if the first byte cannot be copied, ENOMEM.
    pub fn read_into(&self, caller: &Caller<'_>, offset: u64, sink: &mut dyn ByteSink) -> Result<usize, Errno> {
        if !self.is_readable() {
            return Err(Errno::BADF);
        }
        let mut to = Target::new(sink);
        check_range(offset, to.len())?;
        if self.is_mapped() {
            return self.read_mapped(caller, offset, to);
        }
        let cached = if self.is_cached() { self.read_cached(caller, offset, to.rest(0))? } else { None };
        if let Some(len) = cached {
            return Ok(len);
        }
        self.read_through(caller, offset, to)
    }

    /// Writes `bytes` at `offset`, or at the end if the file is open for appending. Returns the number of bytes
    /// written.
    ///
    /// Takes `size_lock`. Errors: EBADF if it is not open for writing, EFBIG beyond the maximum file size.
    pub fn write_at(&self, caller: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.write_from(caller, offset, &mut IoSlice::new(bytes))
    }

    /// As [`Self::write_at`], from anything.
    ///
    /// Memory that may fault is written in pieces of up to 1 MiB, each with `size_lock` of its own. Errors: also EFAULT
    /// if the first byte cannot be copied, ENOMEM.
    pub fn write_from(&self, caller: &Caller<'_>, offset: u64, source: &mut dyn ByteSource) -> Result<usize, Errno> {
        if self.is_appending() {
            return self.append_from(caller, source).map(|(_, len)| len);
        }
        if !self.is_writable() {
            return Err(Errno::BADF);
        }
        let from = Origin::new(source);
        check_range(offset, from.len())?;
        self.write_pieces(caller, Some(offset), from).map(|(_, len)| len)
    }

    /// Appends `bytes` to the file. Returns their offset and the number of bytes written. Takes `size_lock`.
    pub fn append(&self, caller: &Caller<'_>, bytes: &[u8]) -> Result<(u64, usize), Errno> {
        self.append_from(caller, &mut IoSlice::new(bytes))
    }

    /// As [`Self::append`], from anything: see [`Self::write_from`]. If another append comes between two pieces, the
    /// write ends after the first.
    pub fn append_from(&self, caller: &Caller<'_>, source: &mut dyn ByteSource) -> Result<(u64, usize), Errno> {
        if !self.is_writable() {
            return Err(Errno::BADF);
        }
        self.write_pieces(caller, None, Origin::new(source))
    }

    /// Writes at `start`, or at the end; returns the offset and the number of bytes written.
    fn write_pieces(
        &self,
        caller: &Caller<'_>,
        mut start: Option<u64>,
        mut from: Origin<'_>,
    ) -> Result<(u64, usize), Errno> {
        let is_append = start.is_none();
        let (mut done, mut patience) = (0, Patience::default());
        let error = loop {
            let mut piece = from.rest(done);
            // Without locks: whoever makes memory present may read this file.
            let present = if piece.is_present() { piece.len() } else { piece.fault_in() };
            if present == 0 && piece.len() > 0 {
                break Errno::FAULT;
            }
            let _size = self.inode().size_lock.lock();
            let end = if is_append { Some(self.end_locked(caller)) } else { None };
            let at = match (start, end) {
                (_, Some(Err(error))) => break error,
                (Some(start), Some(Ok(end))) if end != start + done as u64 => return Ok((start, done)),
                (None, Some(Ok(end))) => end,
                (start, _) => start.unwrap_or(0) + done as u64,
            };
            let piece = piece.part(0, present);
            if let Err(error) = check_range(at, piece.len()) {
                break error;
            }
            match self.write_locked(caller, at, piece) {
                Ok(count) => {
                    let start = *start.get_or_insert(at);
                    (done, patience) = (done + count, Patience::default());
                    if count == 0 || done == from.len() || from.is_present() {
                        return Ok((start, done));
                    }
                }
                // The memory was taken away again, or the server says so.
                Err(Errno::FAULT) if !from.is_present() && patience.allows(present) => {}
                Err(error) => break error,
            }
        };
        if done > 0 { Ok((start.unwrap_or(0), done)) } else { Err(error) }
    }

    /// Returns the offset at which an append writes. The caller holds `size_lock`.
    fn end_locked(&self, caller: &Caller<'_>) -> Result<u64, Errno> {
        let dirty_size = self.inode().pages.lock().dirty_size();
        match dirty_size {
            Some(size) => Ok(size),
            None => Ok(self.inode().ask_attributes(caller, Some(self.handle()))?.size.get()),
        }
    }

    /// Chooses how to write. The caller holds `size_lock`.
    fn write_locked(&self, caller: &Caller<'_>, offset: u64, mut from: Origin<'_>) -> Result<usize, Errno> {
        if self.is_mapped() {
            return self.write_mapped(caller, offset, from);
        }
        if self.is_written_back() {
            return self.write_kept(caller, offset, from);
        }
        self.inode().write_dirty_locked();
        self.write_through(caller, offset, from.rest(0))
    }

    /// Reads from the server, with as many requests as needed.
    pub(super) fn read_through(&self, caller: &Caller<'_>, offset: u64, to: Target<'_>) -> Result<usize, Errno> {
        self.inode().write_dirty();
        let session = &self.inode().shared.session;
        session.read_to(caller, self.inode().nodeid(), self.handle(), self.flags(), offset, to)
    }

    /// Writes to the server, with as many requests as needed, and updates cached pages. The caller holds `size_lock`.
    pub(super) fn write_through(&self, caller: &Caller<'_>, offset: u64, from: Origin<'_>) -> Result<usize, Errno> {
        let inode = self.inode();
        let session = &inode.shared.session;
        let kills = caller.uid != 0 && session.negotiated().flags.contains(InitFlags::HANDLE_KILLPRIV_V2);
        let write_flags = if kills { WriteFlags::KILL_SUIDGID } else { WriteFlags::empty() };
        let len = from.len();
        inode.changed();
        let fills = inode.pages.lock().fills();
        let is_shared = inode.shared.options.mode == CacheMode::Shared;
        // The server appends at the end of the file, which may be elsewhere by then.
        let is_elsewhere = is_shared && self.is_appending();
        let mut update = |done: usize, from: Origin<'_>, is_stable: bool| {
            let mut pages = inode.pages.lock();
            // If another guest has written since, a READ that was sent in the meantime may have returned its bytes, and
            // the older ones must not be put over them. A READ sent before has a moment before the other's stamp.
            if is_elsewhere || is_shared && pages.fills() != fills {
                drop(pages);
                inode.drop_data();
            } else {
                pages.written(offset + done as u64, from, is_stable);
            }
        };
        let raised = RaisedSlots::default();
        let asking = caller.noting(&raised);
        let (nodeid, fh, flags) = (inode.nodeid(), self.handle(), self.flags());
        let result = session.write_of(&asking, nodeid, fh, flags, write_flags, offset, from, &mut update);
        if !matches!(&result, Ok(count) if *count == len) {
            // It is unknown whether the rest has reached the file.
            inode.drop_data();
        }
        inode.changed();
        if !is_elsewhere {
            inode.account_for(&raised);
        }
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
