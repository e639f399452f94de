//! The driver's requests: for each operation, the sequence of requests on one slot.

use transom_frontend::{fuse::Session, queue::Queue};
use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    ops::{
        create::CreateIn,
        forget::ForgetIn,
        getattr::GetattrIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        write::{WriteIn, WriteOut},
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The repeated operation. The rate counts requests, of which some operations have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Operation {
    /// Attributes of a file.
    Getattr,
    /// A name that exists.
    Lookup,
    /// A name that does not exist.
    LookupAbsent,
    /// OPEN, RELEASE.
    OpenRelease,
    /// 4 KiB at a random offset.
    #[value(name = "read_4k")]
    Read4k,
    /// 4 KiB at a random offset.
    #[value(name = "write_4k")]
    Write4k,
    /// 1 MiB, sequential.
    #[value(name = "read_1m")]
    Read1m,
    /// 1 MiB, sequential.
    #[value(name = "write_1m")]
    Write1m,
    /// 32 entries with attributes.
    #[value(name = "readdirplus_32")]
    Readdirplus,
    /// CREATE, RELEASE, UNLINK, FORGET.
    CreateUnlink,
}

impl Operation {
    /// Returns the name used in the tables.
    pub fn name(self) -> String {
        crate::name_of(&self)
    }

    /// Returns the number of requests in a burst of some tens of milliseconds.
    pub(super) fn burst_len(self) -> u32 {
        match self {
            Self::Read1m | Self::Write1m => 200,
            Self::Readdirplus => 500,
            _ => 4000,
        }
    }

    /// Returns the buffers of a request.
    pub(super) fn shape(self) -> Shape {
        match self {
            Self::Read4k => Shape { data_in: 0, data_out: 4 << 10 },
            Self::Write4k => Shape { data_in: 4 << 10, data_out: 0 },
            Self::Read1m => Shape { data_in: 0, data_out: 1 << 20 },
            Self::Write1m => Shape { data_in: 1 << 20, data_out: 0 },
            // As Linux asks: a page.
            Self::Readdirplus => Shape { data_in: 0, data_out: 8 << 10 },
            _ => Shape { data_in: 0, data_out: 0 },
        }
    }
}

/// The data of requests, besides arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes to the daemon.
    pub(crate) data_in: usize,
    /// Bytes from the daemon.
    pub(crate) data_out: usize,
}

impl Shape {
    pub(super) fn data_bytes(self) -> usize {
        self.data_in.max(self.data_out)
    }
}

/// A request without its header.
pub(crate) struct Request {
    pub(crate) opcode: Opcode,
    pub(crate) nodeid: u64,
    pub(crate) args: Vec<u8>,
    /// Whether the request carries the shape's data, in either direction.
    pub(crate) has_data: bool,
    /// Room for the reply's payload if it is not data, in bytes.
    pub(crate) room: usize,
    pub(crate) is_answered: bool,
    pub(crate) expected_error: i32,
}

impl Request {
    pub(crate) fn new(opcode: Opcode, nodeid: u64, args: Vec<u8>, room: usize) -> Self {
        Self { opcode, nodeid, args, has_data: false, room, is_answered: true, expected_error: 0 }
    }
}

/// The inodes that requests refer to.
pub(super) struct Targets {
    data: u64,
    data_fh: u64,
    data_bytes: u64,
    entries: u64,
    entries_fh: u64,
    made: u64,
    owner: String,
}

/// The mode, with type, of created files.
const REGULAR: u32 = 0o100_644;
const ROOT: u64 = 1;

impl Targets {
    /// Looks up and opens the targets. `owner` distinguishes the files of several drivers in one directory.
    pub(super) fn open(session: &mut Session<Queue>, owner: &str, data_bytes: u64) -> anyhow::Result<Self> {
        let data = session.lookup(ROOT, b"data")?.nodeid.get();
        let data_fh = session.open(data, libc::O_RDWR as u32)?;
        let entries = session.lookup(ROOT, b"entries")?.nodeid.get();
        let entries_fh = session.opendir(entries)?;
        let made = session.lookup(ROOT, b"made")?.nodeid.get();
        Ok(Self { data, data_fh, data_bytes, entries, entries_fh, made, owner: owner.to_owned() })
    }

    /// Returns the script of `operation` for one slot.
    pub(super) fn script(&self, operation: Operation, slot: u16) -> Script {
        Script {
            operation,
            data: self.data,
            data_fh: self.data_fh,
            data_bytes: self.data_bytes,
            entries: self.entries,
            entries_fh: self.entries_fh,
            dir: self.made,
            name: format!("{}-{slot}\0", self.owner).into_bytes(),
            random: fastrand::Rng::with_seed(u64::from(slot)),
            step: 0,
            position: 0,
            made: None,
        }
    }
}

/// A sequence of requests.
pub(crate) trait Requests {
    /// Returns the next request. `reply` is the payload of the previous reply.
    fn next(&mut self, reply: &[u8]) -> Request;

    /// Processes the last reply. A burst may end in the middle of a script, which the next burst continues.
    fn end(&mut self, reply: &[u8]);
}

/// The sequence of requests on one slot.
pub(super) struct Script {
    operation: Operation,
    data: u64,
    data_fh: u64,
    data_bytes: u64,
    entries: u64,
    entries_fh: u64,
    dir: u64,
    name: Vec<u8>,
    random: fastrand::Rng,
    step: u32,
    position: u64,
    /// Inode and handle that the script created or opened.
    made: Option<(u64, u64)>,
}

impl Requests for Script {
    fn next(&mut self, reply: &[u8]) -> Request {
        self.take_in(reply);
        match self.operation {
            Operation::Getattr => Request::new(
                Opcode::Getattr,
                self.data,
                GetattrIn::new_zeroed().as_bytes().to_vec(),
                size_of::<AttrOut>(),
            ),
            Operation::Lookup => Request::new(Opcode::Lookup, ROOT, b"data\0".to_vec(), size_of::<EntryOut>()),
            Operation::LookupAbsent => Request {
                expected_error: -libc::ENOENT,
                ..Request::new(Opcode::Lookup, ROOT, b"absent\0".to_vec(), size_of::<EntryOut>())
            },
            Operation::OpenRelease => self.open_release(),
            Operation::Read4k => self.read(4 << 10, true),
            Operation::Read1m => self.read(1 << 20, false),
            Operation::Write4k => self.write(4 << 10, true),
            Operation::Write1m => self.write(1 << 20, false),
            Operation::Readdirplus => {
                let args = ReadIn { fh: self.entries_fh.into(), size: (8 << 10).into(), ..ReadIn::new_zeroed() };
                let request = Request::new(Opcode::Readdirplus, self.entries, args.as_bytes().to_vec(), 0);
                Request { has_data: true, ..request }
            }
            Operation::CreateUnlink => self.create_unlink(),
        }
    }

    fn end(&mut self, reply: &[u8]) {
        self.take_in(reply);
    }
}

impl Script {
    fn take_in(&mut self, reply: &[u8]) {
        match (self.operation, self.step) {
            (Operation::OpenRelease, 1) => {
                if let Ok((open, _)) = OpenOut::read_from_prefix(reply) {
                    self.made = Some((self.data, open.fh.get()));
                }
            }
            (Operation::CreateUnlink, 1) => {
                if let Ok((entry, rest)) = EntryOut::read_from_prefix(reply)
                    && let Ok((open, _)) = OpenOut::read_from_prefix(rest)
                {
                    self.made = Some((entry.nodeid.get(), open.fh.get()));
                }
            }
            _ => {}
        }
    }

    fn open_release(&mut self) -> Request {
        let step = self.advance(2);
        match (step, self.made) {
            (1, Some((nodeid, fh))) => release(nodeid, fh),
            _ => {
                self.step = 1;
                let args = OpenIn { flags: (libc::O_RDONLY as u32).into(), open_flags: 0.into() };
                Request::new(Opcode::Open, self.data, args.as_bytes().to_vec(), size_of::<OpenOut>())
            }
        }
    }

    fn create_unlink(&mut self) -> Request {
        let step = self.advance(4);
        match (step, self.made) {
            (1, Some((nodeid, fh))) => release(nodeid, fh),
            (2, _) => Request::new(Opcode::Unlink, self.dir, self.name.clone(), 0),
            (3, Some((nodeid, _))) => Request {
                is_answered: false,
                ..Request::new(Opcode::Forget, nodeid, ForgetIn { nlookup: 1.into() }.as_bytes().to_vec(), 0)
            },
            _ => {
                self.step = 1;
                let flags = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) as u32;
                let args =
                    CreateIn { flags: flags.into(), mode: REGULAR.into(), umask: 0o022.into(), open_flags: 0.into() };
                let args = [args.as_bytes(), &self.name].concat();
                Request::new(Opcode::Create, self.dir, args, size_of::<EntryOut>() + size_of::<OpenOut>())
            }
        }
    }

    /// Returns the current step out of `steps`, and advances.
    fn advance(&mut self, steps: u32) -> u32 {
        let step = self.step;
        self.step = (step + 1) % steps;
        step
    }

    fn read(&mut self, size: u32, is_random: bool) -> Request {
        let offset = self.offset(size, is_random);
        let args = ReadIn { fh: self.data_fh.into(), offset: offset.into(), size: size.into(), ..ReadIn::new_zeroed() };
        Request { has_data: true, ..Request::new(Opcode::Read, self.data, args.as_bytes().to_vec(), 0) }
    }

    fn write(&mut self, size: u32, is_random: bool) -> Request {
        let offset = self.offset(size, is_random);
        let args =
            WriteIn { fh: self.data_fh.into(), offset: offset.into(), size: size.into(), ..WriteIn::new_zeroed() };
        let room = size_of::<WriteOut>();
        Request { has_data: true, ..Request::new(Opcode::Write, self.data, args.as_bytes().to_vec(), room) }
    }

    fn offset(&mut self, size: u32, is_random: bool) -> u64 {
        let blocks = self.data_bytes / u64::from(size);
        self.position = if is_random { self.random.u64(0..blocks) } else { (self.position + 1) % blocks };
        self.position * u64::from(size)
    }
}

fn release(nodeid: u64, fh: u64) -> Request {
    let args = ReleaseIn { fh: fh.into(), ..ReleaseIn::new_zeroed() };
    Request::new(Opcode::Release, nodeid, args.as_bytes().to_vec(), 0)
}
