//! Servers with scripted replies.

use std::sync::{Arc, Mutex};

use transom_guest::{
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Sink, Ticket},
    dma::{DmaBuffer, DmaError},
    session::{Session, SessionConfig, SessionError},
    transport::ShmRegion,
};
use transom_wire::{
    header::{InHeader, OutHeader},
    ops::init::{InitFlags, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::peer::{Plain, heap_buffer};

/// Returns the reply to a request with this header, and its length: any bytes at all.
pub(crate) type Answer = dyn FnMut(&InHeader, usize) -> (Vec<u8>, usize) + Send;

/// A channel to a scripted server.
pub(crate) struct Script {
    answer: Mutex<Box<Answer>>,
    pub(crate) data_len_max: usize,
    /// What was sent on the high-priority queue.
    pub(crate) told: Mutex<Vec<Vec<u8>>>,
    started: Mutex<Vec<Option<OwnedReply>>>,
    /// The last request: header, arguments and names.
    pub(crate) last: Mutex<Vec<u8>>,
}

impl Script {
    pub(crate) fn new(answer: impl FnMut(&InHeader, usize) -> (Vec<u8>, usize) + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Box::new(answer)),
            data_len_max: 1 << 20,
            told: Mutex::default(),
            started: Mutex::default(),
            last: Mutex::default(),
        })
    }

    /// From now on, `answer` makes the replies.
    pub(crate) fn turn(&self, answer: impl FnMut(&InHeader, usize) -> (Vec<u8>, usize) + Send + 'static) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    pub(crate) fn begin(self: &Arc<Self>, config: SessionConfig) -> Result<Session<Plain>, SessionError> {
        let channel: Arc<dyn Channel> = Arc::clone(self) as Arc<dyn Channel>;
        Session::begin(channel, Arc::default(), config)
    }

    fn reply(&self, head: &[u8], room: usize) -> (Vec<u8>, usize) {
        let header = InHeader::read_from_prefix(head).unwrap().0;
        assert_eq!(header.unique.get() % 2, 0);
        *self.last.lock().unwrap() = head.to_vec();
        (*self.answer.lock().unwrap())(&header, room)
    }
}

impl Channel for Script {
    fn request_queues(&self) -> u16 {
        1
    }

    fn data_len_max(&self) -> usize {
        self.data_len_max
    }

    fn call(&self, _: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        let mut room = message.reply_head.len();
        room += match &message.reply_data {
            Sink::Empty => 0,
            Sink::Bytes(bytes) => bytes.len(),
            Sink::Slices(pieces) => pieces.len_bytes(),
            Sink::Buffer(_, _, len) => *len,
        };
        let (bytes, written) = self.reply(message.head, room);
        let (head, data) = bytes.split_at(bytes.len().min(message.reply_head.len()));
        message.reply_head[..head.len()].copy_from_slice(head);
        match message.reply_data {
            Sink::Empty | Sink::Buffer(..) => {}
            Sink::Bytes(room) => {
                let len = data.len().min(room.len());
                room[..len].copy_from_slice(&data[..len]);
            }
            Sink::Slices(pieces) => pieces.write(data),
        }
        Ok(written)
    }

    fn start(&self, _: u16, message: OwnedMessage) -> Result<Ticket, ChannelError> {
        let room = message.reply_head_len + message.reply_data.as_ref().map_or(0, |(_, range)| range.len());
        let (mut head, written) = self.reply(&message.head, room);
        let data = head.split_off(head.len().min(message.reply_head_len));
        if let Some((buffer, range)) = message.reply_data {
            buffer.write(range.start, &data[..data.len().min(range.len())]);
        }
        head.resize(message.reply_head_len, 0);
        let mut started = self.started.lock().unwrap();
        started.push(Some(OwnedReply { head, written }));
        Ok(Ticket(started.len() as u64 - 1))
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        let mut started = self.started.lock().unwrap();
        let reply = started.get_mut(ticket.0 as usize).and_then(Option::take);
        reply.ok_or(ChannelError::Broken("an unknown ticket"))
    }

    fn is_finished(&self, _: &Ticket) -> bool {
        true
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.told.lock().unwrap().push(message.to_vec());
        Ok(())
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        heap_buffer(len_bytes)
    }

    fn shm_region(&self, _: u8) -> Option<ShmRegion> {
        None
    }
}

/// Returns a valid reply.
pub(crate) fn reply(header: &InHeader, error: i32, body: &[u8]) -> (Vec<u8>, usize) {
    let len = size_of::<OutHeader>() + body.len();
    let out = OutHeader { len: (len as u32).into(), error: error.into(), unique: header.unique };
    ([out.as_bytes(), body].concat(), len)
}

/// Returns a reply to INIT that accepts `flags`.
pub(crate) fn init_out(flags: InitFlags) -> InitOut {
    let flags = (flags | InitFlags::INIT_EXT).bits();
    InitOut {
        major: KERNEL_VERSION.into(),
        minor: KERNEL_MINOR_VERSION.into(),
        max_readahead: (1 << 20).into(),
        flags: (flags as u32).into(),
        flags2: ((flags >> 32) as u32).into(),
        max_background: 64.into(),
        max_write: (1 << 20).into(),
        time_gran: 1.into(),
        max_pages: 256.into(),
        ..InitOut::default()
    }
}

/// Creates a session whose server has accepted `flags` and replies as `answer` does.
pub(crate) fn session_with(
    flags: InitFlags,
    answer: impl FnMut(&InHeader, usize) -> (Vec<u8>, usize) + Send + 'static,
) -> (Arc<Script>, Session<Plain>) {
    let script = Script::new(move |header, _| reply(header, 0, init_out(flags).as_bytes()));
    let session = script.begin(SessionConfig::default()).unwrap();
    script.turn(answer);
    (script, session)
}
