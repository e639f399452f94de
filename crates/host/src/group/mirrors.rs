//! Mirrors of the table, each for the guest of one daemon whose front end maps everything writable.
//!
//! A mirror is a file in the group's directory. All of them exist from the beginning, and every daemon maps them before
//! it enters its sandbox, because it has to write those that daemons use which start later. A mirror serves one daemon
//! only: afterwards its guest may still have the file mapped. Which ones are used, and which were ever, is in the
//! group's area.
//!
//! The front end gets a descriptor that can write, so it may cut the file off: see [`fault`](super::fault).

use std::sync::atomic::Ordering::SeqCst;

use transom_versions::{Mirror, Writer};

use super::{
    GroupError,
    area::{Area, MIRRORS_MAX},
    file::MirrorFile,
    mapping::Mapping,
};

#[derive(Debug)]
pub(super) struct Mirrors {
    area: Area,
    mirrors: Vec<Mirror<Mapping>>,
}

impl Mirrors {
    pub(super) fn new(area: Area, table: &Writer<Mapping>, files: &[MirrorFile]) -> Result<Self, GroupError> {
        let mirrors = files.iter().map(|file| Mirror::new(file.mapping.clone(), table)).collect::<Result<_, _>>()?;
        Ok(Self { area, mirrors })
    }

    /// Calls `each` with all mirrors that guests use. A mirror that is taken later is filled from the table later.
    #[inline]
    pub(super) fn each_used(&self, mut each: impl FnMut(&Mirror<Mapping>)) {
        for word in 0..MIRRORS_MAX / 64 {
            let mut used = self.area.mirrors_used(word).load(SeqCst);
            while used != 0 {
                let number = word * 64 + used.trailing_zeros() as usize;
                used &= used - 1;
                each(&self.mirrors[number]);
            }
        }
    }

    /// Returns the mirrors that nobody has ever had or reserved.
    pub(super) fn unspent(&self) -> impl Iterator<Item = usize> {
        (0..MIRRORS_MAX).filter(|number| self.area.mirrors_spent(number / 64).load(SeqCst) & (1 << (number % 64)) == 0)
    }

    /// Leaves a mirror to nobody else.
    pub(super) fn spend(&self, number: usize) {
        self.area.mirrors_spent(number / 64).fetch_or(1 << (number % 64), SeqCst);
    }

    /// Returns a reserved mirror that nobody has had.
    pub(super) fn unspend(&self, number: usize) {
        if number < MIRRORS_MAX {
            self.area.mirrors_spent(number / 64).fetch_and(!(1 << (number % 64)), SeqCst);
        }
    }

    /// Fills a reserved mirror and has it written from now on.
    pub(super) fn start(&self, number: usize, table: &Writer<Mapping>) {
        // First, so that what is not filled is written by whoever changes it.
        self.area.mirrors_used(number / 64).fetch_or(1 << (number % 64), SeqCst);
        self.mirrors[number].fill(table);
    }

    /// Stops to write a mirror. A guest that still has it mapped, and gets another daemon, uses nothing by it.
    pub(super) fn give_up(&self, number: usize) {
        if let Some(mirror) = self.mirrors.get(number) {
            self.area.mirrors_used(number / 64).fetch_and(!(1 << (number % 64)), SeqCst);
            mirror.retire();
        }
    }
}
