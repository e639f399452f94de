//! The repeated operations of a thread, through the library's session or by system calls on the bare directory.

use std::{
    fs::File,
    hint::black_box,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::Path,
};

use anyhow::Context as _;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use transom_user::{
    guest::{
        cache::{CacheMode, CacheOptions},
        channel::{Channel as _, Sink, Source},
        dma::DmaBuffer,
        fs::{self as library, Fs},
        session::{Caller, Session, SessionConfig},
    },
    platform::Process,
    share::Share,
};
use transom_wire::{Handle, Name, NodeId, linux::O_RDWR, ops::write::WriteFlags};

use super::DATA_BYTES;

/// The file that is read and written.
pub(super) const DATA: &str = "data";
/// A path of four names whose file is cached.
pub(super) const WARM: &str = "a/b/c/warm";
/// The part of the file that is cached; small enough to stay so.
pub(super) const WARM_BYTES: usize = 16 << 20;
const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;

/// The operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Operation {
    /// Attributes of an open file.
    Getattr,
    /// A name looked up and forgotten.
    Lookup,
    /// 4 KiB at a random offset, into ordinary memory.
    #[value(name = "read_4k")]
    Read4k,
    /// 4 KiB at a random offset, from ordinary memory.
    #[value(name = "write_4k")]
    Write4k,
    /// 4 KiB at a random offset, into memory that the daemon shares.
    #[value(name = "read_4k_shared")]
    Read4kShared,
    /// 4 KiB at a random offset, from memory that the daemon shares.
    #[value(name = "write_4k_shared")]
    Write4kShared,
    /// 1 MiB, sequential, into memory that the daemon shares.
    #[value(name = "read_1m")]
    Read1m,
    /// 1 MiB, sequential, from memory that the daemon shares.
    #[value(name = "write_1m")]
    Write1m,
    /// 1 MiB, sequential, into ordinary memory.
    #[value(name = "read_1m_copied")]
    Read1mCopied,
    /// Create, close, remove and forget a file.
    CreateUnlink,
    /// Attributes of a path of four names, all cached by the library.
    StatWarm,
    /// 4 KiB at a random offset, cached by the library; on the host, a copy from memory.
    #[value(name = "read_4k_warm")]
    Read4kWarm,
}

impl Operation {
    /// Returns the name used in the tables.
    pub fn name(self) -> String {
        crate::name_of(&self)
    }

    /// Returns the number of operations in a burst of some tens of milliseconds.
    pub(super) fn burst_len(self) -> u32 {
        match self {
            Self::Read1m | Self::Write1m | Self::Read1mCopied => 200,
            Self::CreateUnlink => 1500,
            Self::StatWarm | Self::Read4kWarm => 40_000,
            _ => 4000,
        }
    }

    /// Returns the number of bytes that the operation moves.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Read4k | Self::Write4k | Self::Read4kShared | Self::Write4kShared | Self::Read4kWarm => SMALL,
            Self::Read1m | Self::Write1m | Self::Read1mCopied => LARGE,
            Self::Getattr | Self::Lookup | Self::CreateUnlink | Self::StatWarm => 0,
        }
    }
}

/// The file system under test.
pub(crate) trait Subject: Send + Sync {
    /// Returns the worker that does `operation` in thread `number`.
    fn worker(&self, operation: Operation, number: u16) -> anyhow::Result<Box<dyn Worker + '_>>;
}

/// The work of one thread.
pub(crate) trait Worker {
    /// Performs the operation once.
    fn once(&mut self) -> anyhow::Result<()>;
}

/// Generates the offsets to access.
struct Offsets {
    random: fastrand::Rng,
    next: u64,
    bytes: u64,
}

impl Offsets {
    fn new(operation: Operation, number: u16) -> Self {
        let bytes = operation.bytes().max(1) as u64;
        let next = u64::from(number) * 4 * bytes % DATA_BYTES;
        Self { random: fastrand::Rng::with_seed(number.into()), next, bytes }
    }

    fn next(&mut self) -> u64 {
        let blocks = DATA_BYTES / self.bytes;
        if self.bytes == SMALL as u64 {
            return self.random.u64(..blocks) * self.bytes;
        }
        let at = self.next;
        self.next = (self.next + self.bytes) % DATA_BYTES;
        at
    }
}

/// Returns the name of a file that only thread `number` creates.
fn name_of(number: u16) -> String {
    format!("made{number}")
}

/// The library, with one session for all threads.
pub(crate) struct ThroughLibrary {
    // Dropped first, because it ends the session over the device.
    warm: library::File<Process>,
    fs: Fs<Process>,
    mount: Share,
    node: NodeId,
    fh: Handle,
}

impl ThroughLibrary {
    pub(crate) fn new(mount: Share) -> anyhow::Result<Self> {
        let options = CacheOptions { mode: CacheMode::Always, ..CacheOptions::default() };
        let fs = Fs::mount(mount.session(SessionConfig::default())?, options);
        let caller = Caller::default();
        let data = Name::new(DATA.as_bytes()).expect("the name is one");
        let session = fs.volume().session();
        let node = session.lookup(&caller, NodeId::ROOT, data)?.nodeid.into();
        let fh = session.open(&caller, node, O_RDWR)?.fh.into();
        let warm = fs.open_read(WARM)?;
        let mut bytes = vec![0; LARGE];
        for at in (0..WARM_BYTES).step_by(LARGE) {
            warm.read_at(at as u64, &mut bytes)?;
        }
        Ok(Self { warm, fs, mount, node, fh })
    }
}

impl ThroughLibrary {
    fn session(&self) -> &Session<Process> {
        self.fs.volume().session()
    }
}

impl Subject for ThroughLibrary {
    fn worker(&self, operation: Operation, number: u16) -> anyhow::Result<Box<dyn Worker + '_>> {
        let buffer = self.mount.device().buffer(operation.bytes().max(1)).context("a buffer")?;
        Ok(Box::new(LibraryWorker {
            library: self,
            fs: self.fs.with_queue(number),
            caller: Caller { queue: number, ..Caller::default() },
            operation,
            offsets: Offsets::new(operation, number),
            name: name_of(number),
            bytes: vec![0x42; operation.bytes()],
            buffer,
        }))
    }
}

struct LibraryWorker<'a> {
    library: &'a ThroughLibrary,
    fs: Fs<Process>,
    caller: Caller<'static>,
    operation: Operation,
    offsets: Offsets,
    name: String,
    bytes: Vec<u8>,
    buffer: DmaBuffer,
}

impl LibraryWorker<'_> {
    fn read(&mut self, is_copied: bool) -> anyhow::Result<()> {
        let ThroughLibrary { node, fh, .. } = self.library;
        let session = self.library.session();
        let at = self.offsets.next();
        let sink = match is_copied {
            true => Sink::Bytes(&mut self.bytes),
            false => Sink::Buffer(&self.buffer, 0, self.operation.bytes()),
        };
        let read = session.read(&self.caller, *node, *fh, O_RDWR, at, sink)?;
        anyhow::ensure!(read == self.operation.bytes(), "{read} bytes at {at}");
        Ok(())
    }

    fn write(&mut self, is_copied: bool) -> anyhow::Result<()> {
        let ThroughLibrary { node, fh, .. } = self.library;
        let session = self.library.session();
        let at = self.offsets.next();
        let source = match is_copied {
            true => Source::Bytes(&self.bytes),
            false => Source::Buffer(&self.buffer, 0, self.operation.bytes()),
        };
        let written = session.write(&self.caller, *node, *fh, O_RDWR, WriteFlags::empty(), at, source)?;
        anyhow::ensure!(written == self.operation.bytes(), "{written} bytes at {at}");
        Ok(())
    }
}

impl Worker for LibraryWorker<'_> {
    fn once(&mut self) -> anyhow::Result<()> {
        let ThroughLibrary { node, fh, .. } = self.library;
        let session = self.library.session();
        match self.operation {
            Operation::Getattr => {
                session.getattr(&self.caller, *node, Some(*fh))?;
            }
            Operation::Lookup => {
                let name = Name::new(DATA.as_bytes()).expect("the name is one");
                let entry = session.lookup(&self.caller, NodeId::ROOT, name)?;
                session.forget(entry.nodeid.into(), 1);
            }
            Operation::Read4k | Operation::Read1mCopied => self.read(true)?,
            Operation::Write4k => self.write(true)?,
            Operation::Read4kShared | Operation::Read1m => self.read(false)?,
            Operation::Write4kShared | Operation::Write1m => self.write(false)?,
            Operation::CreateUnlink => {
                let name = Name::new(self.name.as_bytes()).expect("the name is one");
                let (entry, open) = session.create(&self.caller, NodeId::ROOT, name, 0o644, O_RDWR)?;
                session.release(&self.caller, entry.nodeid.into(), open.fh.into(), O_RDWR, 0, 0)?;
                session.unlink(&self.caller, NodeId::ROOT, name)?;
                session.forget(entry.nodeid.into(), 1);
            }
            Operation::StatWarm => {
                self.fs.metadata(WARM)?;
            }
            Operation::Read4kWarm => {
                let at = self.offsets.next() % WARM_BYTES as u64;
                let read = self.library.warm.read_at(at, &mut self.bytes)?;
                anyhow::ensure!(read == SMALL, "{read} bytes at {at}");
            }
        }
        Ok(())
    }
}

/// The bare directory.
pub(super) struct OnHost {
    dir: OwnedFd,
    file: File,
    warm: Vec<u8>,
}

impl OnHost {
    pub(super) fn new(shared: &Path) -> anyhow::Result<Self> {
        let file = File::options().read(true).write(true).open(shared.join(DATA))?;
        let warm = std::fs::read(shared.join(WARM))?;
        Ok(Self { dir: File::open(shared)?.into(), file, warm })
    }
}

impl Subject for OnHost {
    fn worker(&self, operation: Operation, number: u16) -> anyhow::Result<Box<dyn Worker + '_>> {
        Ok(Box::new(HostWorker {
            host: self,
            operation,
            offsets: Offsets::new(operation, number),
            name: name_of(number),
            bytes: vec![0x42; operation.bytes()],
        }))
    }
}

struct HostWorker<'a> {
    host: &'a OnHost,
    operation: Operation,
    offsets: Offsets,
    name: String,
    bytes: Vec<u8>,
}

impl Worker for HostWorker<'_> {
    fn once(&mut self) -> anyhow::Result<()> {
        let OnHost { dir, file, warm } = self.host;
        match self.operation {
            Operation::Getattr => {
                rustix::fs::fstat(file)?;
            }
            Operation::Lookup => {
                statat(dir, DATA, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Operation::Read4k | Operation::Read4kShared | Operation::Read1m | Operation::Read1mCopied => {
                file.read_exact_at(&mut self.bytes, self.offsets.next())?;
            }
            Operation::Write4k | Operation::Write4kShared | Operation::Write1m => {
                file.write_all_at(&self.bytes, self.offsets.next())?
            }
            Operation::CreateUnlink => {
                let mode = Mode::from_raw_mode(0o644);
                drop(openat(dir, &self.name, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, mode)?);
                unlinkat(dir, &self.name, AtFlags::empty())?;
            }
            Operation::StatWarm => {
                statat(dir, WARM, AtFlags::empty())?;
            }
            Operation::Read4kWarm => {
                let at = self.offsets.next() as usize % WARM_BYTES;
                self.bytes.copy_from_slice(black_box(&warm[at..][..SMALL]));
                black_box(&mut self.bytes);
            }
        }
        Ok(())
    }
}
