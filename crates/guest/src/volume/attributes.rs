//! Reading and changing attributes.

use transom_wire::{
    Handle,
    attr::{Attr, AttrOut},
    linux::S_IFMT,
    ops::{
        init::InitFlags,
        setattr::{SetattrIn, SetattrValid},
    },
};
use zerocopy::FromZeros;

use super::{Inode, OpenFile, Volume, judge::AskedAt};
use crate::{
    Errno, Platform,
    cache::Validity,
    dax::Change,
    session::{Caller, RaisedSlots},
};

/// How to change one of the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leaves it unchanged.
    #[default]
    Keep,
    /// Sets it to the server's current time.
    Now,
    /// Sets it to this many seconds since 1970, and nanoseconds below 1,000,000,000.
    At(i64, u32),
}

/// Which attributes to change, and their new values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permissions, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl<P: Platform> Volume<P> {
    /// Returns the attributes of `inode`, from the cache while they are valid. Writes dirty pages first because the
    /// server sets the times.
    pub fn getattr(&self, caller: &Caller<'_>, inode: &Inode<P>) -> Result<Attr, Errno> {
        inode.getattr(caller, None)
    }

    /// Changes attributes of `inode`, through `file` if it is given, and returns the resulting attributes.
    ///
    /// Takes `size_lock` to change the size. Changing size or owner clears set-id bits if that is the server's task.
    pub fn setattr(
        &self,
        caller: &Caller<'_>,
        inode: &Inode<P>,
        file: Option<&OpenFile<P>>,
        set: &SetAttributes,
    ) -> Result<Attr, Errno> {
        let mut arg = setattr_in(set)?;
        let mut valid = arg_valid(set);
        if let Some(file) = file {
            valid |= SetattrValid::FH;
            arg.fh = file.handle().into();
        }
        let flags = self.session().negotiated().flags;
        if set.size.is_some() && caller.uid != 0 && flags.contains(InitFlags::HANDLE_KILLPRIV_V2) {
            valid |= SetattrValid::KILL_SUIDGID;
        }
        arg.valid = valid.bits().into();
        let size_lock = set.size.map(|_| inode.size_lock.lock());
        let blocked = set.size.and_then(|size| inode.block_to_truncate(size));
        if set.mtime != SetTime::Keep {
            inode.time_is_set();
        }
        inode.rights_are_set();
        match &size_lock {
            Some(_) => inode.write_dirty_locked(),
            None => inode.write_dirty(),
        }
        let asked_at = self.shared.asked_at();
        let announced_at = inode.changed();
        let raised = RaisedSlots::default();
        let result = self.session().setattr(&caller.noting(&raised), inode.nodeid(), &arg);
        if set.size.is_some() {
            inode.drop_data();
        }
        match result {
            Ok(out) => {
                if let (Some(blocked), Some(len_bytes)) = (&blocked, set.size) {
                    blocked.changed(Change::Cut { len_bytes });
                }
                inode.keep_changed(&out, asked_at, announced_at);
                inode.account_for(&raised);
                Ok(out.attr)
            }
            Err(error) => {
                inode.changed();
                Err(error)
            }
        }
    }

    /// Asks the server whether the caller may access `inode` as `mask` says, as in access(2).
    pub fn access(&self, caller: &Caller<'_>, inode: &Inode<P>, mask: u32) -> Result<(), Errno> {
        self.session().access(caller, inode.nodeid(), mask)
    }
}

impl<P: Platform> Inode<P> {
    /// As [`Volume::getattr`]. Takes `size_lock` if there are dirty pages.
    pub(super) fn getattr(&self, caller: &Caller<'_>, fh: Option<Handle>) -> Result<Attr, Errno> {
        self.write_dirty();
        self.getattr_without_times(caller, fh)
    }

    /// Returns the attributes, from the cache while they are valid. For a file with dirty pages, the size is the local
    /// one and the times are from before the last writes.
    pub(crate) fn getattr_without_times(&self, caller: &Caller<'_>, fh: Option<Handle>) -> Result<Attr, Errno> {
        let kept = self.attributes.lock().get(&self.judge()).copied();
        let mut attr = match kept {
            Some(attr) => attr,
            None => self.ask_attributes(caller, fh)?,
        };
        if let Some(size) = self.pages.lock().dirty_size() {
            attr.size = size.into();
        }
        Ok(attr)
    }

    /// Asks the server for the current attributes.
    pub(crate) fn ask_attributes(&self, caller: &Caller<'_>, fh: Option<Handle>) -> Result<Attr, Errno> {
        let asked_at = self.shared.asked_at();
        let out = self.shared.session.getattr(caller, self.nodeid(), fh)?;
        if out.attr.mode.get() & S_IFMT != self.file_type() {
            return Err(Errno::IO);
        }
        self.keep(&out, asked_at);
        Ok(out.attr)
    }

    fn keep(&self, out: &AttrOut, asked_at: AskedAt) {
        self.refresh(out.attr, self.validity(out, asked_at), asked_at);
    }

    /// Keeps the attributes after a change that was announced at `announced_at`, unless another change came between,
    /// whose effect they may not show.
    fn keep_changed(&self, out: &AttrOut, asked_at: AskedAt, announced_at: u64) {
        let validity = self.validity(out, asked_at);
        self.learn_slot(&out.attr);
        let mut attributes = self.attributes.lock();
        let is_alone = attributes.changed_at() == announced_at;
        let now = self.shared.changed_at();
        attributes.change(now);
        if is_alone && attributes.put(out.attr, validity, now) {
            drop(attributes);
            self.learn_size(out.attr.size.get());
        }
    }

    fn validity(&self, out: &AttrOut, asked_at: AskedAt) -> Validity {
        self.shared.validity(asked_at, out.attr_valid.get(), out.attr_valid_nsec.get())
    }
}

fn arg_valid(set: &SetAttributes) -> SetattrValid {
    let mut valid = SetattrValid::empty();
    valid.set(SetattrValid::MODE, set.mode.is_some());
    valid.set(SetattrValid::UID, set.uid.is_some());
    valid.set(SetattrValid::GID, set.gid.is_some());
    valid.set(SetattrValid::SIZE, set.size.is_some());
    valid.set(SetattrValid::ATIME, set.atime != SetTime::Keep);
    valid.set(SetattrValid::ATIME_NOW, set.atime == SetTime::Now);
    valid.set(SetattrValid::MTIME, set.mtime != SetTime::Keep);
    valid.set(SetattrValid::MTIME_NOW, set.mtime == SetTime::Now);
    valid
}

/// Returns the fields of the request. Errors: EINVAL for invalid nanoseconds, EFBIG for a size that no file can have.
fn setattr_in(set: &SetAttributes) -> Result<SetattrIn, Errno> {
    let mut arg = SetattrIn::new_zeroed();
    arg.mode = (set.mode.unwrap_or(0) & 0o7777).into();
    arg.uid = set.uid.unwrap_or(0).into();
    arg.gid = set.gid.unwrap_or(0).into();
    if set.size.is_some_and(|size| size > i64::MAX as u64) {
        return Err(Errno::FBIG);
    }
    arg.size = set.size.unwrap_or(0).into();
    if let SetTime::At(seconds, nanoseconds) = set.atime {
        check_nanoseconds(nanoseconds)?;
        (arg.atime, arg.atimensec) = ((seconds as u64).into(), nanoseconds.into());
    }
    if let SetTime::At(seconds, nanoseconds) = set.mtime {
        check_nanoseconds(nanoseconds)?;
        (arg.mtime, arg.mtimensec) = ((seconds as u64).into(), nanoseconds.into());
    }
    Ok(arg)
}

fn check_nanoseconds(nanoseconds: u32) -> Result<(), Errno> {
    if nanoseconds < 1_000_000_000 { Ok(()) } else { Err(Errno::INVAL) }
}
