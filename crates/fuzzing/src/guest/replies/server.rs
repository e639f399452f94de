//! The server: valid replies, altered by the next bytes of the input.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use transom_guest::{
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Sink, Source, Ticket},
    dma::{DmaBuffer, DmaError, DmaOps},
    transport::ShmRegion,
};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    super::{memory::Reach, tape::Tape},
    bodies::{Asked, body},
    ledger::Ledger,
};

const HEADER_LEN: usize = size_of::<OutHeader>();

/// Errors that mean something to a client: ENOSYS, ENOENT, ESTALE, ERANGE, EINTR, EAGAIN, EEXIST, EOPNOTSUPP.
const ERRORS: [i32; 8] = [38, 2, 116, 34, 4, 11, 17, 95];

pub(super) struct Answers {
    tape: Arc<Tape>,
    ops: Arc<dyn DmaOps>,
    _reach: Reach,
    state: Mutex<State>,
    /// Whether whoever uses the session has let go of everything.
    is_ending: AtomicBool,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    /// Replies to started messages, by ticket.
    replies: BTreeMap<u64, OwnedReply>,
    tickets: u64,
    /// DESTROY came while things were in use: the server has let go of everything at once.
    was_cut_short: bool,
    is_destroyed: bool,
}

impl Answers {
    pub(super) fn new(tape: Arc<Tape>, ops: Arc<dyn DmaOps>, reach: Reach) -> Self {
        Self { tape, ops, _reach: reach, state: Mutex::default(), is_ending: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().expect("a run has one thread")
    }

    /// Nothing is in use any more; what comes now ends the session.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    pub(super) fn check_ended(&self) {
        let state = self.state();
        if !state.was_cut_short {
            state.ledger.check_settled();
        }
    }

    /// The reply to a request with `data_len` bytes behind its head, and what the device says of its length.
    fn answer(&self, head: &[u8], data_len: usize, room: usize) -> Result<(Vec<u8>, usize), ChannelError> {
        let (header, arg) = InHeader::read_from_prefix(head).expect("a message has a header");
        assert_eq!(header.len.get() as usize, head.len() + data_len);
        let opcode = Opcode::from_u32(header.opcode.get()).expect("it is one of the protocol's");
        if opcode == Opcode::Destroy {
            let mut state = self.state();
            state.was_cut_short |= !self.is_ending.load(Ordering::Relaxed);
            state.is_destroyed = true;
        }
        if self.tape.is_over() {
            return Err(ChannelError::Gone);
        }
        let mischief = self.tape.byte();
        if mischief == 0xff {
            let broken = ChannelError::Broken("a descriptor");
            let exhausted = DmaError::Exhausted { wanted_bytes: 1, pool_bytes: 0 };
            return Err(if self.tape.byte() & 1 == 0 { broken } else { exhausted.into() });
        }
        let asked = Asked { opcode, node: header.nodeid.get(), arg, data_len, room: room - HEADER_LEN };
        let (bytes, written) = self.tamper(mischief, &header, body(&asked, &self.tape));
        let (reply, body) = OutHeader::read_from_prefix(&bytes).expect("every reply has room for a header");
        let is_taken = reply.error == 0 && reply.unique == header.unique && reply.len.get() as usize == written;
        if is_taken && written <= room && !self.state().is_destroyed {
            self.state().ledger.replied(opcode, &body[..written - HEADER_LEN]);
        }
        Ok((bytes, written))
    }

    /// The whole reply with this body, or something like it.
    fn tamper(&self, mischief: u8, header: &InHeader, mut body: Vec<u8>) -> (Vec<u8>, usize) {
        let tape = &self.tape;
        let mut out = OutHeader { len: 0.into(), error: 0.into(), unique: header.unique };
        let mut error = 0;
        match mischief {
            0xa0..0xc0 => {
                for _ in 0..=mischief & 3 {
                    let (at, value) = (usize::from(tape.u16()), tape.byte());
                    if !body.is_empty() {
                        let len = body.len();
                        body[at % len] = value;
                    }
                }
            }
            0xc0..0xd0 => body = tape.bytes(usize::from(tape.byte())),
            0xd0..0xe0 => {
                error = -tape.choose(&ERRORS);
                body.clear();
            }
            0xe0..0xe8 => body.truncate(usize::from(tape.byte())),
            0xe8..0xec => error = tape.u32() as i32,
            _ => {}
        }
        let len = HEADER_LEN + body.len();
        let mut written = len;
        match mischief {
            0xf0 => written = usize::from(tape.u16()).max(HEADER_LEN),
            0xf1 => out.unique = (header.unique.get() ^ u64::from(tape.byte())).into(),
            _ => {}
        }
        out.len = if mischief == 0xf2 { tape.u32() } else { len as u32 }.into();
        out.error = error.into();
        let mut bytes = [out.as_bytes(), &body].concat();
        // What the device says it wrote is there, and nothing else.
        bytes.resize(written.min(1 << 17).max(len), 0);
        (bytes, written)
    }
}

impl Channel for Answers {
    fn request_queues(&self) -> u16 {
        2
    }

    fn data_len_max(&self) -> usize {
        64 << 10
    }

    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        assert!(queue < self.request_queues());
        let Message { head, data, reply_head, reply_data } = message;
        let data_len = match data {
            Source::Empty => 0,
            Source::Bytes(bytes) => bytes.len(),
            Source::Slices(pieces) => pieces.len_bytes(),
            Source::Buffer(buffer, offset, len) => {
                assert!(offset + len <= buffer.len());
                len
            }
        };
        let room = match &reply_data {
            Sink::Empty => 0,
            Sink::Bytes(bytes) => bytes.len(),
            Sink::Slices(pieces) => pieces.len_bytes(),
            Sink::Buffer(_, _, len) => *len,
        };
        let (bytes, written) = self.answer(head, data_len, reply_head.len() + room)?;
        let (head, data) = bytes.split_at(bytes.len().min(reply_head.len()));
        reply_head[..head.len()].copy_from_slice(head);
        let data = &data[..data.len().min(room)];
        match reply_data {
            Sink::Empty => {}
            Sink::Bytes(bytes) => bytes[..data.len()].copy_from_slice(data),
            Sink::Slices(pieces) => pieces.write(data),
            Sink::Buffer(buffer, offset, _) => buffer.write(offset, data),
        }
        Ok(written)
    }

    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError> {
        assert!(queue < self.request_queues());
        let data_len = message.data.as_ref().map_or(0, |(buffer, range)| buffer.len().min(range.end) - range.start);
        let room = message.reply_data.as_ref().map_or(0, |(_, range)| range.len());
        let (bytes, written) = self.answer(&message.head, data_len, message.reply_head_len + room)?;
        let (head, data) = bytes.split_at(bytes.len().min(message.reply_head_len));
        if let Some((buffer, range)) = &message.reply_data {
            buffer.write(range.start, &data[..data.len().min(range.len())]);
        }
        let mut head = head.to_vec();
        head.resize(message.reply_head_len, 0);
        let mut state = self.state();
        state.tickets += 1;
        let ticket = state.tickets;
        state.replies.insert(ticket, OwnedReply { head, written });
        Ok(Ticket(ticket))
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        Ok(self.state().replies.remove(&ticket.0).expect("each ticket is finished once"))
    }

    fn is_finished(&self, ticket: &Ticket) -> bool {
        self.state().replies.contains_key(&ticket.0)
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        if self.tape.byte() == 0xff {
            return Err(ChannelError::Gone);
        }
        let mut state = self.state();
        if !state.is_destroyed {
            state.ledger.told(message);
        }
        Ok(())
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        DmaBuffer::new(&self.ops, len_bytes)
    }

    fn shm_region(&self, _: u8) -> Option<ShmRegion> {
        None
    }
}
