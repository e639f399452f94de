//! Operations on attributes, including extended attributes.

use transom_wire::{
    Opcode,
    attr::{Attr, AttrOut},
    ops::{
        access::AccessIn,
        getattr::{GETATTR_FH, GetattrIn},
        setattr::{SetattrIn, SetattrValid},
        statfs::StatfsOut,
        statx::{StatxIn, StatxOut},
        syncfs::SyncfsIn,
        xattr::{GetxattrIn, GetxattrOut, SetxattrIn},
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Answer, Exchange, Session, broken, with_nul};

impl<E: Exchange> Session<E> {
    /// Sends GETATTR.
    pub fn getattr(&mut self, nodeid: u64, fh: Option<u64>) -> Answer<Attr> {
        let flags = if fh.is_some() { GETATTR_FH } else { 0 };
        let arg = GetattrIn { getattr_flags: flags.into(), dummy: 0.into(), fh: fh.unwrap_or(0).into() };
        Ok(self.ask::<AttrOut>(Opcode::Getattr, nodeid, &[arg.as_bytes()])?.attr)
    }

    /// Sends SETATTR; `valid` selects the fields of `arg` to set.
    pub fn setattr(&mut self, nodeid: u64, valid: SetattrValid, arg: &SetattrIn) -> Answer<Attr> {
        let arg = SetattrIn { valid: valid.bits().into(), ..*arg };
        Ok(self.ask::<AttrOut>(Opcode::Setattr, nodeid, &[arg.as_bytes()])?.attr)
    }

    /// Sends SETATTR of the size only.
    pub fn truncate(&mut self, nodeid: u64, size: u64) -> Answer<Attr> {
        self.setattr(nodeid, SetattrValid::SIZE, &SetattrIn { size: size.into(), ..SetattrIn::new_zeroed() })
    }

    /// Sends STATFS.
    pub fn statfs(&mut self, nodeid: u64) -> Answer<StatfsOut> {
        self.ask(Opcode::Statfs, nodeid, &[])
    }

    /// Sends STATX.
    pub fn statx(&mut self, nodeid: u64) -> Answer<StatxOut> {
        self.ask(Opcode::Statx, nodeid, &[StatxIn { sx_mask: 0x7ff.into(), ..StatxIn::new_zeroed() }.as_bytes()])
    }

    /// Sends ACCESS.
    pub fn access(&mut self, nodeid: u64, mask: u32) -> Answer<()> {
        self.ask_nothing(Opcode::Access, nodeid, &[AccessIn { mask: mask.into(), padding: 0.into() }.as_bytes()])
    }

    /// Sends SYNCFS.
    pub fn syncfs(&mut self, nodeid: u64) -> Answer<()> {
        self.ask_nothing(Opcode::Syncfs, nodeid, &[SyncfsIn { padding: 0.into() }.as_bytes()])
    }

    /// Sends SETXATTR, in the longer form of its arguments.
    pub fn setxattr(&mut self, nodeid: u64, name: &[u8], value: &[u8], flags: u32) -> Answer<()> {
        let size = (value.len() as u32).into();
        let arg = SetxattrIn { size, flags: flags.into(), ..SetxattrIn::new_zeroed() };
        self.ask_nothing(Opcode::Setxattr, nodeid, &[arg.as_bytes(), &[&with_nul(name), value].concat()])
    }

    /// Sends GETXATTR with room for `size` bytes and returns the value.
    pub fn getxattr(&mut self, nodeid: u64, name: &[u8], size: u32) -> Answer<Vec<u8>> {
        let arg = GetxattrIn { size: size.into(), padding: 0.into() };
        self.request(Opcode::Getxattr as u32, nodeid, &[arg.as_bytes(), &with_nul(name)], size as usize)
    }

    /// Sends LISTXATTR with room for `size` bytes and returns the names.
    pub fn listxattr(&mut self, nodeid: u64, size: u32) -> Answer<Vec<u8>> {
        let arg = GetxattrIn { size: size.into(), padding: 0.into() };
        self.request(Opcode::Listxattr as u32, nodeid, &[arg.as_bytes()], size as usize)
    }

    /// Sends GETXATTR of size 0 and returns the size of the value.
    pub fn xattr_size(&mut self, nodeid: u64, name: &[u8]) -> Answer<u32> {
        let arg = GetxattrIn { size: 0.into(), padding: 0.into() };
        let room = size_of::<GetxattrOut>();
        let payload = self.request(Opcode::Getxattr as u32, nodeid, &[arg.as_bytes(), &with_nul(name)], room)?;
        let out = GetxattrOut::read_from_bytes(&payload)
            .map_err(|_| broken("the reply to GETXATTR of size 0 has no size"))?;
        Ok(out.size.get())
    }

    /// Sends REMOVEXATTR.
    pub fn removexattr(&mut self, nodeid: u64, name: &[u8]) -> Answer<()> {
        self.ask_nothing(Opcode::Removexattr, nodeid, &[&with_nul(name)])
    }
}
