//! READDIR and READDIRPLUS, and iteration over their entries.

use transom_wire::{
    Handle, NodeId,
    attr::EntryOut,
    dirent::{Dirent, DirentPlus, is_listed_name, padded_len},
    operation::{Readdir, Readdirplus},
};
use zerocopy::FromBytes;

use super::read::read_in;
use crate::{
    Errno, Platform,
    channel::Sink,
    session::{Caller, Plain, Session},
};

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// The inode number.
    pub ino: u64,
    /// The offset at which a further READDIR continues after this entry.
    pub off: u64,
    /// The file type, as in `d_type`.
    pub type_: u32,
    /// 1 to 1024 bytes without `/` and NUL. May be `.` or `..`. No other request can carry more than 255 bytes.
    pub name: &'a [u8],
    /// The reply of a LOOKUP, with READDIRPLUS if the server looked the name up. Counts one reference.
    pub entry: Option<EntryOut>,
}

impl<P: Platform> Session<P> {
    /// Reads entries of the open directory `fh` into `bytes`, starting after the entry with this `off`, or at the
    /// beginning for 0. With `plus`, also looks them up.
    ///
    /// Returns the number of bytes, for [`Self::entries`]; 0 means that there are no more entries. Reads at most
    /// [`data_len_max`](crate::session::Negotiated::data_len_max) bytes.
    pub fn readdir(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        offset: u64,
        plus: bool,
        bytes: &mut [u8],
    ) -> Result<usize, Errno> {
        let len = bytes.len().min(self.negotiated().data_len_max);
        let arg = read_in(fh, 0, offset, len);
        let sink = Sink::Bytes(&mut bytes[..len]);
        match plus {
            true => self.fetch(caller, &mut Plain::<Readdirplus>::new(node, caller, &arg), sink),
            false => self.fetch(caller, &mut Plain::<Readdir>::new(node, caller, &arg), sink),
        }
    }

    /// Iterates over the entries in `bytes`, which [`Self::readdir`] filled with the same `plus`.
    ///
    /// Takes over each reference that came with them. When the iterator is dropped, it returns the references of the
    /// remaining entries.
    pub fn entries<'a>(&'a self, bytes: &'a [u8], plus: bool) -> Entries<'a, P> {
        Entries { session: self, rest: bytes, plus }
    }
}

/// Iterates over the entries of one reply. Returns EIO for an entry with an invalid name and continues; ends with EIO
/// if the entries cannot be told apart.
pub struct Entries<'a, P: Platform> {
    session: &'a Session<P>,
    rest: &'a [u8],
    plus: bool,
}

impl<'a, P: Platform> Iterator for Entries<'a, P> {
    type Item = Result<DirEntry<'a>, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((entry, dirent, name)) = self.split_first() else {
            self.rest = &[];
            return Some(Err(self.session.impossible_eio()));
        };
        let entry = entry.and_then(|entry| self.looked_up(entry, name));
        if !is_listed_name(name) {
            if let Some(entry) = entry {
                self.session.forget(entry.nodeid.into(), 1);
            }
            return Some(Err(self.session.impossible_eio()));
        }
        Some(Ok(DirEntry { ino: dirent.ino.get(), off: dirent.off.get(), type_: dirent.type_.get(), name, entry }))
    }
}

impl<'a, P: Platform> Entries<'a, P> {
    /// Takes the next entry off the bytes, if they hold one.
    fn split_first(&mut self) -> Option<(Option<EntryOut>, Dirent, &'a [u8])> {
        let (entry, dirent, header_len) = if self.plus {
            let (head, _) = DirentPlus::read_from_prefix(self.rest).ok()?;
            (Some(head.entry), head.dirent, size_of::<DirentPlus>())
        } else {
            (None, Dirent::read_from_prefix(self.rest).ok()?.0, size_of::<Dirent>())
        };
        let name_len = dirent.namelen.get() as usize;
        if name_len > self.rest.len() {
            return None;
        }
        let name = self.rest.get(header_len..header_len + name_len)?;
        // The padding of the last entry may be missing.
        self.rest = self.rest.get(padded_len(header_len, name_len)..).unwrap_or_default();
        Some((entry, dirent, name))
    }

    /// A server counts no references for the directory itself and its parent.
    fn looked_up(&self, entry: EntryOut, name: &[u8]) -> Option<EntryOut> {
        if entry.nodeid == 0 || matches!(name, b"." | b"..") {
            return None;
        }
        self.session.found_entry(entry).ok()
    }
}

impl<P: Platform> Drop for Entries<'_, P> {
    fn drop(&mut self) {
        if !self.plus {
            return;
        }
        while let Some(entry) = self.next() {
            if let Ok(DirEntry { entry: Some(entry), .. }) = entry {
                self.session.forget(entry.nodeid.into(), 1);
            }
        }
    }
}
