//! Operations on the window.

use transom_wire::{
    Opcode,
    ops::{
        removemapping::{RemovemappingIn, RemovemappingOne},
        setupmapping::{SETUPMAPPING_READ, SETUPMAPPING_WRITE, SetupmappingIn},
    },
};
use zerocopy::IntoBytes;

use super::{Answer, Exchange, Session};

impl<E: Exchange> Session<E> {
    /// Sends SETUPMAPPING as Linux does: maps `len` bytes from `foffset` of the inode at `moffset` of the window.
    pub fn setupmapping(&mut self, nodeid: u64, foffset: u64, len: u64, moffset: u64, writes: bool) -> Answer<()> {
        let flags = SETUPMAPPING_READ | if writes { SETUPMAPPING_WRITE } else { 0 };
        let arg = SetupmappingIn {
            fh: u64::MAX.into(),
            foffset: foffset.into(),
            len: len.into(),
            flags: flags.into(),
            moffset: moffset.into(),
        };
        self.setupmapping_with(nodeid, &arg)
    }

    /// Sends SETUPMAPPING with any arguments.
    pub fn setupmapping_with(&mut self, nodeid: u64, arg: &SetupmappingIn) -> Answer<()> {
        self.ask_nothing(Opcode::Setupmapping, nodeid, &[arg.as_bytes()])
    }

    /// Sends REMOVEMAPPING for ranges of (offset in the window, length).
    pub fn removemapping(&mut self, nodeid: u64, ranges: &[(u64, u64)]) -> Answer<()> {
        self.removemapping_of(nodeid, ranges.len() as u32, ranges)
    }

    /// Sends REMOVEMAPPING with `ranges`, but with `count` as their number.
    pub fn removemapping_of(&mut self, nodeid: u64, count: u32, ranges: &[(u64, u64)]) -> Answer<()> {
        let one = |&(moffset, len): &(u64, u64)| RemovemappingOne { moffset: moffset.into(), len: len.into() };
        let ranges: Vec<RemovemappingOne> = ranges.iter().map(one).collect();
        let head = RemovemappingIn { count: count.into() };
        self.ask_nothing(Opcode::Removemapping, nodeid, &[&[head.as_bytes(), ranges.as_bytes()].concat()])
    }
}
