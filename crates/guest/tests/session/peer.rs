//! A server in the same process as a [`Channel`], and a [`Platform`] for tests.
//!
//! [`Peer`] hands each message to a server at once, in the thread that sends it; it can fail the n-th message.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use transom_conformance::memfs::MemFs;
use transom_guest::{
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Sink, Source, Ticket},
    dma::{DmaBuffer, DmaError, DmaOps},
    platform::{self, Held, Platform},
    session::{Caller, Session, SessionConfig},
    transport::ShmRegion,
};
use transom_host::server::{BlockingMode, FileSystem, GuestSlice, Scratch, ServeOutcome, Server};
use transom_wire::{Name, Opcode, header::InHeader};
use zerocopy::FromBytes as _;

use crate::memory::Heap;

/// Root, on the second queue.
pub(crate) const ROOT: Caller<'static> =
    Caller { uid: 0, gid: 0, pid: 1, group: None, umask: 0o022, queue: 1, interrupt: None, raised: None };

pub(crate) fn name(bytes: &str) -> Name<'_> {
    Name::new(bytes.as_bytes()).unwrap()
}

/// A platform without threads: nothing here waits.
#[derive(Default)]
pub(crate) struct Plain;

impl Platform for Plain {
    type RawMutex = parking_lot::RawMutex;
    type Event = Spin;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn with_held(check: impl FnOnce(&Held)) {
        thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

#[derive(Default)]
pub(crate) struct Spin;

impl platform::Event for Spin {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        while !is_done() {
            std::thread::yield_now();
        }
        true
    }

    fn wake_all(&self) {}
}

type Act = Box<dyn FnOnce() + Send>;

/// Serves a session with `F`.
pub(crate) struct Peer<F> {
    server: Server<F>,
    replies: Mutex<HashMap<u64, OwnedReply>>,
    tickets: AtomicU64,
    /// Messages yet to come before one fails, and the number of messages so far.
    until_failure: AtomicU64,
    is_failing: AtomicBool,
    is_gone: AtomicBool,
    messages: AtomicU64,
    /// How many requests were served, by the name of the operation.
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// An action that runs once, while a reply of the operation is on its way.
    meanwhile: Mutex<Option<(Opcode, Act)>>,
    /// Queues that were used, by number.
    pub(crate) queues: Mutex<Vec<u16>>,
}

impl<F: FileSystem + 'static> Peer<F> {
    pub(crate) fn new(fs: F) -> Arc<Self> {
        Arc::new(Self {
            server: Server::new(fs),
            replies: Mutex::default(),
            tickets: AtomicU64::new(0),
            until_failure: AtomicU64::new(u64::MAX),
            is_failing: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            counts: Mutex::default(),
            meanwhile: Mutex::default(),
            queues: Mutex::default(),
        })
    }

    pub(crate) fn fs(&self) -> &F {
        self.server.file_system()
    }

    /// Fails the `nth` message from now on; 0 is the next one.
    pub(crate) fn fail(&self, nth: u64) {
        self.until_failure.store(nth, Ordering::SeqCst);
    }

    /// From now on, every message fails, or none does.
    pub(crate) fn fail_all(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::SeqCst);
    }

    /// From now on, the device is gone: every message fails.
    #[allow(dead_code, reason = "for the tests of volumes")]
    pub(crate) fn hang_up(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
    }

    /// Runs `act` once, after an operation of this kind was served and before its reply is seen.
    #[allow(dead_code, reason = "for the tests of volumes")]
    pub(crate) fn meanwhile(&self, opcode: Opcode, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some((opcode, Box::new(act)));
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::SeqCst)
    }

    /// Returns how many requests were served so far, by the name of the operation.
    #[allow(dead_code, reason = "for the tests of volumes")]
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap().clone()
    }

    fn admit(&self) -> Result<(), ChannelError> {
        self.messages.fetch_add(1, Ordering::SeqCst);
        if self.is_gone.load(Ordering::SeqCst) {
            return Err(ChannelError::Gone);
        }
        let is_last = self.until_failure.fetch_sub(1, Ordering::SeqCst) == 0;
        match is_last || self.is_failing.load(Ordering::SeqCst) {
            true => Err(ChannelError::Dma(DmaError::Exhausted { wanted_bytes: 1, pool_bytes: 0 })),
            false => Ok(()),
        }
    }

    /// Returns the number of bytes written.
    fn serve(&self, sent: &mut [&mut [u8]], rooms: &mut [&mut [u8]]) -> usize {
        let opcode = InHeader::read_from_prefix(sent[0]).ok().and_then(|(head, _)| Opcode::from_u32(head.opcode.get()));
        *self.counts.lock().unwrap().entry(opcode.map_or("unknown", Opcode::name)).or_default() += 1;
        let readable: Vec<GuestSlice<'_>> = sent.iter_mut().map(|piece| GuestSlice::from(&mut **piece)).collect();
        let writable: Vec<GuestSlice<'_>> = rooms.iter_mut().map(|room| GuestSlice::from(&mut **room)).collect();
        match self.server.handle(&readable, &writable, &mut Scratch::default(), BlockingMode::MayBlock) {
            ServeOutcome::Done(done) => done.used_len_bytes as usize,
            ServeOutcome::Defer(target) => panic!("deferred to {target:?} though it may block"),
        }
    }
}

impl<F: FileSystem + 'static> Channel for Peer<F> {
    fn request_queues(&self) -> u16 {
        3
    }

    fn data_len_max(&self) -> usize {
        64 << 10
    }

    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        assert!(queue < self.request_queues());
        self.queues.lock().unwrap().push(queue);
        self.admit()?;
        let Message { head, data, reply_head, reply_data } = message;
        let (mut head, mut data) = (head.to_vec(), bytes_of(data));
        let opcode = InHeader::read_from_prefix(&head).unwrap().0.opcode.get();
        let mut sent = [head.as_mut_slice(), data.as_mut_slice()];
        let written = match reply_data {
            Sink::Empty => self.serve(&mut sent, &mut [reply_head]),
            Sink::Bytes(bytes) => self.serve(&mut sent, &mut [reply_head, bytes]),
            Sink::Slices(pieces) => {
                let mut bytes = vec![0; pieces.len_bytes()];
                let written = self.serve(&mut sent, &mut [&mut *reply_head, &mut bytes]);
                // As a device, which leaves alone what it does not write.
                pieces.write(&bytes[..written.saturating_sub(reply_head.len())]);
                written
            }
            Sink::Buffer(buffer, offset, len) => {
                let mut bytes = vec![0; len];
                let written = self.serve(&mut sent, &mut [reply_head, &mut bytes]);
                buffer.write(offset, &bytes);
                written
            }
        };
        let meanwhile = self.meanwhile.lock().unwrap().take_if(|(of, _)| *of as u32 == opcode);
        if let Some((_, act)) = meanwhile {
            act();
        }
        Ok(written)
    }

    fn start(&self, queue: u16, mut message: OwnedMessage) -> Result<Ticket, ChannelError> {
        assert!(queue < self.request_queues());
        self.admit()?;
        let mut data = match &message.data {
            Some((buffer, range)) => bytes_of(Source::Buffer(buffer, range.start, range.len())),
            None => Vec::new(),
        };
        let mut head = vec![0; message.reply_head_len];
        let mut room = vec![0; message.reply_data.as_ref().map_or(0, |(_, range)| range.len())];
        let written = self.serve(&mut [&mut message.head, &mut data], &mut [&mut head, &mut room]);
        if let Some((buffer, range)) = message.reply_data {
            buffer.write(range.start, &room);
        }
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst);
        self.replies.lock().unwrap().insert(ticket, OwnedReply { head, written });
        Ok(Ticket(ticket))
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        self.replies.lock().unwrap().remove(&ticket.0).ok_or(ChannelError::Broken("an unknown ticket"))
    }

    fn is_finished(&self, ticket: &Ticket) -> bool {
        self.replies.lock().unwrap().contains_key(&ticket.0)
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.admit()?;
        assert_eq!(self.serve(&mut [&mut message.to_vec()], &mut []), 0);
        Ok(())
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        heap_buffer(len_bytes)
    }

    fn shm_region(&self, _: u8) -> Option<ShmRegion> {
        None
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }
}

pub(crate) fn heap_buffer(len_bytes: usize) -> Result<DmaBuffer, DmaError> {
    let heap: Arc<dyn DmaOps> = Arc::new(Heap);
    DmaBuffer::new(&heap, len_bytes)
}

fn bytes_of(source: Source<'_>) -> Vec<u8> {
    match source {
        Source::Empty => Vec::new(),
        Source::Bytes(bytes) => bytes.to_vec(),
        Source::Slices(pieces) => {
            let mut bytes = vec![0; pieces.len_bytes()];
            pieces.read(&mut bytes);
            bytes
        }
        Source::Buffer(buffer, offset, len) => {
            let mut bytes = vec![0; len];
            buffer.read(offset, &mut bytes);
            bytes
        }
    }
}

/// Creates a session over `peer` with the default configuration.
pub(crate) fn session<F: FileSystem + 'static>(peer: &Arc<Peer<F>>) -> Session<Plain> {
    session_for(peer, SessionConfig::default())
}

pub(crate) fn session_for<F: FileSystem + 'static>(peer: &Arc<Peer<F>>, config: SessionConfig) -> Session<Plain> {
    let channel: Arc<dyn Channel> = Arc::clone(peer) as Arc<dyn Channel>;
    Session::begin(channel, Arc::default(), config).unwrap()
}

/// Creates a session over an empty file system in memory.
pub(crate) fn in_memory() -> (Arc<Peer<MemFs>>, Session<Plain>) {
    let peer = Peer::new(MemFs::default());
    let session = session(&peer);
    (peer, session)
}
