//! The members' records: who is in the group, and what becomes of one that dies.
//!
//! A member holds the lock of its record's first byte; the kernel ends it with the process. A record that says
//! [`LIVE`] and is not locked belongs to a daemon that has died. Whoever gets its lock cleans up, so that it happens
//! once.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;

use rustix::process::getpid;

use super::{
    GroupError, MEMBERS_MAX,
    area::{Area, FREE, LIVE, RecordWord},
    file::reserve_space,
    heat,
    table::Table,
};
use crate::{
    Errno,
    sysfd::ofd::{FileRange, LockKind, lock, try_lock, unlock},
};

/// The record of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) index: usize,
}

/// Takes a free record for a daemon that shares the directory with that device and inode. Waits while another daemon
/// joins.
pub(super) fn join(file: &OwnedFd, table: &Table, area: &Area, root: (u64, u64)) -> Result<Record, GroupError> {
    let joining = byte(area.join_byte());
    lock(file, joining, LockKind::Exclusive).map_err(GroupError::Lock)?;
    let joined = join_alone(file, table, area, root);
    // Also ends with the descriptor.
    let _ = unlock(file, joining);
    joined
}

fn join_alone(file: &OwnedFd, table: &Table, area: &Area, root: (u64, u64)) -> Result<Record, GroupError> {
    // Of a table by an older version, too.
    reserve_space(file, 0..Area::heat_bytes(area.slots() as u64, 0).start)?;
    reserve_space(file, Area::orphans_bytes(area.slots() as u64))?;
    let mut free = None;
    let mut is_alone = true;
    for index in 0..MEMBERS_MAX {
        match bury_if_dead(file, table, area, index).map_err(GroupError::Lock)? {
            Fate::Lives => is_alone = false,
            Fate::Free if free.is_none() => free = Some(index),
            Fate::Free => {}
        }
    }
    if is_alone {
        // Nobody knows what happened to the directory since the last member left.
        heat::forget_orphans(table, area);
        table.set_host_changes(false);
        table.raise_epoch();
        area.set_root(root);
    } else if area.root() != root {
        return Err(GroupError::OtherRoot { theirs: area.root(), ours: root });
    }
    let index = free.ok_or(GroupError::Full)?;
    try_lock(file, byte(area.record_byte(index)), LockKind::Exclusive).map_err(GroupError::Lock)?;
    reserve_space(file, Area::heat_bytes(area.slots() as u64, index))?;
    for word in [RecordWord::PidNamespace, RecordWord::HostWatch, RecordWord::Mirror, RecordWord::Reserved] {
        area.record(index, word).store(0, SeqCst);
    }
    area.record(index, RecordWord::Pid).store(getpid().as_raw_nonzero().get() as u64, SeqCst);
    area.record(index, RecordWord::State).store(LIVE, SeqCst);
    Ok(Record { index })
}

/// Gives the record back. What was changed has its stamp, so nothing needs to be invalidated.
pub(super) fn sign_off(file: &OwnedFd, area: &Area, record: &Record) {
    area.record(record.index, RecordWord::State).store(FREE, SeqCst);
    let _ = unlock(file, byte(area.record_byte(record.index)));
}

/// Reserves a mirror that nobody has ever had, while no other daemon does. Returns its number, or `None` if all have
/// been used. Waits while another daemon joins.
///
/// The member's record names the mirror first. If the member dies before the mirror is in use, whoever clears the
/// record gives the mirror back. Until then nobody else takes it, because it is named in a record.
pub(super) fn reserve_mirror(
    file: &OwnedFd,
    table: &Table,
    area: &Area,
    record: &Record,
) -> Result<Option<usize>, GroupError> {
    let joining = byte(area.join_byte());
    lock(file, joining, LockKind::Exclusive).map_err(GroupError::Lock)?;
    let is_claimed = |number: usize| {
        (0..MEMBERS_MAX).any(|index| area.record(index, RecordWord::Reserved).load(SeqCst) == number as u64 + 1)
    };
    let free = table.mirrors().unspent().find(|&number| !is_claimed(number));
    if let Some(number) = free {
        area.record(record.index, RecordWord::Reserved).store(number as u64 + 1, SeqCst);
        table.mirrors().spend(number);
    }
    let _ = unlock(file, joining);
    Ok(free)
}

/// Stops to write the mirror of a member's guest, or leaves it to others if nobody has had it.
pub(super) fn give_up_mirror(table: &Table, area: &Area, index: usize) {
    let number = |word: u64| word.checked_sub(1).map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let reserved = area.record(index, RecordWord::Reserved);
    if let Some(number) = number(area.record(index, RecordWord::Mirror).load(SeqCst)) {
        table.mirrors().give_up(number);
    } else if let Some(number) = number(reserved.load(SeqCst)) {
        table.mirrors().unspend(number);
    }
    // Last, and in this order: until then whoever cleans up after this process comes to the same end.
    reserved.store(0, SeqCst);
    area.record(index, RecordWord::Mirror).store(0, SeqCst);
}

/// Cleans up after every other member that has died.
pub(super) fn bury_dead(file: &OwnedFd, table: &Table, area: &Area, own: &Record) {
    for index in (0..MEMBERS_MAX).filter(|&index| index != own.index && area.is_live(index)) {
        if let Err(error) = bury_if_dead(file, table, area, index) {
            // Nothing can be known about the peer, so nothing cached is safe.
            tracing::warn!(%error, index, "cannot look at the record of a member of the coherence group");
            table.raise_epoch();
        }
    }
}

enum Fate {
    Lives,
    Free,
}

/// Frees the record if its member is dead. Errors: those of locking.
fn bury_if_dead(file: &OwnedFd, table: &Table, area: &Area, index: usize) -> Result<Fate, Errno> {
    let range = byte(area.record_byte(index));
    match try_lock(file, range, LockKind::Exclusive) {
        Err(Errno::AGAIN) => return Ok(Fate::Lives),
        outcome => outcome?,
    }
    if area.is_live(index) {
        let pid = area.record(index, RecordWord::Pid).load(SeqCst);
        tracing::warn!(
            pid,
            "a member of the coherence group died: all that guests of the group have cached is invalid"
        );
        let holder = index as u64 + 1;
        for turn in area.turns() {
            let _ = turn.compare_exchange(holder, 0, SeqCst, SeqCst);
        }
        heat::orphan(table, area, index);
        give_up_mirror(table, area, index);
        table.raise_epoch();
        area.record(index, RecordWord::State).store(FREE, SeqCst);
    }
    unlock(file, range)?;
    Ok(Fate::Free)
}

/// The range of one byte.
pub(super) fn byte(at: u64) -> FileRange {
    FileRange::new(at, at).expect("a byte of the group's file")
}
