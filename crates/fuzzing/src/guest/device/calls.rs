//! The driver's user: sends messages of many lengths, in memory with guard margins.

use std::{collections::VecDeque, sync::Arc};

use transom_guest::{
    channel::{Channel, ChannelError, Message, OwnedMessage, Sink, Source, Ticket},
    device::VirtioFs,
    dma::DmaBuffer,
};

use super::{
    super::{platform::Lone, tape::Tape},
    fake::{FILL, Fake, FakeTransport},
};
use crate::filled::is_filled;

const UNTOUCHED: u8 = 0xee;
const MARGIN: usize = 64;
/// Lengths about the limits of slots and pages.
const LENS: [usize; 8] = [0, 16, 40, 1, 512, 513, 4096, 9000];

type Device = VirtioFs<Lone, FakeTransport>;

struct User<'a> {
    device: &'a Device,
    tape: &'a Tape,
    fake: &'a Fake,
    started: VecDeque<Started>,
    /// Whether the device has failed; then everything has to.
    has_failed: bool,
}

struct Started {
    ticket: Ticket,
    reply_head_len: usize,
    room: Option<Arc<DmaBuffer>>,
}

/// Uses the device until the input is over; by then it is gone.
pub(super) fn until_over(device: &Device, tape: &Tape, fake: &Fake) {
    let mut user = User { device, tape, fake, started: VecDeque::new(), has_failed: false };
    while !tape.is_over() {
        user.step();
    }
    while let Some(started) = user.started.pop_front() {
        user.finish(started);
    }
    // The first may find a reply that the device has made up in advance.
    for _ in 0..3 {
        user.call(0, [40, 0, 16, 0]);
    }
    assert!(user.has_failed, "a device that is gone answers");
    assert!(device.send_priority(&[0; 56]).is_err());
}

impl User<'_> {
    fn step(&mut self) {
        let choice = self.tape.byte();
        let (queue, queues) = (u16::from(choice & 15), self.device.request_queues());
        match choice >> 4 {
            0..8 => self.call(queue % queues, [self.len(), self.len(), self.len(), self.len()]),
            8 | 9 => self.start(queue % queues),
            10 => {
                if let Some(started) = self.started.pop_front() {
                    self.finish(started);
                }
            }
            11 => {
                let _ = self.started.iter().filter(|started| self.device.is_finished(&started.ticket)).count();
            }
            12 => {
                let sent = self.device.send_priority(&vec![9; self.len()]);
                self.judge(sent.err());
            }
            13 => self.device.interrupt(queue),
            14 => {
                let ticket = Ticket(u64::from(self.tape.u32()) << 24 | u64::from(self.tape.u32()));
                let is_known = self.started.iter().any(|started| started.ticket == ticket);
                assert!(is_known || self.device.finish(ticket).is_err(), "nobody has started it");
            }
            _ => {
                let message =
                    Message { head: &[1], data: Source::Empty, reply_head: &mut [0; 16], reply_data: Sink::Empty };
                assert!(self.device.call(queues + queue, message).is_err(), "there is no such queue");
            }
        }
    }

    fn len(&self) -> usize {
        self.tape.choose(&LENS)
    }

    /// The lengths are those of head and data, and the rooms for both of the reply.
    fn call(&mut self, queue: u16, [head, data, reply_head, room]: [usize; 4]) {
        let (head, data) = (vec![1; head], vec![2; data]);
        let (mut reply_head, mut room) = (Margined::new(reply_head), Margined::new(room));
        let (reply_len, room_len) = (reply_head.len(), room.len());
        let message = Message {
            head: &head,
            data: Source::Bytes(&data),
            reply_head: reply_head.inside(),
            reply_data: Sink::Bytes(room.inside()),
        };
        let outcome = self.device.call(queue, message);
        let written = outcome.as_ref().copied().unwrap_or(0);
        assert!(written <= reply_len + room_len, "{written} bytes in {reply_len} and {room_len}");
        assert!(is_filled::<1>(&head) && is_filled::<2>(&data));
        let is_answered = outcome.is_ok() && self.fake.is_honest();
        reply_head.check(written.min(reply_len), is_answered);
        room.check(written.saturating_sub(reply_len), is_answered);
        self.judge(outcome.err());
    }

    fn start(&mut self, queue: u16) {
        let reply_head_len = self.len();
        let room = self.device.buffer(self.len()).ok().map(Arc::new);
        let head = vec![3; self.len()];
        let data = room.as_ref().map(|room| (Arc::clone(room), 0..room.len() / 2));
        let reply_data = room.as_ref().map(|room| (Arc::clone(room), room.len() / 2..room.len()));
        match self.device.start(queue, OwnedMessage { head, data, reply_head_len, reply_data }) {
            Ok(ticket) => self.started.push_back(Started { ticket, reply_head_len, room }),
            Err(error) => self.judge(Some(error)),
        }
    }

    fn finish(&mut self, started: Started) {
        let Started { ticket, reply_head_len, room } = started;
        match self.device.finish(ticket) {
            Ok(reply) => {
                assert_eq!(reply.head.len(), reply_head_len);
                let room_len = room.map_or(0, |room| room.len() - room.len() / 2);
                assert!(reply.written <= reply_head_len + room_len);
            }
            Err(error) => self.judge(Some(error)),
        }
    }

    /// Notes what a message came to; of a device that has failed, nothing but errors comes.
    fn judge(&mut self, error: Option<ChannelError>) {
        assert!(error.is_some() || !self.has_failed, "a device that has failed answers");
        self.has_failed |= matches!(error, Some(ChannelError::Broken(_) | ChannelError::Gone));
    }
}

/// Memory lent to the device, between margins that are not.
struct Margined(Vec<u8>);

impl Margined {
    fn new(len: usize) -> Self {
        Self(vec![UNTOUCHED; len + 2 * MARGIN])
    }

    fn len(&self) -> usize {
        self.0.len() - 2 * MARGIN
    }

    fn inside(&mut self) -> &mut [u8] {
        let end = MARGIN + self.len();
        &mut self.0[MARGIN..end]
    }

    /// Only the first `written` bytes changed; to what an honest device writes, where it is one.
    fn check(&self, written: usize, is_answered: bool) {
        let (before, rest) = self.0.split_at(MARGIN);
        let (inside, behind) = rest.split_at(written);
        let is_untouched = [before, behind].into_iter().all(is_filled::<UNTOUCHED>);
        assert!(is_untouched, "bytes that were not lent were written");
        assert!(!is_answered || is_filled::<FILL>(inside), "another's reply");
    }
}
