//! The connection between the front end and a daemon, whose messages pass here.

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
};

use rustix::event::PollFlags;

use super::{
    message::{Connection, Message, Received},
    request,
    setup::Setup,
};

/// The most messages that are passed on in one direction before the supervisor looks at everything else.
const MESSAGES_AT_ONCE: usize = 64;
/// The most replies that a daemon may owe. A front end waits for one before it sends the next request.
const ASKED_MAX: usize = 256;

/// VHOST_USER_PROTOCOL_F_REPLY_ACK: requests that say so are acknowledged.
const F_REPLY_ACK: u64 = 1 << 3;

/// A front end, its daemon, and what it has set up there.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) front_end: Connection,
    pub(super) daemon: Connection,
    pub(super) setup: Setup,
    /// Who waits for the replies that the supervisor may ask for too, in order.
    asked: VecDeque<(u32, Asker)>,
    /// Requests of the front end that have no reply yet.
    unanswered: VecDeque<Message>,
    /// The last request of the front end that this supervisor does not know. A later daemon may, and reply to it.
    unknown: Option<u32>,
    /// The daemon has sent a reply that nobody had asked for, and the log says so.
    has_sent_unasked: bool,
    /// Replies to the supervisor.
    answers: Vec<Message>,
    /// The rings are being stopped for an upgrade that was given up. Requests of the front end wait until the daemon
    /// has stopped them and they are started again.
    pub(super) is_stopping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    FrontEnd,
    Supervisor,
}

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// Everything that came was passed on, as far as it can be now.
    GoesOn,
    /// One side has ended.
    Ended,
}

impl Relay {
    pub(super) fn new(front_end: UnixStream, daemon: UnixStream) -> io::Result<Self> {
        Ok(Self {
            front_end: Connection::new(front_end)?,
            daemon: Connection::new(daemon)?,
            setup: Setup::default(),
            asked: VecDeque::new(),
            unanswered: VecDeque::new(),
            unknown: None,
            has_sent_unasked: false,
            answers: Vec::new(),
            is_stopping: false,
        })
    }

    /// Passes on what the front end has sent, as long as the daemon takes it.
    ///
    /// # Errors
    ///
    /// If the front end does not keep to the protocol.
    pub(super) fn pass_requests(&mut self) -> io::Result<Passed> {
        for _ in 0..MESSAGES_AT_ONCE {
            if self.daemon.has_unsent() {
                break;
            }
            let message = match self.front_end.receive()? {
                Received::Message(message) => message,
                Received::Nothing => return Ok(Passed::GoesOn),
                Received::End => return Ok(Passed::Ended),
            };
            if !message.is_reply() {
                // A request can end what was negotiated, and is acknowledged all the same.
                let acknowledges = self.acknowledges();
                self.setup.observe(&message);
                self.note_asked(message.number(), Asker::FrontEnd)?;
                self.note_unanswered(&message, acknowledges || self.acknowledges())?;
                self.unknown = self.setup.unrecorded().filter(|&number| number == message.number());
            }
            if self.daemon.send(&message).is_err() {
                return Ok(Passed::Ended);
            }
        }
        Ok(Passed::GoesOn)
    }

    /// Passes on what the daemon has sent, as long as the front end takes it. Replies that nobody has asked for are
    /// dropped: they would fill the socket of a front end that does not read, and the supervisor would see none of
    /// those that it has asked for.
    pub(super) fn pass_replies(&mut self) -> io::Result<Passed> {
        for _ in 0..MESSAGES_AT_ONCE {
            if self.front_end.has_unsent() {
                break;
            }
            let message = match self.daemon.receive()? {
                Received::Message(message) => message,
                Received::Nothing => return Ok(Passed::GoesOn),
                Received::End => return Ok(Passed::Ended),
            };
            match self.asker(message.number()) {
                Some(Asker::Supervisor) => self.answers.push(message),
                _ if !self.note_answered(message.number()) => self.note_unasked(message.number()),
                asker => {
                    if asker.is_some() && message.number() == request::GET_VRING_BASE {
                        self.observe_base(&message);
                    }
                    if self.front_end.send(&message).is_err() {
                        return Ok(Passed::Ended);
                    }
                }
            }
        }
        Ok(Passed::GoesOn)
    }

    /// Passes everything on, in both directions.
    ///
    /// # Errors
    ///
    /// If the front end does not keep to the protocol.
    pub(super) fn pass(&mut self) -> io::Result<Passed> {
        if self.flush().is_err() {
            return Ok(Passed::Ended);
        }
        // The daemon first: what it said before it ended reaches the front end.
        match self.pass_replies()? {
            Passed::GoesOn if !self.is_stopping => self.pass_requests(),
            passed => Ok(passed),
        }
    }

    /// Returns what to wait for before [`Relay::pass`] can do something.
    pub(super) fn awaited(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut awaited = self.awaited_from_daemon();
        if !self.daemon.has_unsent() && !self.is_stopping {
            awaited.push((self.front_end.as_fd(), PollFlags::IN));
        }
        awaited
    }

    /// As [`Relay::awaited`], without requests of the front end.
    pub(super) fn awaited_from_daemon(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut awaited = Vec::with_capacity(4);
        if self.daemon.has_unsent() {
            awaited.push((self.daemon.as_fd(), PollFlags::OUT));
        }
        match self.front_end.has_unsent() {
            true => awaited.push((self.front_end.as_fd(), PollFlags::OUT)),
            false => awaited.push((self.daemon.as_fd(), PollFlags::IN)),
        }
        awaited
    }

    /// Sends what could not be sent before.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.daemon.flush()?;
        self.front_end.flush()
    }

    /// Sends a request of the supervisor to the daemon, which has nothing unsent.
    pub(super) fn ask(&mut self, message: &Message) -> io::Result<()> {
        self.note_asked(message.number(), Asker::Supervisor)?;
        self.daemon.send(message)
    }

    /// Returns whether a reply to the supervisor has not come yet.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.iter().any(|&(_, asker)| asker == Asker::Supervisor)
    }

    /// Returns the replies to the supervisor that have come.
    pub(super) fn take_answers(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.answers)
    }

    /// Forgets what a daemon was asked that has died.
    pub(super) fn forget_asked(&mut self) {
        self.asked.clear();
        self.answers.clear();
    }

    /// Returns whether the front end has asked where a ring stands, and got no reply.
    pub(super) fn awaits_base(&self, ring: u32) -> bool {
        let mut asked = self.unanswered.iter().filter(|message| message.number() == request::GET_VRING_BASE);
        asked.any(|message| message.u32_at(0) == Some(ring))
    }

    /// Answers what the front end has asked a daemon that has died: what was to be set up is set up by now, and the
    /// rest is asked again.
    ///
    /// # Errors
    ///
    /// If the front end takes no answer.
    pub(super) fn ask_again(&mut self) -> io::Result<()> {
        for message in std::mem::take(&mut self.unanswered) {
            if message.has_reply_of_its_own() {
                self.note_asked(message.number(), Asker::FrontEnd)?;
                // If this daemon is dead too, the next one is asked.
                let _ = self.daemon.send(&message);
                self.unanswered.push_back(message);
            } else {
                self.front_end.send(&message.acknowledgement())?;
            }
        }
        Ok(())
    }

    /// Notes a request of the front end that the daemon is to answer.
    fn note_unanswered(&mut self, message: &Message, acknowledges: bool) -> io::Result<()> {
        if acknowledges && message.needs_reply() || message.has_reply_of_its_own() {
            if self.unanswered.len() == ASKED_MAX {
                return Err(io::Error::other(format!("{ASKED_MAX} requests have no reply yet")));
            }
            self.unanswered.push_back(message.clone());
        }
        Ok(())
    }

    /// Returns whether the daemon acknowledges requests that ask for it.
    fn acknowledges(&self) -> bool {
        self.setup.features().1 & F_REPLY_ACK != 0
    }

    /// Notes that the front end gets a reply, and returns whether it waits for one. Replies to requests of one number
    /// come in their order.
    fn note_answered(&mut self, number: u32) -> bool {
        match self.unanswered.iter().position(|asked| asked.number() == number) {
            Some(place) => self.unanswered.remove(place).is_some(),
            None => self.unknown.take_if(|unknown| *unknown == number).is_some(),
        }
    }

    fn note_unasked(&mut self, number: u32) {
        if !std::mem::replace(&mut self.has_sent_unasked, true) {
            tracing::warn!(number, "the daemon sends replies that nobody has asked for: they are dropped");
        }
    }

    fn observe_base(&mut self, reply: &Message) {
        if let (Some(index), Some(base)) = (reply.u32_at(0), reply.u32_at(4)) {
            self.setup.observe_base(index, base);
        }
    }

    /// Notes who gets the reply to a request that both sides may send.
    fn note_asked(&mut self, number: u32, asker: Asker) -> io::Result<()> {
        if matches!(number, request::GET_FEATURES | request::GET_VRING_BASE) {
            if self.asked.len() == ASKED_MAX {
                return Err(io::Error::other(format!("{ASKED_MAX} requests have no reply yet")));
            }
            self.asked.push_back((number, asker));
        }
        Ok(())
    }

    /// Returns who gets a reply, if it is to such a request. Replies come in the order of requests.
    fn asker(&mut self, number: u32) -> Option<Asker> {
        let place = self.asked.iter().position(|&(asked, _)| asked == number)?;
        Some(self.asked.remove(place)?.1)
    }
}

#[cfg(test)]
#[path = "relay_test.rs"]
mod relay_test;
