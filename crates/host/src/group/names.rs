//! Turns to change names in a directory.
//!
//! UNLINK has to stamp the inode that it removes, and the name is all that it has. It looks the name up and then
//! removes it; if another daemon put another inode there in between, that one would get no stamp. So whoever changes
//! names takes a turn first. A turn is a word in the group's file: waiting is bounded, and whoever gives up declares
//! all caches invalid instead.

use std::{
    hint,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use transom_versions::Slot;

use super::area::Area;

/// How long to wait for a turn. A holder makes two or three system calls, which may wait for the disk. After this time
/// all caches are invalidated instead, which is right as well, only slower.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// Tries before the processor is given to others.
const SPINS: u32 = 100;
/// Pause between tries after that.
const PAUSE: Duration = Duration::from_micros(50);

/// A turn to change names, until it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct NamesTurn<'a> {
    area: &'a Area,
    holder: u64,
    taken: [Option<usize>; 2],
    is_exclusive: bool,
}

impl<'a> NamesTurn<'a> {
    pub(super) fn take(area: &'a Area, member: usize, directories: [Option<Slot>; 2]) -> Self {
        let mut wanted = directories.map(|slot| slot.map(Area::turn_of));
        if wanted[0] == wanted[1] {
            wanted[1] = None;
        }
        // In one order, so that two renames cannot wait for each other.
        wanted.sort();
        let mut turn = Self { area, holder: member as u64 + 1, taken: [None; 2], is_exclusive: true };
        let deadline = Instant::now() + WAIT_MAX;
        for (taken, wanted) in turn.taken.iter_mut().zip(wanted) {
            let Some(number) = wanted else { continue };
            if wait_for(area, number, turn.holder, deadline) {
                *taken = Some(number);
            } else {
                turn.is_exclusive = false;
            }
        }
        turn
    }

    /// Returns whether nobody else of the group changes names in the directories. Otherwise the wait took too long, and
    /// after the change the caller has to invalidate everything.
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }
}

impl Drop for NamesTurn<'_> {
    fn drop(&mut self) {
        for number in self.taken.into_iter().flatten() {
            // Somebody who took this daemon for dead may have ended the turn.
            let _ = self.area.turn(number).compare_exchange(self.holder, 0, SeqCst, SeqCst);
        }
    }
}

fn wait_for(area: &Area, number: usize, holder: u64, deadline: Instant) -> bool {
    let mut tries = 0;
    loop {
        if area.turn(number).compare_exchange(0, holder, SeqCst, SeqCst).is_ok() {
            return true;
        }
        tries += 1;
        if tries <= SPINS {
            hint::spin_loop();
        } else if Instant::now() >= deadline {
            return false;
        } else {
            thread::sleep(PAUSE);
        }
    }
}
