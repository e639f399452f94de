//! Operations on names.

use transom_wire::{
    Opcode,
    attr::EntryOut,
    ops::{
        create::CreateIn,
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        link::LinkIn,
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::OpenOut,
        rename::{Rename2In, RenameIn},
    },
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Answer, Exchange, Session, with_nul};

/// The reply to CREATE and TMPFILE.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CreateOut {
    /// The new file.
    pub entry: EntryOut,
    /// Its handle.
    pub open: OpenOut,
}

impl<E: Exchange> Session<E> {
    /// Sends LOOKUP.
    pub fn lookup(&mut self, parent: u64, name: &[u8]) -> Answer<EntryOut> {
        self.ask(Opcode::Lookup, parent, &[&with_nul(name)])
    }

    /// Sends FORGET.
    pub fn forget(&mut self, nodeid: u64, nlookup: u64) -> Answer<()> {
        self.tell(Opcode::Forget, nodeid, &[ForgetIn { nlookup: nlookup.into() }.as_bytes()])
    }

    /// Sends BATCH_FORGET for pairs of (nodeid, nlookup).
    pub fn batch_forget(&mut self, ones: &[(u64, u64)]) -> Answer<()> {
        let head = BatchForgetIn { count: (ones.len() as u32).into(), dummy: 0.into() };
        let one =
            |&(nodeid, nlookup): &(u64, u64)| ForgetOne { nodeid: u64::into(nodeid), nlookup: u64::into(nlookup) };
        let ones: Vec<ForgetOne> = ones.iter().map(one).collect();
        self.tell(Opcode::BatchForget, 0, &[head.as_bytes(), ones.as_bytes()])
    }

    /// Sends SYMLINK.
    pub fn symlink(&mut self, parent: u64, name: &[u8], target: &[u8]) -> Answer<EntryOut> {
        self.ask(Opcode::Symlink, parent, &[&with_nul(name), &with_nul(target)])
    }

    /// Sends READLINK and returns the target.
    pub fn readlink(&mut self, nodeid: u64) -> Answer<Vec<u8>> {
        self.request(Opcode::Readlink as u32, nodeid, &[], 4096)
    }

    /// Sends MKNOD.
    pub fn mknod(&mut self, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Answer<EntryOut> {
        let arg = MknodIn { mode: mode.into(), rdev: rdev.into(), umask: 0.into(), padding: 0.into() };
        self.ask(Opcode::Mknod, parent, &[arg.as_bytes(), &with_nul(name)])
    }

    /// Sends MKDIR.
    pub fn mkdir(&mut self, parent: u64, name: &[u8], mode: u32) -> Answer<EntryOut> {
        let arg = MkdirIn { mode: mode.into(), umask: 0.into() };
        self.ask(Opcode::Mkdir, parent, &[arg.as_bytes(), &with_nul(name)])
    }

    /// Sends UNLINK.
    pub fn unlink(&mut self, parent: u64, name: &[u8]) -> Answer<()> {
        self.ask_nothing(Opcode::Unlink, parent, &[&with_nul(name)])
    }

    /// Sends RMDIR.
    pub fn rmdir(&mut self, parent: u64, name: &[u8]) -> Answer<()> {
        self.ask_nothing(Opcode::Rmdir, parent, &[&with_nul(name)])
    }

    /// Sends RENAME.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Answer<()> {
        let arg = RenameIn { newdir: to.0.into() };
        self.ask_nothing(Opcode::Rename, from.0, &[arg.as_bytes(), &with_nul(from.1), &with_nul(to.1)])
    }

    /// Sends RENAME2.
    pub fn rename2(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        let arg = Rename2In { newdir: to.0.into(), flags: flags.into(), padding: 0.into() };
        self.ask_nothing(Opcode::Rename2, from.0, &[arg.as_bytes(), &with_nul(from.1), &with_nul(to.1)])
    }

    /// Sends LINK.
    pub fn link(&mut self, old: u64, parent: u64, name: &[u8]) -> Answer<EntryOut> {
        let arg = LinkIn { oldnodeid: old.into() };
        self.ask(Opcode::Link, parent, &[arg.as_bytes(), &with_nul(name)])
    }

    /// Sends CREATE.
    pub fn create(&mut self, parent: u64, name: &[u8], flags: u32, mode: u32) -> Answer<CreateOut> {
        let arg = create_in(flags, mode);
        self.ask(Opcode::Create, parent, &[arg.as_bytes(), &with_nul(name)])
    }

    /// Sends TMPFILE.
    pub fn tmpfile(&mut self, parent: u64, flags: u32, mode: u32) -> Answer<CreateOut> {
        let arg = create_in(flags, mode);
        self.ask(Opcode::Tmpfile, parent, &[arg.as_bytes(), b"/\0"])
    }
}

fn create_in(flags: u32, mode: u32) -> CreateIn {
    CreateIn { flags: flags.into(), mode: mode.into(), umask: 0.into(), open_flags: 0.into() }
}
