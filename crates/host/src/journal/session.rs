//! What a log amounts to: the guest's inodes, open files and locks.

use hashbrown::HashMap;

use super::Record;
use crate::{
    locks::Ranges,
    sysfd::{
        FileHandle,
        ofd::{FileRange, LockKind},
    },
};

/// A session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Its flags, while there is one.
    pub(crate) flags: Option<u64>,
    /// The guest's inodes, by its numbers.
    pub(crate) inodes: HashMap<u64, Known>,
    /// What is open, by handle.
    pub(crate) open: HashMap<u64, Opened>,
    /// Owners of POSIX locks, by inode and owner.
    pub(crate) owners: HashMap<(u64, u64), Owner>,
    /// The greatest number that any inode was given.
    pub(crate) nodeid_max: u64,
    /// The greatest handle.
    pub(crate) fh_max: u64,
    /// Inodes by their names.
    names: HashMap<(u64, Vec<u8>), u64>,
}

/// An inode that the guest knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) lookups: u64,
    /// The directory and the name in which it was found last; empty if that name is gone.
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) handle: Option<FileHandle>,
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) nodeid: u64,
    pub(crate) fd: u64,
    pub(crate) is_directory: bool,
}

/// An owner of POSIX locks.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    pub(crate) fd: u64,
    pub(crate) pid: u64,
    pub(crate) has_several_pids: bool,
    /// The handles through which it has locked.
    pub(crate) files: Vec<u64>,
    pub(crate) ranges: Ranges,
}

impl Session {
    /// Applies one change.
    pub(super) fn apply(&mut self, record: &Record<'_>) {
        self.note_numbers(record);
        match *record {
            Record::Begin { flags } => {
                self.end();
                self.flags = Some(flags);
            }
            Record::End => self.end(),
            Record::Look { nodeid, count, parent, name, ref handle, .. } => {
                let known = self.inodes.entry(nodeid).or_insert_with(|| Known {
                    lookups: 0,
                    parent,
                    name: Vec::new(),
                    handle: None,
                });
                known.lookups += count;
                known.handle.clone_from(handle);
                self.put_at(nodeid, parent, name);
            }
            Record::Forget { nodeid, count, .. } => self.forget(nodeid, count),
            Record::Rename { parent, name, new_parent, new_name, is_exchange } => {
                let moved = self.leave(parent, name);
                let replaced = self.leave(new_parent, new_name);
                if let Some(moved) = moved {
                    self.put_at(moved, new_parent, new_name);
                }
                if let Some(replaced) = replaced.filter(|_| is_exchange) {
                    self.put_at(replaced, parent, name);
                }
            }
            Record::Remove { parent, name } => _ = self.leave(parent, name),
            Record::Open { nodeid, fh, fd, is_directory, .. } => {
                self.open.insert(fh, Opened { nodeid, fd, is_directory });
            }
            Record::Close { fh } => self.close(fh),
            Record::Lock { nodeid, owner, fh, fd, pid, start, end, is_exclusive } => {
                let owner = self.owners.entry((nodeid, owner)).or_default();
                owner.has_several_pids |= owner.fd != 0 && owner.pid != pid;
                (owner.fd, owner.pid) = (fd, pid);
                if !owner.files.contains(&fh) {
                    owner.files.push(fh);
                }
                // An empty range describes an owner without locks, or one file more of an owner.
                if let Ok(range) = FileRange::new(start, end) {
                    owner.ranges.set(range, if is_exclusive { LockKind::Exclusive } else { LockKind::Shared });
                }
            }
            Record::Unlock { nodeid, owner, start, end } => {
                if let (Some(owner), Ok(range)) = (self.owners.get_mut(&(nodeid, owner)), FileRange::new(start, end)) {
                    owner.ranges.clear(range);
                }
            }
            Record::EndOwner { nodeid, owner } => _ = self.owners.remove(&(nodeid, owner)),
            Record::Intent { .. } | Record::Floor { .. } => {}
        }
    }

    /// Notes the numbers in a record, which must not be given to anything else.
    pub(super) fn note_numbers(&mut self, record: &Record<'_>) {
        let (nodeid, fh) = match *record {
            Record::Look { nodeid, .. } => (nodeid, 0),
            Record::Open { fh, .. } => (0, fh),
            Record::Floor { nodeid, fh } => (nodeid, fh),
            _ => return,
        };
        self.nodeid_max = self.nodeid_max.max(nodeid);
        self.fh_max = self.fh_max.max(fh);
    }

    /// Passes on records that amount to this session.
    pub(super) fn describe(&self, mut put: impl FnMut(&Record<'_>)) {
        put(&Record::Floor { nodeid: self.nodeid_max, fh: self.fh_max });
        let Some(flags) = self.flags else { return };
        put(&Record::Begin { flags });
        for (&nodeid, Known { lookups, parent, name, handle }) in &self.inodes {
            let (count, parent, handle) = (*lookups, *parent, handle.clone());
            put(&Record::Look { unique: 0, nodeid, count, parent, name, handle });
        }
        for (&fh, &Opened { nodeid, fd, is_directory }) in &self.open {
            put(&Record::Open { unique: 0, nodeid, fh, fd, is_directory });
        }
        for (&(nodeid, owner), described) in &self.owners {
            let lock = |fh, pid, range: Option<(FileRange, LockKind)>| Record::Lock {
                nodeid,
                owner,
                fh,
                fd: described.fd,
                pid,
                start: range.map_or(1, |(range, _)| range.start()),
                end: range.map_or(0, |(range, _)| range.end()),
                is_exclusive: range.is_some_and(|(_, kind)| kind == LockKind::Exclusive),
            };
            if described.has_several_pids {
                put(&lock(described.files[0], u64::MAX, None));
            }
            described.files.iter().for_each(|&fh| put(&lock(fh, described.pid, None)));
            described.ranges.iter().for_each(|range| put(&lock(described.files[0], described.pid, Some(range))));
        }
    }

    fn end(&mut self) {
        let (nodeid_max, fh_max) = (self.nodeid_max, self.fh_max);
        *self = Self { nodeid_max, fh_max, ..Self::default() };
    }

    /// Records that an inode is found as `name` in `parent` from now on, and nothing else.
    fn put_at(&mut self, nodeid: u64, parent: u64, name: &[u8]) {
        let Some(known) = self.inodes.get_mut(&nodeid) else { return };
        let before = (known.parent, std::mem::replace(&mut known.name, name.to_vec()));
        known.parent = parent;
        if self.names.get(&before) == Some(&nodeid) {
            self.names.remove(&before);
        }
        if !name.is_empty() {
            self.names.insert((parent, name.to_vec()), nodeid);
        }
    }

    /// Takes a name away from the inode that has it, which is returned.
    fn leave(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let nodeid = self.names.remove(&(parent, name.to_vec()))?;
        if let Some(known) = self.inodes.get_mut(&nodeid) {
            known.name.clear();
        }
        Some(nodeid)
    }

    fn forget(&mut self, nodeid: u64, count: u64) {
        let Some(known) = self.inodes.get_mut(&nodeid) else { return };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups == 0
            && let Some(known) = self.inodes.remove(&nodeid)
        {
            self.owners.retain(|&(inode, _), _| inode != nodeid);
            let place = (known.parent, known.name);
            if self.names.get(&place) == Some(&nodeid) {
                self.names.remove(&place);
            }
        }
    }

    /// Closes a handle, which ends the locks of owners that have locked through no other.
    fn close(&mut self, fh: u64) {
        self.open.remove(&fh);
        self.owners.retain(|_, owner| {
            let before = owner.files.len();
            owner.files.retain(|&file| file != fh);
            before == owner.files.len() || !owner.files.is_empty()
        });
    }
}
