//! A window that loads from and stores to the host's files, and the requests that map them.
//!
//! An access to an unmapped place ends the test.

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    os::unix::fs::FileExt as _,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tempfile::TempDir;
use transom_guest::{
    Errno, Platform,
    cache::{CacheMode, CacheOptions},
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Ticket},
    dax::{Dax, DaxOptions, RANGE_LEN, WindowMemory},
    dma::{DmaBuffer, DmaError},
    fs::Fs,
    memory::{IoSlice, IoSliceMut},
    platform::Held,
    session::{Session, SessionConfig},
    transport::ShmRegion,
    volume::Volume,
};
use transom_host::passthrough::{CachePolicy, Config, Passthrough};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    ops::{
        init::{InitFlags, InitOut},
        removemapping::{RemovemappingIn, RemovemappingOne},
        setupmapping::{SETUPMAPPING_WRITE, SetupmappingIn},
    },
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::peer::{Peer, Spin};

/// A platform without threads whose clock advances by a millisecond whenever it is read.
#[derive(Default)]
pub(crate) struct Ticking(AtomicU64);

impl Platform for Ticking {
    type RawMutex = parking_lot::RawMutex;
    type Event = Spin;

    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1_000_000, Ordering::Relaxed)
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn with_held(check: impl FnOnce(&Held)) {
        thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

/// What is mapped at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) node: u64,
    pub(crate) index: u64,
    pub(crate) is_writable: bool,
}

/// The window, and what may be mapped there.
pub(crate) struct FakeWindow {
    ranges: u64,
    pub(crate) mappings: Mutex<HashMap<u64, Mapping>>,
    /// The one file: every regular file of the share has its contents.
    file: File,
    /// Number of requested mappings.
    asked: AtomicU64,
    /// Every n-th request fails; 0 for none.
    pub(crate) fails_each: AtomicU64,
    /// The error with which they fail.
    pub(crate) error: Mutex<i32>,
    /// The host's pages of the file that were touched.
    pub(crate) touched: Mutex<BTreeSet<u64>>,
}

impl FakeWindow {
    fn answer(&self, opcode: u32, head: &[u8]) -> Option<i32> {
        let (header, body) = InHeader::ref_from_prefix(head).unwrap();
        if opcode == Opcode::Setupmapping as u32 {
            let arg = SetupmappingIn::read_from_bytes(body).unwrap();
            assert_eq!((arg.len.get(), arg.fh.get()), (RANGE_LEN, u64::MAX));
            assert!(arg.moffset.get() / RANGE_LEN < self.ranges && arg.moffset.get() % RANGE_LEN == 0);
            assert_eq!(arg.foffset.get() % RANGE_LEN, 0);
            let (asked, each) = (self.asked.fetch_add(1, Ordering::Relaxed), self.fails_each.load(Ordering::Relaxed));
            if each > 0 && asked % each == each - 1 {
                return Some(-*self.error.lock().unwrap());
            }
            let is_writable = arg.flags.get() & SETUPMAPPING_WRITE != 0;
            let mapping = Mapping { node: header.nodeid.get(), index: arg.foffset.get() / RANGE_LEN, is_writable };
            self.mappings.lock().unwrap().insert(arg.moffset.get() / RANGE_LEN, mapping);
            return Some(0);
        }
        if opcode != Opcode::Removemapping as u32 {
            return None;
        }
        let (arg, mut rest) = RemovemappingIn::ref_from_prefix(body).unwrap();
        for _ in 0..arg.count.get() {
            let (one, others) = RemovemappingOne::ref_from_prefix(rest).unwrap();
            let was = self.mappings.lock().unwrap().remove(&(one.moffset.get() / RANGE_LEN));
            assert!(was.is_none_or(|was| was.node == header.nodeid.get()), "another's mapping is removed");
            rest = others;
        }
        assert!(rest.is_empty());
        Some(0)
    }

    fn place(&self, offset: u64, len: usize, is_write: bool) -> Result<u64, Errno> {
        let mapping = self.mappings.lock().unwrap().get(&(offset / RANGE_LEN)).copied().expect("it is mapped");
        assert!(mapping.is_writable || !is_write, "a store to what is mapped for loads");
        let at = mapping.index * RANGE_LEN + offset % RANGE_LEN;
        // As in memory: the last page of a file is complete, and nothing follows it.
        let pages_end = self.file.metadata().unwrap().len().next_multiple_of(4096);
        if at + len as u64 > pages_end { Err(Errno::FAULT) } else { Ok(at) }
    }
}

impl WindowMemory for FakeWindow {
    fn len_bytes(&self) -> u64 {
        self.ranges * RANGE_LEN + 4096
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::dangling()
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let at = self.place(offset, bytes.len(), false)?;
        bytes.fill(0);
        let _ = self.file.read_at(bytes, at).unwrap();
        Ok(())
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let at = self.place(offset, bytes.len(), true)?;
        let inside = self.file.metadata().unwrap().len().saturating_sub(at).min(bytes.len() as u64);
        self.file.write_all_at(&bytes[..inside as usize], at).unwrap();
        Ok(())
    }

    fn load_into(&self, offset: u64, to: IoSliceMut<'_>) -> Result<(), Errno> {
        let mut bytes = vec![0; to.len()];
        self.load(offset, &mut bytes)?;
        IoSlice::new(&bytes).copy_to(to);
        Ok(())
    }

    fn store_from(&self, offset: u64, from: IoSlice<'_>) -> Result<(), Errno> {
        let mut bytes = vec![0; from.len()];
        from.copy_to(IoSliceMut::new(&mut bytes));
        self.store(offset, &bytes)
    }

    fn touch(&self, offset: u64) -> Result<(), Errno> {
        let at = self.place(offset, 1, true)?;
        self.touched.lock().unwrap().insert(at / 4096);
        Ok(())
    }
}

/// A server and its window.
struct Windowed {
    peer: Arc<Peer<Passthrough>>,
    window: Arc<FakeWindow>,
}

impl Channel for Windowed {
    fn request_queues(&self) -> u16 {
        self.peer.request_queues()
    }

    fn data_len_max(&self) -> usize {
        self.peer.data_len_max()
    }

    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        let (header, _) = InHeader::ref_from_prefix(message.head).unwrap();
        let (opcode, unique) = (header.opcode.get(), header.unique);
        if let Some(error) = self.window.answer(opcode, message.head) {
            let reply = OutHeader { len: 16.into(), error: error.into(), unique };
            message.reply_head[..16].copy_from_slice(reply.as_bytes());
            return Ok(16);
        }
        let Message { head, data, reply_head, reply_data } = message;
        let written = self.peer.call(queue, Message { head, data, reply_head: &mut *reply_head, reply_data })?;
        if opcode == Opcode::Init as u32 {
            let out = InitOut::mut_from_bytes(&mut reply_head[16..]).unwrap();
            out.flags = (out.flags.get() | InitFlags::MAP_ALIGNMENT.bits() as u32).into();
            out.map_alignment = 21.into();
        }
        Ok(written)
    }

    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError> {
        self.peer.start(queue, message)
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        self.peer.finish(ticket)
    }

    fn is_finished(&self, ticket: &Ticket) -> bool {
        self.peer.is_finished(ticket)
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.peer.send_priority(message)
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        self.peer.buffer(len_bytes)
    }

    fn shm_region(&self, _: u8) -> Option<ShmRegion> {
        None
    }
}

/// Creates a share with one file, `file`, that is mapped through a window of `ranges` ranges.
pub(crate) fn share(ranges: u64) -> (TempDir, Arc<FakeWindow>, Fs<Ticking>) {
    let (dir, window, fs, _) = share_with_peer(ranges);
    (dir, window, fs)
}

/// As [`share`], and returns the server.
pub(crate) fn share_with_peer(ranges: u64) -> (TempDir, Arc<FakeWindow>, Fs<Ticking>, Arc<Peer<Passthrough>>) {
    share_on(Arc::default(), ranges)
}

/// As [`share_with_peer`], on any platform.
pub(crate) fn share_on<P: Platform>(
    platform: Arc<P>,
    ranges: u64,
) -> (TempDir, Arc<FakeWindow>, Fs<P>, Arc<Peer<Passthrough>>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let window = Arc::new(FakeWindow {
        ranges,
        mappings: Mutex::default(),
        file,
        asked: AtomicU64::new(0),
        fails_each: AtomicU64::new(0),
        error: Mutex::new(Errno::NOMEM.raw()),
        touched: Mutex::default(),
    });
    let config = Config { cache: CachePolicy::Auto, ..Config::default() };
    let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
    let channel = Arc::new(Windowed { peer: Arc::clone(&peer), window: Arc::clone(&window) });
    let session_config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT);
    let session = Session::begin(channel, platform, session_config).unwrap();
    let options = CacheOptions { mode: CacheMode::Auto, ..CacheOptions::default() };
    let dax = DaxOptions { dax: Dax::Always, size_min_bytes: 0 };
    let memory = Arc::clone(&window) as Arc<dyn WindowMemory>;
    (dir, window, Fs::new(Arc::new(Volume::with_window(session, options, memory, dax))), peer)
}
