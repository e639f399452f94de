//! Files that a guest may change without a request: counted for each member and slot, so that the last one of the
//! group is known.
//!
//! A count is raised before the slot becomes hot and lowered before somebody looks whether anyone else needs the heat:
//! see [`Table::clear_hot`].

use std::sync::atomic::Ordering::SeqCst;

use transom_versions::Slot;

use super::{
    MEMBERS_MAX,
    area::{Area, RecordWord},
    table::Table,
};

pub(super) fn heat(table: &Table, area: &Area, member: usize, slot: Slot) {
    area.record(member, RecordWord::HotFiles).fetch_add(1, SeqCst);
    area.heat(member, slot.number() as usize).fetch_add(1, SeqCst);
    table.set_hot(slot);
}

pub(super) fn cool(table: &Table, area: &Area, member: usize, slot: Slot) {
    let number = slot.number() as usize;
    area.heat(member, number).fetch_sub(1, SeqCst);
    area.record(member, RecordWord::HotFiles).fetch_sub(1, SeqCst);
    table.clear_hot(slot, || is_held(area, member, number));
}

/// Returns whether any member, this one included, or a dead one's guest needs the heat of a slot.
fn is_held(area: &Area, own: usize, slot: usize) -> bool {
    let members = (0..MEMBERS_MAX).filter(|&member| member == own || area.is_live(member));
    area.orphans(slot).load(SeqCst) != 0 || members.into_iter().any(|at| area.heat(at, slot).load(SeqCst) != 0)
}

/// Keeps the hot slots of a member that is gone hot: its guest may still have the files mapped.
pub(super) fn orphan(table: &Table, area: &Area, member: usize) {
    if area.record(member, RecordWord::HotFiles).swap(0, SeqCst) == 0 {
        return;
    }
    for slot in 0..area.slots() {
        if area.heat(member, slot).load(SeqCst) != 0 {
            area.orphans(slot).store(1, SeqCst);
            area.heat(member, slot).store(0, SeqCst);
            if let Some(slot) = table.reader().slot_at(slot as u64) {
                table.set_hot(slot);
            }
        }
    }
}

/// Ends the heat of all files of daemons that are dead, for the first member of a group without others.
pub(super) fn forget_orphans(table: &Table, area: &Area) {
    for number in 0..area.slots() {
        let Some(slot) = table.reader().slot_at(number as u64) else { return };
        if area.orphans(number).swap(0, SeqCst) != 0 || table.reader().is_hot(slot) {
            table.clear_hot(slot, || false);
        }
    }
}

/// Makes every slot hot for good: the table no longer tells anyone what changes.
pub(super) fn retire(table: &Table, area: &Area) {
    for number in 0..area.slots() {
        area.orphans(number).store(1, SeqCst);
        if let Some(slot) = table.reader().slot_at(number as u64) {
            table.set_hot(slot);
        }
    }
    table.raise_epoch();
}
