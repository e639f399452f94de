//! Names: looking them up, creating and removing them.
//!
//! A change of a directory is announced before its request is sent and again when the reply has come, so that replies
//! to requests sent in between are not cached.

use alloc::sync::Arc;

use transom_wire::{Name, attr::EntryOut, linux::RENAME_EXCHANGE};

use super::{Inode, Volume, judge::AskedAt};
use crate::{
    Errno, Platform,
    cache::{
        CacheMode, Validity,
        names::{CachedName, Key},
    },
    session::{Caller, RaisedSlots},
};

impl<P: Platform> Volume<P> {
    /// Looks up `name` in `parent`, in the cache while it is valid. Errors: ENOENT, also from the cache.
    pub fn lookup(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Result<Arc<Inode<P>>, Errno> {
        match self.shared.names.get(parent.key(name), &parent.judge()) {
            Some(CachedName::Inode(inode)) => Ok(inode),
            Some(CachedName::Absent) => Err(Errno::NOENT),
            None => self.ask_name(caller, parent, name),
        }
    }

    /// Looks up `name` in `parent` on the server.
    pub fn ask_name(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        if parent.lacks_slot() {
            // What is cached of the directory could not be judged.
            parent.ask_attributes(caller, None)?;
        }
        let asked = parent.asked();
        let key = parent.key(name);
        let answer = self.session().lookup(caller, parent.nodeid(), name);
        match answer {
            Ok(entry) => self.take_entry(parent, key, &entry, asked)?.ok_or(Errno::NOENT),
            // A server that returns an error says nothing of how long the name stays absent; the version table does.
            Err(Errno::NOENT) if self.shared.options.mode == CacheMode::Shared => {
                self.keep_name(parent, key, None, self.shared.validity(asked.at, 0, 0), asked);
                Err(Errno::NOENT)
            }
            Err(error) => {
                self.shared.names.remove(key);
                Err(error)
            }
        }
    }

    /// Creates the directory `name` in `parent`.
    pub fn mkdir(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        mode: u32,
    ) -> Result<Arc<Inode<P>>, Errno> {
        self.make(caller, parent, name, |caller| self.session().mkdir(caller, parent.nodeid(), name, mode))
    }

    /// Creates the file `name` in `parent`: `mode` holds type and permissions, `rdev` the device in the kernel's 32-bit
    /// form.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        mode: u32,
        rdev: u32,
    ) -> Result<Arc<Inode<P>>, Errno> {
        self.make(caller, parent, name, |caller| self.session().mknod(caller, parent.nodeid(), name, mode, rdev))
    }

    /// Creates the symbolic link `name` in `parent` with the target `target`.
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        target: &[u8],
    ) -> Result<Arc<Inode<P>>, Errno> {
        self.make(caller, parent, name, |caller| self.session().symlink(caller, parent.nodeid(), name, target))
    }

    /// Creates the hard link `name` in `parent` to `inode`.
    pub fn link(
        &self,
        caller: &Caller<'_>,
        inode: &Arc<Inode<P>>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        inode.changed();
        let raised = RaisedSlots::default();
        let made = self.make_noting(parent, name, &raised, || {
            self.session().link(&caller.noting(&raised), inode.nodeid(), parent.nodeid(), name)
        });
        inode.changed();
        inode.account_for(&raised);
        made
    }

    /// Removes the name of a file that is not a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Result<(), Errno> {
        let raised = RaisedSlots::default();
        let asking = caller.noting(&raised);
        let mut target = self.touched(caller, parent, name);
        let result = self.act_on(caller, (parent, name), &mut target, || {
            self.change(parent, name, || self.session().unlink(&asking, parent.nodeid(), name))
        });
        parent.account_for(&raised);
        if let Some(inode) = target {
            inode.changed();
            inode.account_for(&raised);
        }
        result
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Result<(), Errno> {
        let raised = RaisedSlots::default();
        let asking = caller.noting(&raised);
        let mut target = self.touched(caller, parent, name);
        let result = self.act_on(caller, (parent, name), &mut target, || {
            self.change(parent, name, || self.session().rmdir(&asking, parent.nodeid(), name))
        });
        parent.account_for(&raised);
        if let Some(inode) = target {
            inode.changed();
            inode.forget_names();
            inode.account_for(&raised);
        }
        result
    }

    /// Renames `from` to `to`; `flags` are those of renameat2(2).
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        from: (&Arc<Inode<P>>, Name<'_>),
        to: (&Arc<Inode<P>>, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        let raised = RaisedSlots::default();
        let asking = caller.noting(&raised);
        let mut touched = [self.touched(caller, from.0, from.1), self.touched(caller, to.0, to.1)];
        let result = self.act_on(caller, from, &mut touched[0], || {
            self.change(from.0, from.1, || {
                self.change(to.0, to.1, || {
                    self.session().rename(&asking, (from.0.nodeid(), from.1), (to.0.nodeid(), to.1), flags)
                })
            })
        });
        for inode in touched.iter().flatten() {
            inode.changed();
        }
        // A directory that has moved has another parent, which may change what a server answers for its names, and for
        // the name of the parent in its listing.
        if flags & RENAME_EXCHANGE != 0 || !Arc::ptr_eq(from.0, to.0) {
            touched.iter().flatten().for_each(|inode| inode.forget_names());
        }
        [from.0, to.0].into_iter().chain(touched.iter().flatten()).for_each(|inode| inode.account_for(&raised));
        result
    }

    /// Returns the target of the symbolic link `inode`. Reads it only once if anything is cached, because it never
    /// changes, except in [`CacheMode::Shared`], where every change of the inode has it read again.
    pub fn readlink(&self, caller: &Caller<'_>, inode: &Inode<P>) -> Result<Arc<[u8]>, Errno> {
        let kept = inode.symlink.lock().clone();
        if let Some((target, _)) = kept.filter(|(_, validity)| validity.is_valid(&inode.judge())) {
            return Ok(target);
        }
        let asked_at = self.shared.asked_at();
        let target: Arc<[u8]> = self.session().readlink(caller, inode.nodeid())?.into();
        let validity = self.shared.validity(asked_at, u64::MAX, 0);
        if validity != Validity::NEVER {
            *inode.symlink.lock() = Some((Arc::clone(&target), validity));
        }
        Ok(target)
    }

    /// Sends a request that creates `name`, and caches the result.
    fn make(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        ask: impl FnOnce(&Caller<'_>) -> Result<EntryOut, Errno>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        let raised = RaisedSlots::default();
        self.make_noting(parent, name, &raised, || ask(&caller.noting(&raised)))
    }

    /// Does the same as [`Self::make`]; the request notes what it has raised in `raised`.
    fn make_noting(
        &self,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        raised: &RaisedSlots,
        ask: impl FnOnce() -> Result<EntryOut, Errno>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        let asked = parent.asked_to_change();
        let entry = self.change(parent, name, ask)?;
        parent.account_for(raised);
        self.take_entry(parent, parent.key(name), &entry, asked)?.ok_or(Errno::IO)
    }

    /// Sends a request that changes `name` in `parent`, and caches nothing of it afterwards. The caller accounts for
    /// the change of `parent` once it has done this for every name of the request.
    pub(super) fn change<T>(
        &self,
        parent: &Inode<P>,
        name: Name<'_>,
        ask: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        parent.change_names();
        let result = ask();
        parent.change_names();
        parent.changed();
        self.shared.names.remove(parent.key(name));
        result
    }

    /// Takes the reference of an entry, and caches the name unless this guest has changed the directory since the
    /// request.
    pub(super) fn take_entry(
        &self,
        parent: &Arc<Inode<P>>,
        key: Key<'_>,
        entry: &EntryOut,
        asked: Asked,
    ) -> Result<Option<Arc<Inode<P>>>, Errno> {
        let inode = if entry.nodeid == 0 { None } else { Some(self.shared.adopt(entry, asked.at)?) };
        let validity = self.shared.validity(asked.at, entry.entry_valid.get(), entry.entry_valid_nsec.get());
        self.keep_name(parent, key, inode.clone(), validity, asked);
        Ok(inode)
    }

    /// Caches what a name leads to unless this guest has changed the directory since the request.
    fn keep_name(
        &self,
        parent: &Inode<P>,
        key: Key<'_>,
        target: Option<Arc<Inode<P>>>,
        validity: Validity,
        asked: Asked,
    ) {
        self.shared.names.put(key, target, validity, || parent.names_changes() == asked.names_changes);
    }

    /// Removes or renames a name by `act`. QEMU's daemon in C does so only for inodes that this guest references, and
    /// returns EIO otherwise; the name is then looked up, and `act` runs once more with `target` referenced.
    fn act_on(
        &self,
        caller: &Caller<'_>,
        (parent, name): (&Arc<Inode<P>>, Name<'_>),
        target: &mut Option<Arc<Inode<P>>>,
        act: impl Fn() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let result = act();
        if result != Err(Errno::IO) {
            return result;
        }
        let Ok(inode) = self.ask_name(caller, parent, name) else { return result };
        *target = Some(inode);
        act()
    }

    /// Returns the inode of a name that is about to be removed: its link count will change, under other names too.
    ///
    /// If attributes are valid forever the name is looked up; otherwise those of an inode whose name is not cached
    /// expire soon.
    fn touched(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Option<Arc<Inode<P>>> {
        match self.shared.names.get(parent.key(name), &parent.judge()) {
            Some(CachedName::Inode(inode)) => Some(inode),
            None if self.shared.options.mode == CacheMode::Always => self.ask_name(caller, parent, name).ok(),
            _ => None,
        }
    }
}

/// The state when a name was requested, to be taken before the request.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    at: AskedAt,
    /// The directory's count of changed names.
    names_changes: u64,
}

/// How often one [`Volume::change`] counts a change of names.
const COUNTS_PER_CHANGE: u64 = 2;

impl<P: Platform> Inode<P> {
    /// As [`Self::asked`], for a request within a [`Volume::change`]: the reply is valid unless somebody else changes
    /// names in the meantime.
    pub(super) fn asked_to_change(&self) -> Asked {
        let asked = self.asked();
        Asked { names_changes: asked.names_changes.wrapping_add(COUNTS_PER_CHANGE), ..asked }
    }

    pub(super) fn asked(&self) -> Asked {
        Asked { at: self.shared.asked_at(), names_changes: self.names_changes() }
    }

    /// Returns the key of `name` in this directory.
    pub(super) fn key<'a>(&self, name: Name<'a>) -> Key<'a> {
        Key { parent: self.nodeid(), epoch: self.names_epoch(), name }
    }
}
