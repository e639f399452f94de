//! What is done to the file, and how it is chosen.

use std::ops::RangeInclusive;

use super::{Limits, model::Model};

/// The block of `O_DIRECT` and of collapsed ranges: what any file system takes.
pub(super) const BLOCK: u64 = 4096;
/// A range of a DAX window.
const RANGE: u64 = transom_wire::window::RANGE_LEN;
/// Open handles.
pub(super) const HANDLES: usize = 4;
/// Live mappings.
pub(super) const MAPPINGS: usize = 3;

/// How a handle is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Plain,
    Append,
    Direct,
    Synchronous,
}

/// What `fallocate` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocation {
    Grow,
    Keep,
    Punch,
    Zero,
    ZeroKeep,
    Collapse,
    Insert,
}

/// One step; its `Debug` form is what a report shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read {
        handle: usize,
        offset: u64,
        len: u64,
    },
    Write {
        handle: usize,
        offset: u64,
        len: u64,
        seed: u64,
    },
    Map {
        slot: usize,
        path: usize,
        offset: u64,
        len: u64,
    },
    Unmap {
        slot: usize,
    },
    Load {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Store {
        slot: usize,
        offset: u64,
        len: u64,
        seed: u64,
    },
    SyncMapping {
        slot: usize,
    },
    /// Reads with `O_DIRECT` into the memory of a mapping.
    ReadIntoMapping {
        handle: usize,
        offset: u64,
        slot: usize,
        at: u64,
        len: u64,
    },
    /// Writes with `O_DIRECT` from the memory of a mapping.
    WriteFromMapping {
        handle: usize,
        offset: u64,
        slot: usize,
        at: u64,
        len: u64,
    },
    Truncate {
        path: usize,
        len: u64,
    },
    TruncateHandle {
        handle: usize,
        len: u64,
    },
    OpenTruncating {
        path: usize,
    },
    Allocate {
        handle: usize,
        kind: Allocation,
        offset: u64,
        len: u64,
    },
    Copy {
        from: usize,
        offset: u64,
        to: usize,
        to_offset: u64,
        len: u64,
    },
    Sync {
        handle: usize,
        is_data_only: bool,
    },
    Reopen {
        handle: usize,
        path: usize,
        mode: Mode,
    },
    Compare {
        path: usize,
    },
}

impl Operation {
    /// What it is called where it is left out.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Map { .. } | Self::Unmap { .. } => "map",
            Self::Load { .. } => "load",
            Self::Store { .. } => "store",
            Self::SyncMapping { .. } => "msync",
            Self::ReadIntoMapping { .. } => "read-into-mapping",
            Self::WriteFromMapping { .. } => "write-from-mapping",
            Self::Truncate { .. } | Self::TruncateHandle { .. } => "truncate",
            Self::OpenTruncating { .. } => "open-truncating",
            Self::Allocate { kind, .. } => match kind {
                Allocation::Grow | Allocation::Keep => "allocate",
                Allocation::Punch => "punch",
                Allocation::Zero | Allocation::ZeroKeep => "zero",
                Allocation::Collapse => "collapse",
                Allocation::Insert => "insert",
            },
            Self::Copy { .. } => "copy",
            Self::Sync { .. } => "fsync",
            Self::Reopen { mode: Mode::Direct, .. } => "direct",
            Self::Reopen { .. } => "reopen",
            Self::Compare { .. } => "compare",
        }
    }
}

/// Names that `--without` takes.
pub const NAMES: [&str; 19] = [
    "read",
    "write",
    "map",
    "load",
    "store",
    "msync",
    "read-into-mapping",
    "write-from-mapping",
    "truncate",
    "open-truncating",
    "allocate",
    "punch",
    "zero",
    "collapse",
    "insert",
    "copy",
    "fsync",
    "direct",
    "reopen",
];

/// Random numbers that a seed repeats (Vigna's SplitMix64).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Bytes that `seed` repeats.
    pub(super) fn bytes(seed: u64, len: u64) -> Vec<u8> {
        let mut random = Random(seed);
        let mut bytes = Vec::with_capacity(len as usize + 8);
        while bytes.len() < len as usize {
            bytes.extend(random.next().to_le_bytes());
        }
        bytes.truncate(len as usize);
        bytes
    }

    /// Prefers the places where mistakes are made: borders of pages and ranges, and the end of the file.
    fn offset(&mut self, end: u64, size: u64) -> u64 {
        let somewhere = self.within(0..=end);
        let near = |this: &mut Self, place: u64| (place + this.within(0..=16)).saturating_sub(8);
        let offset = match self.within(0..=9) {
            0 | 1 => near(self, somewhere / BLOCK * BLOCK),
            2 => near(self, somewhere / RANGE * RANGE),
            3 | 4 => near(self, size),
            _ => somewhere,
        };
        offset.min(end)
    }

    fn len(&mut self, max: u64) -> u64 {
        let bound = match self.within(0..=3) {
            0 => 64,
            1 => 2 * BLOCK,
            _ => max,
        };
        self.within(1..=bound.min(max).max(1))
    }
}

/// The next step on a file that holds what `model` says, at one of `paths` paths.
pub(super) fn choose(random: &mut Random, model: &Model, limits: &Limits, paths: usize) -> Operation {
    let (handle, slot, path) = (random.below(HANDLES), random.below(MAPPINGS), random.below(paths));
    let offset = random.offset(limits.size_max - 1, model.len());
    let len = random.len(limits.len_max).min(limits.size_max - offset);
    let seed = random.next();
    match random.within(0..=99) {
        0..=17 => Operation::Read { handle, offset, len },
        18..=33 => Operation::Write { handle, offset, len, seed },
        34..=39 => {
            let offset = offset / BLOCK * BLOCK;
            let len = random.within(1..=3 * RANGE).min(limits.size_max - offset);
            Operation::Map { slot, path, offset, len }
        }
        40 => Operation::Unmap { slot },
        41..=54 => Operation::Load { slot, offset, len },
        55..=66 => Operation::Store { slot, offset, len, seed },
        67 | 68 => Operation::SyncMapping { slot },
        69 | 70 => Operation::ReadIntoMapping { handle, offset, slot, at: random.next(), len },
        71 | 72 => Operation::WriteFromMapping { handle, offset, slot, at: random.next(), len },
        73..=75 => Operation::Truncate { path, len: offset },
        76 | 77 => Operation::TruncateHandle { handle, len: offset },
        78 => Operation::OpenTruncating { path },
        79..=85 => allocation(random, model, handle, offset, len),
        86..=88 => {
            let to_offset = random.offset(limits.size_max - len, model.len());
            Operation::Copy { from: handle, offset, to: random.below(HANDLES), to_offset, len }
        }
        89..=91 => Operation::Sync { handle, is_data_only: seed & 1 == 0 },
        92..=98 => {
            let mode = [Mode::Plain, Mode::Plain, Mode::Append, Mode::Direct, Mode::Synchronous][random.below(5)];
            Operation::Reopen { handle, path, mode }
        }
        _ => Operation::Compare { path },
    }
}

fn allocation(random: &mut Random, model: &Model, handle: usize, offset: u64, len: u64) -> Operation {
    use Allocation::{Collapse, Grow, Insert, Keep, Punch, Zero, ZeroKeep};
    let kind = [Grow, Keep, Punch, Punch, Zero, ZeroKeep, Collapse, Insert][random.below(8)];
    let (offset, len) = match kind {
        Collapse | Insert => {
            let offset = offset.min(model.len()) / BLOCK * BLOCK;
            (offset, len.next_multiple_of(BLOCK))
        }
        _ => (offset, len),
    };
    Operation::Allocate { handle, kind, offset, len }
}
