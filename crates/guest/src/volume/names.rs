//! Names: finding them, making and removing them.
//!
//! A change of a directory is announced before it is sent and again when the reply has come, so that what was asked for
//! in between is not kept.

use alloc::sync::Arc;

use transom_wire::{Name, attr::EntryOut, linux::RENAME_EXCHANGE};

use super::{Inode, Volume};
use crate::{
    Errno, Platform,
    cache::{
        CacheMode,
        names::{Found, Key},
    },
    session::Caller,
};

impl<P: Platform> Volume<P> {
    /// Finds `name` in `parent`, among the kept names while they hold. Errors: ENOENT, also from a kept absence.
    pub fn lookup(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Result<Arc<Inode<P>>, Errno> {
        match self.shared.names.get(parent.key(name), || self.shared.now_ns()) {
            Some(Found::Inode(inode)) => Ok(inode),
            Some(Found::Absent) => Err(Errno::NOENT),
            None => self.ask_name(caller, parent, name),
        }
    }

    /// Finds `name` in `parent` as the server has it now.
    pub fn ask_name(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        let asked = parent.asked();
        let key = parent.key(name);
        let answer = self.session().lookup(caller, parent.nodeid(), name);
        match answer {
            Ok(entry) => self.take_entry(parent, key, &entry, asked)?.ok_or(Errno::NOENT),
            Err(error) => {
                self.shared.names.remove(key);
                Err(error)
            }
        }
    }

    /// Makes the directory `name` in `parent`.
    pub fn mkdir(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        mode: u32,
    ) -> Result<Arc<Inode<P>>, Errno> {
        self.make(parent, name, || self.session().mkdir(caller, parent.nodeid(), name, mode))
    }

    /// Makes the file `name` in `parent`: `mode` is type and permissions, `rdev` the device in the kernel's 32-bit
    /// form.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        mode: u32,
        rdev: u32,
    ) -> Result<Arc<Inode<P>>, Errno> {
        self.make(parent, name, || self.session().mknod(caller, parent.nodeid(), name, mode, rdev))
    }

    /// Makes the symbolic link `name` in `parent` that leads to `target`.
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        target: &[u8],
    ) -> Result<Arc<Inode<P>>, Errno> {
        self.make(parent, name, || self.session().symlink(caller, parent.nodeid(), name, target))
    }

    /// Gives `inode` the further name `name` in `parent`.
    pub fn link(
        &self,
        caller: &Caller<'_>,
        inode: &Arc<Inode<P>>,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        inode.changed();
        let made = self.make(parent, name, || self.session().link(caller, inode.nodeid(), parent.nodeid(), name));
        inode.changed();
        made
    }

    /// Removes the name of what is not a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Result<(), Errno> {
        let mut target = self.touched(caller, parent, name);
        let result = self.act_on(caller, (parent, name), &mut target, || {
            self.change(parent, name, || self.session().unlink(caller, parent.nodeid(), name))
        });
        if let Some(inode) = target {
            inode.changed();
        }
        result
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Result<(), Errno> {
        let mut target = self.touched(caller, parent, name);
        let result = self.act_on(caller, (parent, name), &mut target, || {
            self.change(parent, name, || self.session().rmdir(caller, parent.nodeid(), name))
        });
        if let Some(inode) = target {
            inode.changed();
            inode.forget_names();
        }
        result
    }

    /// Gives what is named `from` the name `to`; `flags` are those of renameat2(2).
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        from: (&Arc<Inode<P>>, Name<'_>),
        to: (&Arc<Inode<P>>, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        let mut touched = [self.touched(caller, from.0, from.1), self.touched(caller, to.0, to.1)];
        let result = self.act_on(caller, from, &mut touched[0], || {
            self.change(from.0, from.1, || {
                self.change(to.0, to.1, || {
                    self.session().rename(caller, (from.0.nodeid(), from.1), (to.0.nodeid(), to.1), flags)
                })
            })
        });
        for inode in touched.iter().flatten() {
            inode.changed();
        }
        // A directory that has moved has another parent, and what a server answers for its names may have changed with
        // it.
        if flags & RENAME_EXCHANGE != 0 {
            touched.iter().flatten().for_each(|inode| inode.forget_names());
        }
        result
    }

    /// Where the symbolic link `inode` leads. Asked once where anything is kept: it never changes.
    pub fn readlink(&self, caller: &Caller<'_>, inode: &Inode<P>) -> Result<Arc<[u8]>, Errno> {
        let kept = inode.symlink.lock().clone();
        if let Some(target) = kept {
            return Ok(target);
        }
        let target: Arc<[u8]> = self.session().readlink(caller, inode.nodeid())?.into();
        if self.shared.options.mode != CacheMode::None {
            *inode.symlink.lock() = Some(Arc::clone(&target));
        }
        Ok(target)
    }

    /// Sends what makes `name`; keeps what came of it.
    pub(super) fn make(
        &self,
        parent: &Arc<Inode<P>>,
        name: Name<'_>,
        ask: impl FnOnce() -> Result<EntryOut, Errno>,
    ) -> Result<Arc<Inode<P>>, Errno> {
        let asked = parent.asked_to_change();
        let entry = self.change(parent, name, ask)?;
        self.take_entry(parent, parent.key(name), &entry, asked)?.ok_or(Errno::IO)
    }

    /// Sends what changes `name` in `parent`, of which nothing is kept afterwards.
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

    /// Takes the reference of an entry, and keeps the name unless this guest has changed the directory since it asked.
    pub(super) fn take_entry(
        &self,
        parent: &Arc<Inode<P>>,
        key: Key<'_>,
        entry: &EntryOut,
        asked: Asked,
    ) -> Result<Option<Arc<Inode<P>>>, Errno> {
        let inode = if entry.nodeid == 0 { None } else { Some(self.shared.adopt(entry, asked.at)?) };
        let validity = self.shared.entry_validity(entry);
        self.shared.names.put(key, inode.clone(), validity, || parent.names_changes() == asked.names_changes);
        Ok(inode)
    }

    /// Removes or moves a name by `act`. QEMU's daemon in C does so only with what this guest has a reference to, and
    /// says EIO otherwise: then the name is asked for, and `act` runs once more with `target` referenced.
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

    /// What a name leads to that is about to go: its link count will change, under other names too.
    ///
    /// Where attributes hold for ever the name is asked for; elsewhere those of an inode whose name is not kept end
    /// soon.
    fn touched(&self, caller: &Caller<'_>, parent: &Arc<Inode<P>>, name: Name<'_>) -> Option<Arc<Inode<P>>> {
        match self.shared.names.get(parent.key(name), || self.shared.now_ns()) {
            Some(Found::Inode(inode)) => Some(inode),
            None if self.shared.options.mode == CacheMode::Always => self.ask_name(caller, parent, name).ok(),
            _ => None,
        }
    }
}

/// When a name was asked for, to be taken before the request.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// By the volume's count of changes.
    at: u64,
    /// By the directory's count of changed names.
    names_changes: u64,
}

/// How often [`Volume::change`] says that names change.
const COUNTS_PER_CHANGE: u64 = 2;

impl<P: Platform> Inode<P> {
    /// As [`Self::asked`], for what one [`Volume::change`] asks: it holds unless somebody else changes names meanwhile.
    pub(super) fn asked_to_change(&self) -> Asked {
        let asked = self.asked();
        Asked { names_changes: asked.names_changes.wrapping_add(COUNTS_PER_CHANGE), ..asked }
    }

    pub(super) fn asked(&self) -> Asked {
        Asked { at: self.shared.asked_at(), names_changes: self.names_changes() }
    }

    /// Where `name` of this directory is kept.
    pub(super) fn key<'a>(&self, name: Name<'a>) -> Key<'a> {
        Key { parent: self.nodeid(), epoch: self.names_epoch(), name }
    }
}
