//! What is asked: for each operation the requests that follow each other, and which of them count.

use transom_frontend::{fuse::Session, queue::Queue};
use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    dirent::{DirentPlus, padded_len},
    ops::{
        create::CreateIn,
        flush::FlushIn,
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        fsync::FsyncIn,
        getattr::GetattrIn,
        mkdir::MkdirIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        rename::RenameIn,
        setattr::{SetattrIn, SetattrValid},
        statfs::StatfsOut,
        write::{WriteIn, WriteOut},
        xattr::GetxattrIn,
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// What is counted. An operation of several requests is counted as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Operation {
    /// GETATTR of a file.
    Getattr,
    /// LOOKUP of a name whose inode the daemon knows.
    Lookup,
    /// LOOKUP of a name that does not exist.
    LookupAbsent,
    /// OPEN; the RELEASE is not counted.
    Open,
    /// READ of 4 KiB.
    #[value(name = "read_4k")]
    Read4k,
    /// WRITE of 4 KiB.
    #[value(name = "write_4k")]
    Write4k,
    /// READ of 1 MiB.
    #[value(name = "read_1m")]
    Read1m,
    /// WRITE of 1 MiB.
    #[value(name = "write_1m")]
    Write1m,
    /// READDIR of 10 entries.
    #[value(name = "readdir_10")]
    Readdir,
    /// READDIRPLUS of 10 entries, whose inodes the daemon knows.
    #[value(name = "readdirplus_10")]
    Readdirplus,
    /// OPENDIR, READDIRPLUS of 10 entries, whose inodes the daemon does not know, and RELEASEDIR; the BATCH_FORGET is
    /// not counted.
    #[value(name = "list_new_10")]
    ListNew,
    /// STATFS.
    Statfs,
    /// GETXATTR of `security.capability`, which the file does not have: what Linux asks before a write.
    GetxattrAbsent,
    /// CREATE, RELEASE, UNLINK; the FORGET is not counted.
    CreateReleaseUnlink,
    /// MKDIR, RMDIR; the FORGET is not counted.
    MkdirRmdir,
    /// RENAME within a directory.
    Rename,
    /// SETATTR of the mode.
    Setattr,
    /// FLUSH.
    Flush,
    /// FSYNC.
    Fsync,
}

/// One request of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Getattr,
    Lookup,
    LookupAbsent,
    Open,
    ReleaseOpened,
    Read { len: u32 },
    Write { len: u32 },
    Readdir,
    Readdirplus,
    Opendir,
    ReaddirplusOpened,
    Releasedir,
    ForgetListed,
    Statfs,
    Getxattr,
    Create,
    Release,
    Unlink,
    Forget,
    Mkdir,
    Rmdir,
    Rename,
    Setattr,
    Flush,
    Fsync,
}

const SMALL: u32 = 4 << 10;
const LARGE: u32 = 1 << 20;
/// What Linux asks for with READDIR and READDIRPLUS.
const DIRECTORY_LEN: u32 = 4 << 10;
/// Mode of files that are made.
const REGULAR: u32 = 0o100_644;
const ROOT: u64 = 1;

impl Operation {
    /// As in the tables.
    pub fn name(self) -> String {
        crate::name_of(&self)
    }

    /// Returns what has to be done once, before the first time.
    pub(super) fn preparation(self) -> &'static [Step] {
        match self {
            Self::Rename => &[Step::Create, Step::Release],
            _ => &[],
        }
    }

    /// Returns the requests that are counted, in order.
    pub(super) fn counted(self) -> &'static [Step] {
        match self {
            Self::Getattr => &[Step::Getattr],
            Self::Lookup => &[Step::Lookup],
            Self::LookupAbsent => &[Step::LookupAbsent],
            Self::Open => &[Step::Open],
            Self::Read4k => &[Step::Read { len: SMALL }],
            Self::Write4k => &[Step::Write { len: SMALL }],
            Self::Read1m => &[Step::Read { len: LARGE }],
            Self::Write1m => &[Step::Write { len: LARGE }],
            Self::Readdir => &[Step::Readdir],
            Self::Readdirplus => &[Step::Readdirplus],
            Self::ListNew => &[Step::Opendir, Step::ReaddirplusOpened, Step::Releasedir],
            Self::Statfs => &[Step::Statfs],
            Self::GetxattrAbsent => &[Step::Getxattr],
            Self::CreateReleaseUnlink => &[Step::Create, Step::Release, Step::Unlink],
            Self::MkdirRmdir => &[Step::Mkdir, Step::Rmdir],
            Self::Rename => &[Step::Rename],
            Self::Setattr => &[Step::Setattr],
            Self::Flush => &[Step::Flush],
            Self::Fsync => &[Step::Fsync],
        }
    }

    /// Returns what follows the counted requests each time.
    pub(super) fn afterwards(self) -> &'static [Step] {
        match self {
            Self::Open => &[Step::ReleaseOpened],
            Self::ListNew => &[Step::ForgetListed],
            Self::CreateReleaseUnlink | Self::MkdirRmdir => &[Step::Forget],
            _ => &[],
        }
    }
}

/// A request without its header.
pub(super) struct Request {
    pub(super) opcode: Opcode,
    pub(super) nodeid: u64,
    pub(super) args: Vec<u8>,
    /// Bytes of file data that the request carries.
    pub(super) data_len: usize,
    /// Bytes for the reply's payload.
    pub(super) room: usize,
    pub(super) is_answered: bool,
    pub(super) may_fail: bool,
}

/// The files that requests are about; every daemon has a directory of its own for what it makes.
pub(super) struct Targets {
    data: u64,
    data_fh: u64,
    entries: u64,
    entries_fh: u64,
    /// A directory with as many entries, which are looked up by listing it only.
    fresh: u64,
    made: u64,
}

/// What the requests of one slot found out.
#[derive(Clone, Default)]
pub(super) struct SlotState {
    nodeid: u64,
    fh: u64,
    is_renamed: bool,
    /// The inodes that the last READDIRPLUS has found.
    listed: Vec<u64>,
}

impl Targets {
    /// Looks the files up and opens them.
    pub(super) fn open(session: &mut Session<Queue>) -> anyhow::Result<Self> {
        let data = session.lookup(ROOT, b"data")?.nodeid.get();
        let data_fh = session.open(data, libc::O_RDWR as u32)?;
        let entries = session.lookup(ROOT, b"entries")?.nodeid.get();
        let entries_fh = session.opendir(entries)?;
        let fresh = session.lookup(ROOT, b"fresh")?.nodeid.get();
        let made = session.lookup(ROOT, b"made")?.nodeid.get();
        Ok(Self { data, data_fh, entries, entries_fh, fresh, made })
    }

    /// Returns the same targets with another file for data, which is open as `fh`.
    pub(super) fn with_data(&self, data: u64, fh: u64) -> Self {
        Self { data, data_fh: fh, ..*self }
    }

    /// Returns the request of `step` for slot number `slot`.
    pub(super) fn request(&self, step: Step, slot: u16, state: &SlotState) -> Request {
        let entry = size_of::<EntryOut>();
        let name = name("made", slot);
        match step {
            Step::Getattr => {
                request(Opcode::Getattr, self.data, GetattrIn::new_zeroed().as_bytes(), size_of::<AttrOut>())
            }
            Step::Lookup => request(Opcode::Lookup, ROOT, b"data\0", entry),
            Step::LookupAbsent => failing(request(Opcode::Lookup, ROOT, b"absent\0", entry)),
            Step::Open => open(Opcode::Open, self.data),
            Step::ReleaseOpened => release(Opcode::Release, self.data, state.fh),
            Step::Read { len } => {
                let args = ReadIn { fh: self.data_fh.into(), size: len.into(), ..ReadIn::new_zeroed() };
                request(Opcode::Read, self.data, args.as_bytes(), len as usize)
            }
            Step::Write { len } => {
                let args = WriteIn { fh: self.data_fh.into(), size: len.into(), ..WriteIn::new_zeroed() };
                let request = request(Opcode::Write, self.data, args.as_bytes(), size_of::<WriteOut>());
                Request { data_len: len as usize, ..request }
            }
            Step::Readdir => read_directory(Opcode::Readdir, self.entries, self.entries_fh),
            Step::Readdirplus => read_directory(Opcode::Readdirplus, self.entries, self.entries_fh),
            Step::Opendir => open(Opcode::Opendir, self.fresh),
            Step::ReaddirplusOpened => read_directory(Opcode::Readdirplus, self.fresh, state.fh),
            Step::Releasedir => release(Opcode::Releasedir, self.fresh, state.fh),
            Step::ForgetListed => forget_all(&state.listed),
            Step::Statfs => request(Opcode::Statfs, ROOT, &[], size_of::<StatfsOut>()),
            Step::Getxattr => {
                const ROOM: u32 = 24;
                let args = GetxattrIn { size: ROOM.into(), padding: 0.into() };
                let args = [args.as_bytes(), b"security.capability\0"].concat();
                failing(request(Opcode::Getxattr, self.data, &args, ROOM as usize))
            }
            Step::Create => {
                let flags = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) as u32;
                let args =
                    CreateIn { flags: flags.into(), mode: REGULAR.into(), umask: 0o022.into(), open_flags: 0.into() };
                let args = [args.as_bytes(), &name].concat();
                request(Opcode::Create, self.made, &args, entry + size_of::<OpenOut>())
            }
            Step::Release => release(Opcode::Release, state.nodeid, state.fh),
            Step::Unlink => request(Opcode::Unlink, self.made, &name, 0),
            Step::Forget => {
                let args = ForgetIn { nlookup: 1.into() };
                Request { is_answered: false, ..request(Opcode::Forget, state.nodeid, args.as_bytes(), 0) }
            }
            Step::Mkdir => {
                let args = MkdirIn { mode: 0o755.into(), umask: 0o022.into() };
                request(Opcode::Mkdir, self.made, &[args.as_bytes(), &name].concat(), entry)
            }
            Step::Rmdir => request(Opcode::Rmdir, self.made, &name, 0),
            Step::Rename => self.rename(slot, state),
            Step::Setattr => {
                let valid = SetattrValid::MODE.bits().into();
                let args = SetattrIn { valid, mode: REGULAR.into(), ..SetattrIn::new_zeroed() };
                request(Opcode::Setattr, self.data, args.as_bytes(), size_of::<AttrOut>())
            }
            Step::Flush => {
                let args = FlushIn { fh: self.data_fh.into(), ..FlushIn::new_zeroed() };
                request(Opcode::Flush, self.data, args.as_bytes(), 0)
            }
            Step::Fsync => {
                let args = FsyncIn { fh: self.data_fh.into(), ..FsyncIn::new_zeroed() };
                request(Opcode::Fsync, self.data, args.as_bytes(), 0)
            }
        }
    }

    fn rename(&self, slot: u16, state: &SlotState) -> Request {
        let names = [name("made", slot), name("also", slot)];
        let (from, to) = (&names[usize::from(state.is_renamed)], &names[usize::from(!state.is_renamed)]);
        let args = RenameIn { newdir: self.made.into() };
        request(Opcode::Rename, self.made, &[args.as_bytes(), from, to].concat(), 0)
    }
}

impl SlotState {
    /// Takes in the payload of the reply to `step`.
    pub(super) fn take_in(&mut self, step: Step, payload: &[u8]) {
        match step {
            Step::Open | Step::Opendir => {
                if let Ok((open, _)) = OpenOut::read_from_prefix(payload) {
                    self.fh = open.fh.get();
                }
            }
            Step::ReaddirplusOpened => self.listed = listed(payload),
            Step::Create | Step::Mkdir => {
                if let Ok((entry, rest)) = EntryOut::read_from_prefix(payload) {
                    self.nodeid = entry.nodeid.get();
                    self.fh = OpenOut::read_from_prefix(rest).map_or(0, |(open, _)| open.fh.get());
                }
            }
            Step::Rename => self.is_renamed = !self.is_renamed,
            _ => {}
        }
    }
}

/// Names of one length for all slots.
fn name(prefix: &str, slot: u16) -> Vec<u8> {
    format!("{prefix}{slot:02}\0").into_bytes()
}

fn request(opcode: Opcode, nodeid: u64, args: &[u8], room: usize) -> Request {
    Request { opcode, nodeid, args: args.to_vec(), data_len: 0, room, is_answered: true, may_fail: false }
}

fn failing(request: Request) -> Request {
    Request { may_fail: true, ..request }
}

fn read_directory(opcode: Opcode, nodeid: u64, fh: u64) -> Request {
    let args = ReadIn { fh: fh.into(), size: DIRECTORY_LEN.into(), ..ReadIn::new_zeroed() };
    request(opcode, nodeid, args.as_bytes(), DIRECTORY_LEN as usize)
}

/// Returns the inodes in a reply to READDIRPLUS.
fn listed(mut payload: &[u8]) -> Vec<u64> {
    let mut nodeids = Vec::new();
    while let Ok((found, _)) = DirentPlus::read_from_prefix(payload) {
        nodeids.extend(Some(found.entry.nodeid.get()).filter(|nodeid| *nodeid != 0));
        let len = padded_len(size_of::<DirentPlus>(), found.dirent.namelen.get() as usize);
        payload = payload.get(len..).unwrap_or_default();
    }
    nodeids
}

/// Returns the request that forgets one lookup of each inode.
fn forget_all(nodeids: &[u64]) -> Request {
    let head = BatchForgetIn { count: (nodeids.len() as u32).into(), dummy: 0.into() };
    let one = |nodeid: &u64| ForgetOne { nodeid: (*nodeid).into(), nlookup: 1.into() };
    let list: Vec<ForgetOne> = nodeids.iter().map(one).collect();
    let args = [head.as_bytes(), list.as_bytes()].concat();
    Request { is_answered: false, ..request(Opcode::BatchForget, 0, &args, 0) }
}

/// Returns a request that opens a file or a directory.
fn open(opcode: Opcode, nodeid: u64) -> Request {
    let args = OpenIn { flags: (libc::O_RDONLY as u32).into(), open_flags: 0.into() };
    request(opcode, nodeid, args.as_bytes(), size_of::<OpenOut>())
}

/// Returns a request that closes one.
fn release(opcode: Opcode, nodeid: u64, fh: u64) -> Request {
    let args = ReleaseIn { fh: fh.into(), ..ReleaseIn::new_zeroed() };
    request(opcode, nodeid, args.as_bytes(), 0)
}
