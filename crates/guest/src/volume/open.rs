//! Open files.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64};

use transom_wire::{
    Handle, Name,
    attr::{Attr, EntryOut},
    linux::{O_ACCMODE, O_APPEND, O_DIRECT, O_EXCL, O_TRUNC, O_WRONLY},
    ops::{
        fsync::FSYNC_FDATASYNC,
        open::{OpenFlags, OpenOut},
        release::RELEASE_FLOCK_UNLOCK,
    },
};

use super::{Inode, Volume, mapped::Stream};
use crate::{
    Errno, Platform,
    cache::{CacheMode, sequence::Sequence},
    dax::Change,
    session::Caller,
    sync::{Mutex, rank},
};

/// An open file; RELEASE is sent when the last reference goes.
pub struct OpenFile<P: Platform> {
    inode: Arc<Inode<P>>,
    fh: Handle,
    /// As of open(2).
    flags: u32,
    open_flags: OpenFlags,
    /// Whose its flock and its locks of the open file are.
    owner: u64,
    /// How it is read.
    pub(super) sequence: Mutex<P, { rank::LEAF }, Sequence>,
    /// How many errors of writes that had waited it has been told of.
    pub(super) errors_seen: AtomicU64,
    /// How its mapped file is accessed.
    pub(super) stream: Stream,
    /// Whether a flock was asked for, which goes with the file.
    pub(super) has_flock: AtomicBool,
}

impl<P: Platform> Volume<P> {
    /// Opens the file `inode` with flags as of open(2), O_CREAT and O_EXCL being the caller's matter.
    pub fn open(&self, caller: &Caller<'_>, inode: &Arc<Inode<P>>, flags: u32) -> Result<Arc<OpenFile<P>>, Errno> {
        let is_truncated = flags & O_TRUNC != 0;
        let _size = is_truncated.then(|| inode.size_lock.lock());
        let blocked = if is_truncated { inode.block_to_truncate(0) } else { None };
        if is_truncated {
            inode.write_dirty_locked();
            inode.changed();
        }
        let result = self.session().open(caller, inode.nodeid(), flags);
        if is_truncated {
            inode.drop_data();
            inode.changed();
        }
        let file = OpenFile::new(Arc::clone(inode), &result?, flags);
        if let Some(blocked) = &blocked {
            blocked.changed(Change::Cut { len_bytes: 0 });
        }
        let keeps = file.open_flags.contains(OpenFlags::KEEP_CACHE) || self.shared.options.mode == CacheMode::Always;
        if !keeps {
            // Who opens a file sees what was written before that.
            inode.drop_data();
        }
        Ok(file)
    }

    /// Makes the regular file `name` in `parent` and opens it. The name must be absent, with or without O_EXCL in
    /// `flags`: of a file that is there, the caller has to check the rights, and [`Self::open`] has to put its pages in
    /// order.
    ///
    /// # Errors
    /// EEXIST if the name is there: a caller without O_EXCL looks it up, checks and opens. Likewise ESTALE, of servers
    /// that have it so.
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        mode: u32,
        flags: u32,
    ) -> Result<Arc<OpenFile<P>>, Errno> {
        let asked = parent.asked_to_change();
        // A new file is empty; one that is there is not emptied by a server that opens it all the same.
        let sent = flags & !O_TRUNC | O_EXCL;
        let (entry, open) =
            self.change(parent, name, || self.session().create(caller, parent.nodeid(), name, mode, sent))?;
        let inode = self.take_entry(parent, parent.key(name), &entry, asked);
        self.created(caller, inode, &entry, &open, flags)
    }

    /// Makes a regular file without a name in the file system of `parent`, and opens it. Errors: EOPNOTSUPP.
    pub fn tmpfile(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        mode: u32,
        flags: u32,
    ) -> Result<Arc<OpenFile<P>>, Errno> {
        let asked_at = self.shared.asked_at();
        let (entry, open) = self.session().tmpfile(caller, parent.nodeid(), mode, flags)?;
        let inode = self.shared.adopt(&entry, asked_at).map(Some);
        self.created(caller, inode, &entry, &open, flags)
    }

    /// The open file of a new inode; it is closed again where the entry could not be taken.
    fn created(
        &self,
        caller: &Caller<'_>,
        inode: Result<Option<Arc<Inode<P>>>, Errno>,
        entry: &EntryOut,
        open: &OpenOut,
        flags: u32,
    ) -> Result<Arc<OpenFile<P>>, Errno> {
        match inode.and_then(|inode| inode.ok_or(Errno::IO)) {
            Ok(inode) => Ok(OpenFile::new(inode, open, flags)),
            Err(error) => {
                let _ = self.session().release(caller, entry.nodeid.into(), open.fh.into(), flags, 0, 0);
                Err(error)
            }
        }
    }
}

impl<P: Platform> OpenFile<P> {
    fn new(inode: Arc<Inode<P>>, open: &OpenOut, flags: u32) -> Arc<Self> {
        let owner = inode.shared.new_owner();
        let errors_seen = AtomicU64::new(inode.write_errors.lock().seen());
        let file = Arc::new(Self {
            inode,
            fh: open.fh.into(),
            flags,
            open_flags: OpenFlags::from_bits_truncate(open.open_flags.get()),
            owner,
            sequence: Mutex::default(),
            errors_seen,
            stream: Stream::default(),
            has_flock: AtomicBool::new(false),
        });
        file.enlist();
        file
    }

    /// What is open.
    pub fn inode(&self) -> &Arc<Inode<P>> {
        &self.inode
    }

    /// What the server calls it.
    pub fn handle(&self) -> Handle {
        self.fh
    }

    /// As of open(2).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// What the server says of the open file.
    pub fn open_flags(&self) -> OpenFlags {
        self.open_flags
    }

    /// Names the open file as an owner of locks; nobody else of the volume has it.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Whether it may be read.
    pub fn is_readable(&self) -> bool {
        self.flags & O_ACCMODE != O_WRONLY
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.flags & O_ACCMODE != 0
    }

    /// Whether each write goes to the end of the file.
    pub fn is_appending(&self) -> bool {
        self.flags & O_APPEND != 0
    }

    /// Whether its contents may be kept.
    pub(super) fn is_cached(&self) -> bool {
        self.inode.shared.options.mode != CacheMode::None
            && self.inode.shared.options.data_max_bytes > 0
            && self.flags & O_DIRECT == 0
            && !self.open_flags.contains(OpenFlags::DIRECT_IO)
            && self.inode.is_file()
            && !self.is_mapped()
    }

    /// As [`Volume::getattr`], asked for through the open file.
    pub fn getattr(&self, caller: &Caller<'_>) -> Result<Attr, Errno> {
        self.inode.getattr(caller, Some(self.fh))
    }

    /// What closing a descriptor does: gives the error of earlier writes, and ends the POSIX locks of `lock_owner`.
    pub fn flush(&self, caller: &Caller<'_>, lock_owner: u64) -> Result<(), Errno> {
        self.inode.write_dirty();
        self.tell_touched();
        let written = self.take_error();
        let flushed = match self.open_flags.contains(OpenFlags::NOFLUSH) {
            true => Ok(()),
            false => self.inode.shared.session.flush(caller, self.inode.nodeid(), self.fh, lock_owner),
        };
        self.end_process_locks(lock_owner);
        written.and(flushed)
    }

    /// Makes what was written durable; only the data and what is needed to find it where `is_data_only`.
    pub fn fsync(&self, caller: &Caller<'_>, is_data_only: bool) -> Result<(), Errno> {
        let flags = if is_data_only { FSYNC_FDATASYNC } else { 0 };
        self.inode.write_dirty();
        self.tell_touched();
        let written = self.take_error();
        written.and(self.inode.shared.session.fsync(caller, self.inode.nodeid(), self.fh, flags))
    }
}

impl<P: Platform> Drop for OpenFile<P> {
    fn drop(&mut self) {
        self.retire();
        self.tell_touched();
        // What was begun ahead goes through this handle.
        self.inode.finish_all();
        self.end_own_locks();
        let release_flags = if *self.has_flock.get_mut() { RELEASE_FLOCK_UNLOCK } else { 0 };
        // Nobody is left to be told of an error.
        let _ = self.inode.shared.session.release(
            &Caller::default(),
            self.inode.nodeid(),
            self.fh,
            self.flags,
            release_flags,
            self.owner,
        );
    }
}
