//! Stamps: tells the guests of a coherence group which inodes a request has changed.
//!
//! The row of the operation says what a request changes, and [`Changes`] finds the inodes before the request is served:
//! afterwards a removed name leads nowhere. What an open file's handle leads to counts, not only the inode that the
//! request names, because a guest may send any combination. In doubt more is stamped: that costs requests, while a
//! missing stamp would be a stale answer.

use rustix::fs::{AtFlags, StatxFlags, fstat};
use smallvec::SmallVec;
use transom_versions::Slot;
use transom_wire::{Handle, Name, NodeId, Opcode, operation::Changed, own_changes::Trailer};

use super::Passthrough;
use crate::{Errno, group::Group, server::Changing};

/// The most inodes of one request: two directories, two inodes with names, and those of handles.
type Slots = SmallVec<[Slot; 6]>;

/// What a request is about to change.
struct Changes {
    slots: Slots,
    /// Some inode could not be found out.
    is_incomplete: bool,
}

impl Passthrough {
    /// Serves a request that changes something, and stamps what it has changed before it returns.
    pub(super) fn stamped<T>(
        &self,
        request: &Changing<'_>,
        serve: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(group) = self.group.as_ref().filter(|_| request.changes().next().is_some()) else { return serve() };
        // Until the stamp, nobody else of the group gives these names to other inodes.
        let turn = self.directories(group, request).map(|directories| group.take_turn(directories));
        let changes = self.changes(group, request);
        let outcome = serve();
        if outcome.as_ref().err().is_some_and(|&errno| changes_nothing(request.row.opcode, errno)) {
            return outcome;
        }
        let mut own = match request.own_changes {
            Some(_) => self.attempts.take(request),
            None => Trailer::default(),
        };
        group.stamp_each(&changes.slots, |slot, raised| {
            // A hot slot is valid for nobody, and stays so.
            if raised.is_own_change() {
                own.push(slot.number(), raised.previous, raised.word);
            }
        });
        if let Some(own_changes) = request.own_changes {
            own_changes.set(own);
            if outcome.as_ref().is_err_and(|&errno| errno == Errno::AGAIN) {
                self.attempts.keep(request, own);
            }
        }
        if changes.is_incomplete || turn.as_ref().is_some_and(|turn| !turn.is_exclusive()) {
            group.invalidate_all();
        }
        outcome
    }

    /// Returns the directories in which a request changes names, or `None` if it changes none.
    fn directories(&self, group: &Group, request: &Changing<'_>) -> Option<[Option<Slot>; 2]> {
        let mut directories = [None; 2];
        for changed in request.changes() {
            match changed {
                Changed::Names => directories[0] = self.slot(group, request.nodeid),
                Changed::NewNames => directories[1] = request.argument().and_then(|nodeid| self.slot(group, nodeid)),
                _ => {}
            }
        }
        directories.iter().any(Option::is_some).then_some(directories)
    }

    /// Returns the slots of the inodes that a request changes if it succeeds.
    fn changes(&self, group: &Group, request: &Changing<'_>) -> Changes {
        let mut changes = Changes { slots: Slots::new(), is_incomplete: false };
        let [first, second] = request.names;
        for changed in request.changes() {
            match changed {
                Changed::Node | Changed::Data => {
                    changes.add(self.slot(group, request.nodeid));
                    changes.add(request.handles().next().and_then(|fh| self.slot_of_file(group, fh)));
                }
                Changed::Argument | Changed::ArgumentData => {
                    changes.add(request.argument().and_then(|nodeid| self.slot(group, nodeid)));
                    changes.add(request.handles().next_back().and_then(|fh| self.slot_of_file(group, fh)));
                }
                Changed::Names => changes.add(self.slot(group, request.nodeid)),
                Changed::NewNames => changes.add(request.argument().and_then(|nodeid| self.slot(group, nodeid))),
                Changed::Named | Changed::Entry | Changed::EntryData => {
                    changes.add_named(self.slot_of_name(group, Some(request.nodeid), first));
                }
                Changed::Replaced => changes.add_named(self.slot_of_name(group, request.argument(), second)),
            }
        }
        changes
    }

    /// Returns the slot of an inode that the guest knows.
    pub(super) fn slot(&self, group: &Group, nodeid: NodeId) -> Option<Slot> {
        self.inodes.ino(nodeid).map(|ino| group.slot(ino))
    }

    /// Returns the slot of an open file or directory, whose inode the guest may have forgotten.
    fn slot_of_file(&self, group: &Group, fh: Handle) -> Option<Slot> {
        let ino = match self.handles.file(fh) {
            Ok(file) => match self.inodes.ino(file.nodeid) {
                Some(ino) => ino,
                None => fstat(&file.fd).ok()?.st_ino,
            },
            Err(_) => fstat(&*self.handles.directory(fh).ok()?).ok()?.st_ino,
        };
        Some(group.slot(ino))
    }

    /// Returns the slot of the inode that a name leads to, or `None` if there is no such name.
    fn slot_of_name(
        &self,
        group: &Group,
        directory: Option<NodeId>,
        name: Option<Name<'_>>,
    ) -> Result<Option<Slot>, Errno> {
        let (Some(nodeid), Some(name)) = (directory, name) else { return Ok(None) };
        // Without the directory, the request fails too.
        let Ok(directory) = self.inodes.get(nodeid) else { return Ok(None) };
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statx(&directory.fd, name.as_bytes(), flags, StatxFlags::INO) {
            Ok(stat) => Ok(Some(group.slot(stat.stx_ino))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Changes {
    fn add(&mut self, slot: Option<Slot>) {
        if let Some(slot) = slot.filter(|slot| !self.slots.contains(slot)) {
            self.slots.push(slot);
        }
    }

    fn add_named(&mut self, slot: Result<Option<Slot>, Errno>) {
        match slot {
            Ok(slot) => self.add(slot),
            Err(_) => self.is_incomplete = true,
        }
    }
}

/// Returns whether a request that failed so has changed nothing. Others may have failed half-way, such as those that
/// take several system calls.
fn changes_nothing(opcode: Opcode, errno: Errno) -> bool {
    let has_one_step = matches!(
        opcode,
        Opcode::Rename | Opcode::Rename2 | Opcode::Unlink | Opcode::Rmdir | Opcode::Removexattr | Opcode::Ioctl
    );
    // What is made gets its label and is looked at afterwards.
    let makes_first = matches!(opcode, Opcode::Mkdir | Opcode::Mknod | Opcode::Symlink | Opcode::Link);
    let is_refusal = matches!(
        errno,
        Errno::EXIST
            | Errno::ISDIR
            | Errno::NOSYS
            | Errno::NOTDIR
            | Errno::NOTEMPTY
            | Errno::NOTTY
            | Errno::ROFS
            | Errno::XDEV
    );
    has_one_step && is_refusal || makes_first && errno == Errno::EXIST
}
