//! Operations on directory streams.

use transom_wire::{
    Opcode,
    attr::EntryOut,
    dirent::{Dirent, padded_len},
    ops::open::{OpenIn, OpenOut},
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Answer, Exchange, Session, broken,
    files::{read_in, release_in},
};

/// One entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The inode number.
    pub ino: u64,
    /// The offset at which the stream continues after this entry.
    pub off: u64,
    /// The type, as in `d_type`.
    pub type_: u32,
    /// The name.
    pub name: Vec<u8>,
    /// The entry that LOOKUP would return; only with READDIRPLUS.
    pub entry: Option<EntryOut>,
}

impl<E: Exchange> Session<E> {
    /// Sends OPENDIR and returns the handle.
    pub fn opendir(&mut self, nodeid: u64) -> Answer<u64> {
        let arg = OpenIn { flags: 0.into(), open_flags: 0.into() };
        Ok(self.ask::<OpenOut>(Opcode::Opendir, nodeid, &[arg.as_bytes()])?.fh.get())
    }

    /// Sends one READDIR, or READDIRPLUS if `is_plus`. Returns no entries at the end of the directory.
    pub fn readdir_once(&mut self, nodeid: u64, fh: u64, offset: u64, size: u32, is_plus: bool) -> Answer<Vec<Entry>> {
        let opcode = if is_plus { Opcode::Readdirplus } else { Opcode::Readdir };
        let arg = read_in(fh, offset, size);
        let payload = self.request(opcode as u32, nodeid, &[arg.as_bytes()], size as usize)?;
        parse(&payload, is_plus).ok_or_else(|| broken(format!("{opcode:?}: truncated entries: {payload:02x?}")))
    }

    /// Returns all entries of a directory, using requests of `size` bytes each.
    pub fn readdir(&mut self, nodeid: u64, size: u32, is_plus: bool) -> Answer<Vec<Entry>> {
        let fh = self.opendir(nodeid)?;
        let mut entries = Vec::<Entry>::new();
        loop {
            let offset = entries.last().map_or(0, |entry| entry.off);
            let more = self.readdir_once(nodeid, fh, offset, size, is_plus)?;
            if more.is_empty() {
                break;
            }
            entries.extend(more);
        }
        self.releasedir(nodeid, fh)?;
        Ok(entries)
    }

    /// Sends RELEASEDIR.
    pub fn releasedir(&mut self, nodeid: u64, fh: u64) -> Answer<()> {
        self.ask_nothing(Opcode::Releasedir, nodeid, &[release_in(fh).as_bytes()])
    }
}

fn parse(mut bytes: &[u8], is_plus: bool) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (entry, rest) = match is_plus {
            true => EntryOut::read_from_prefix(bytes).ok().map(|(entry, rest)| (Some(entry), rest))?,
            false => (None, bytes),
        };
        let (dirent, _) = Dirent::read_from_prefix(rest).ok()?;
        let len = dirent.namelen.get() as usize;
        let name = rest.get(size_of::<Dirent>()..)?.get(..len)?.to_vec();
        let (ino, off, type_) = (dirent.ino.get(), dirent.off.get(), dirent.type_.get());
        entries.push(Entry { ino, off, type_, name, entry });
        bytes = rest.get(padded_len(size_of::<Dirent>(), len)..)?;
    }
    Some(entries)
}
