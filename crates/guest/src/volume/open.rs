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
    session::{Caller, RaisedSlots},
    sync::{Mutex, rank},
};

/// An open file; RELEASE is sent when the last reference is dropped.
pub struct OpenFile<P: Platform> {
    inode: Arc<Inode<P>>,
    fh: Handle,
    /// The flags of open(2).
    flags: u32,
    open_flags: OpenFlags,
    /// The owner of its flock and of its open-file locks.
    owner: u64,
    /// How it is being read.
    pub(super) sequence: Mutex<P, { rank::LEAF }, Sequence>,
    /// How many errors of delayed writes it has reported.
    pub(super) errors_seen: AtomicU64,
    /// How it is being accessed if it is mapped.
    pub(super) stream: Stream,
    /// Whether a flock was requested, which ends with the file.
    pub(super) has_flock: AtomicBool,
}

impl<P: Platform> Volume<P> {
    /// Opens the file `inode` with the flags of open(2); O_CREAT and O_EXCL are up to the caller.
    pub fn open(&self, caller: &Caller<'_>, inode: &Arc<Inode<P>>, flags: u32) -> Result<Arc<OpenFile<P>>, Errno> {
        let is_truncated = flags & O_TRUNC != 0;
        let _size = is_truncated.then(|| inode.size_lock.lock());
        let blocked = if is_truncated { inode.block_to_truncate(0) } else { None };
        if is_truncated {
            inode.write_dirty_locked();
            inode.changed();
        }
        let raised = RaisedSlots::default();
        let result = self.session().open(&caller.noting(&raised), inode.nodeid(), flags);
        if is_truncated {
            inode.drop_data();
            inode.changed();
            inode.account_for(&raised);
        }
        let file = OpenFile::new(Arc::clone(inode), &result?, flags);
        if let Some(blocked) = &blocked {
            blocked.changed(Change::Cut { len_bytes: 0 });
        }
        let keeps = match self.shared.options.mode {
            CacheMode::Always | CacheMode::Shared => true,
            CacheMode::None | CacheMode::Auto => file.open_flags.contains(OpenFlags::KEEP_CACHE),
        };
        if !keeps {
            // A newly opened file must show what was written before.
            inode.drop_data();
        }
        Ok(file)
    }

    /// Creates the regular file `name` in `parent` and opens it. The name must be absent, with or without O_EXCL in
    /// `flags`: for an existing file, the caller has to check permissions, and [`Self::open`] has to drop stale pages.
    ///
    /// # Errors
    /// EEXIST if the name exists: a caller without O_EXCL looks it up, checks and opens. Likewise ESTALE from some
    /// servers.
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        mode: u32,
        flags: u32,
    ) -> Result<Arc<OpenFile<P>>, Errno> {
        let asked = parent.asked_to_change();
        // A new file is empty; a server that opens an existing file nevertheless must not truncate it.
        let sent = flags & !O_TRUNC | O_EXCL;
        let raised = RaisedSlots::default();
        let asking = caller.noting(&raised);
        let (entry, open) =
            self.change(parent, name, || self.session().create(&asking, parent.nodeid(), name, mode, sent))?;
        parent.account_for(&raised);
        let inode = self.take_entry(parent, parent.key(name), &entry, asked);
        self.created(caller, inode, &entry, &open, flags)
    }

    /// Creates an unnamed regular file in the file system of `parent`, and opens it. Errors: EOPNOTSUPP.
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

    /// Returns the open file of a new inode; closes it if its entry was rejected.
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

    /// Returns the inode.
    pub fn inode(&self) -> &Arc<Inode<P>> {
        &self.inode
    }

    /// Returns the server's handle.
    pub fn handle(&self) -> Handle {
        self.fh
    }

    /// Returns the flags of open(2).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the server's flags for the open file.
    pub fn open_flags(&self) -> OpenFlags {
        self.open_flags
    }

    /// Returns the owner of the open file's locks, unique within the volume.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns whether it is open for reading.
    pub fn is_readable(&self) -> bool {
        self.flags & O_ACCMODE != O_WRONLY
    }

    /// Returns whether it is open for writing.
    pub fn is_writable(&self) -> bool {
        self.flags & O_ACCMODE != 0
    }

    /// Returns whether each write goes to the end of the file.
    pub fn is_appending(&self) -> bool {
        self.flags & O_APPEND != 0
    }

    /// Returns whether its contents may be cached.
    pub(super) fn is_cached(&self) -> bool {
        self.inode.shared.options.mode != CacheMode::None
            && self.inode.shared.options.data_max_bytes > 0
            && self.flags & O_DIRECT == 0
            && !self.open_flags.contains(OpenFlags::DIRECT_IO)
            && self.inode.is_file()
            && !self.is_mapped()
    }

    /// As [`Volume::getattr`], through the open file.
    pub fn getattr(&self, caller: &Caller<'_>) -> Result<Attr, Errno> {
        self.inode.getattr(caller, Some(self.fh))
    }

    /// Does what closing a descriptor requires: reports the error of earlier writes, and releases the POSIX locks of
    /// `lock_owner`.
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

    /// Makes what was written durable; if `is_data_only`, only the data and the metadata needed to find it.
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
        // READs that were started ahead use this handle.
        self.inode.finish_all();
        self.end_own_locks();
        let release_flags = if *self.has_flock.get_mut() { RELEASE_FLOCK_UNLOCK } else { 0 };
        // No caller is left to return an error to.
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
