//! The upgrade: another daemon takes the session over while the front end waits for nothing but an answer.
//!
//! 1. The present daemon says whether the share can be upgraded, and a new one is started, which isolates itself.
//! 2. The new one is set up as the front end has set up the present one: features and memory.
//! 3. The rings are stopped, which finishes the requests in flight. The guest waits from here on.
//! 4. The session moves, with its open files and its locks.
//! 5. The rings start at the new one. The present one ends without touching the session.
//!
//! If anything before 5 fails, the rings start again at the present daemon and the new one is ended. Messages of the
//! front end wait in its socket meanwhile.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    fs::{FileType, fstat},
};
use tracing::{error, warn};

use super::{
    Supervisor,
    generation::Generation,
    message::{Connection, Message, Received},
    relay::Passed,
    setup::{Setup, request},
    signals::{Signals, WaitError},
};
use crate::upgrade::control::{Answer, Order, VERSION, packet_pair};

/// How long a new daemon may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long a daemon may take for one step that needs no disk.
const STEP_MAX: Duration = Duration::from_secs(10);
/// How long the session may take. The guest waits.
const HAND_OVER_MAX: Duration = Duration::from_secs(30);
/// Between two looks at a daemon that is about to end.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// Why there was no upgrade, for a person.
type Refusal = String;

/// Waits for the first answer of a daemon, without a limit. Returns `None` if it ends or is to end.
pub(super) fn first_answer(signals: &mut Signals, daemon: &Generation) -> Option<Answer> {
    answer_of(signals, daemon, None).ok().flatten()
}

/// Waits for an answer. Returns `None` if the daemon has ended.
fn answer_of(
    signals: &mut Signals,
    daemon: &Generation,
    deadline: Option<Instant>,
) -> Result<Option<Answer>, WaitError> {
    let control = daemon.control.as_fd();
    while !is_readable(control) {
        signals.wait(&[(control, PollFlags::IN)], deadline)?;
    }
    Ok(daemon.control.receive_answer().unwrap_or_else(|error| {
        warn!(%error, "no answer");
        None
    }))
}

pub(super) fn is_readable(fd: impl AsFd) -> bool {
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(&fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

impl Supervisor {
    /// Replaces the daemon. Returns for how long the rings were stopped.
    ///
    /// # Errors
    ///
    /// If the present daemon goes on, with the reason.
    pub(super) fn upgrade(&mut self) -> Result<Duration, Refusal> {
        if let Some(obstacle) = self.relay.as_ref().and_then(|relay| relay.setup.obstacle()) {
            return Err(obstacle);
        }
        self.order_current(&Order::Check)?;
        let mut next = self
            .launch
            .start(&self.executable)
            .map_err(|error| format!("cannot start {}: {error}", self.executable.display()))?;
        let mut connection = None;
        match self.move_to(&mut next, &mut connection) {
            Ok(pause) => {
                let before = std::mem::replace(&mut self.current, next);
                // If it does not end, it is killed.
                let _ = before.control.order(&Order::End);
                self.retire(before, connection);
                Ok(pause)
            }
            Err(refusal) => {
                // It may share locks, so it must not end by itself.
                next.kill();
                self.retire(next, connection);
                Err(refusal)
            }
        }
    }

    /// Moves the session to `next`. Returns for how long the rings were stopped. `connection` is then the one to the
    /// daemon that is to end, whichever that is.
    fn move_to(&mut self, next: &mut Generation, connection: &mut Option<Connection>) -> Result<Duration, Refusal> {
        self.wait_until_ready(next)?;
        if self.relay.is_none() {
            return Ok(Duration::ZERO);
        }
        let connected = next.connect().and_then(Connection::new);
        let connected = connected.map_err(|error| format!("cannot connect to the new daemon: {error}"))?;
        let connected = connection.insert(connected);
        self.settle()?;
        self.set_up(connected)?;
        let begun = Instant::now();
        let bases = self.stop_rings()?;
        let moved = self.hand_over(next).and_then(|()| self.set_rings_up(connected, &bases));
        if let Err(refusal) = moved.and_then(|()| self.entrust(next)) {
            // First the end of the new one, which shares what is open.
            next.kill();
            self.restart_rings(&bases);
            return Err(refusal);
        }
        self.start_rings(connected);
        Ok(begun.elapsed())
    }

    fn wait_until_ready(&mut self, next: &mut Generation) -> Result<(), Refusal> {
        let deadline = Instant::now() + READY_MAX;
        match answer_of(&mut self.signals, next, Some(deadline)) {
            Ok(Some(Answer::Ready(VERSION))) => Ok(()),
            Ok(Some(Answer::Ready(version))) => {
                Err(format!("the new daemon expects another supervisor (version {version}): restart the daemon"))
            }
            Ok(Some(Answer::Refused(reason))) => Err(format!("the new daemon refuses: {reason}")),
            Ok(Some(Answer::Done | Answer::Restarted(_))) => Err("the new daemon sent an unexpected answer".into()),
            Ok(None) => {
                let status = next.wait_briefly(STEP_MAX);
                let status = status.map_or("without a status".into(), |status| format!("with status {status}"));
                Err(format!("{} has ended {status} before it was ready", self.executable.display()))
            }
            Err(WaitError::TimedOut) => {
                Err(format!("{} is not ready after {} s", self.executable.display(), READY_MAX.as_secs()))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Has the present daemon carry out an order.
    fn order_current(&mut self, order: &Order) -> Result<(), Refusal> {
        self.current.control.order(order).map_err(|error| format!("the present daemon takes no orders: {error}"))?;
        self.outcome_at_current(None)
    }

    /// Waits for the outcome of an order. Without a deadline only the end of the daemon ends the wait.
    fn outcome_at_current(&mut self, deadline: Option<Instant>) -> Result<(), Refusal> {
        match answer_of(&mut self.signals, &self.current, deadline) {
            Ok(Some(Answer::Done)) => Ok(()),
            Ok(Some(Answer::Refused(reason))) => Err(reason),
            Ok(Some(Answer::Ready(_) | Answer::Restarted(_))) => {
                Err("the present daemon sent an unexpected answer".into())
            }
            Ok(None) => Err("the present daemon has ended".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits until the present daemon has dealt with all that the front end has sent and that was passed on.
    fn settle(&mut self) -> Result<(), Refusal> {
        let barrier = Message::request(request::GET_FEATURES, &[], vec![]);
        self.ask_current(&[barrier], Some(Instant::now() + STEP_MAX)).map(drop).map_err(|error| match error {
            WaitError::TimedOut => "the present daemon is still busy with a message of the front end: try again".into(),
            error => error.to_string(),
        })
    }

    /// Sends requests to the present daemon, and returns the replies once all have come. What the daemon sends to the
    /// front end is passed on.
    fn ask_current(&mut self, messages: &[Message], deadline: Option<Instant>) -> Result<Vec<Message>, WaitError> {
        let Some(relay) = &mut self.relay else { return Ok(Vec::new()) };
        // Replies to an earlier attempt.
        while relay.answer().is_some() {}
        let mut unsent = messages.iter();
        let mut replies = Vec::new();
        loop {
            let went_on = relay.flush().and_then(|()| relay.pass_replies());
            if !matches!(went_on, Ok(Passed::GoesOn)) {
                // The caller finds that it has ended.
                return Err(WaitError::Ending);
            }
            if !relay.daemon.has_unsent()
                && let Some(message) = unsent.next()
            {
                relay.ask(message).map_err(|_| WaitError::Ending)?;
                continue;
            }
            replies.extend(std::iter::from_fn(|| relay.answer()));
            if unsent.as_slice().is_empty() && !relay.is_asked() {
                return Ok(replies);
            }
            self.signals.wait(&relay.awaited_from_daemon(), deadline)?;
        }
    }

    /// Sets the new daemon up like the present one, except for the rings.
    pub(super) fn set_up(&mut self, connection: &mut Connection) -> Result<(), Refusal> {
        let Some(relay) = &self.relay else { return Ok(()) };
        if !relay.setup.kicks().all(|kick| is_event_fd(kick)) {
            return Err("the front end kicks with something other than an eventfd".into());
        }
        let (features, protocol_features) = relay.setup.features();
        let messages = relay.setup.messages();
        let offers = [
            (request::GET_FEATURES, features, "features"),
            (request::GET_PROTOCOL_FEATURES, protocol_features, "protocol features"),
        ];
        for (number, used, what) in offers {
            let reply = self.ask_next(connection, &[], number)?;
            let missing = used & !reply.u64_at(0).unwrap_or(0);
            if missing != 0 {
                return Err(format!("the new daemon lacks {what} {missing:#x}, which the front end uses"));
            }
        }
        self.ask_next(connection, &messages, request::GET_FEATURES).map(drop)
    }

    /// Sends `messages` to the new daemon, then a request of its features, and returns the reply to that.
    fn ask_next(&mut self, connection: &mut Connection, messages: &[Message], number: u32) -> Result<Message, Refusal> {
        let deadline = Some(Instant::now() + STEP_MAX);
        let last = Message::request(number, &[], vec![]);
        let mut unsent = messages.iter().chain([&last]);
        loop {
            let failed = |error: std::io::Error| format!("the new daemon does not accept the set-up: {error}");
            connection.flush().map_err(failed)?;
            if !connection.has_unsent()
                && let Some(message) = unsent.next()
            {
                connection.send(message).map_err(failed)?;
                continue;
            }
            match connection.receive().map_err(failed)? {
                Received::Message(message) if message.number() == number => return Ok(message),
                Received::Message(_) => {}
                Received::End => return Err("the new daemon does not accept the set-up".into()),
                Received::Nothing => {
                    let events = if connection.has_unsent() { PollFlags::OUT } else { PollFlags::IN };
                    let waited = self.signals.wait(&[(connection.as_fd(), events)], deadline);
                    waited.map_err(|error| format!("the new daemon does not answer: {error}"))?;
                }
            }
        }
    }

    /// Stops the rings at the present daemon, which finishes what is in flight. Returns where they stand.
    fn stop_rings(&mut self) -> Result<BTreeMap<u32, u32>, Refusal> {
        let rings = self.relay.as_ref().map(|relay| relay.setup.running()).unwrap_or_default();
        let ask = |ring: &u32| {
            let payload = u64::from(*ring).to_le_bytes();
            Message::request(request::GET_VRING_BASE, &payload, vec![])
        };
        let messages: Vec<_> = rings.iter().map(ask).collect();
        // There is no way back before it has stopped them, so there is no limit.
        let replies = self.ask_current(&messages, None).map_err(|error| error.to_string())?;
        let replies = replies.iter().filter(|reply| reply.number() == request::GET_VRING_BASE);
        Ok(replies.filter_map(|reply| Some((reply.u32_at(0)?, reply.u32_at(4)?))).collect())
    }

    /// Moves the session from the present daemon to the new one.
    fn hand_over(&mut self, next: &mut Generation) -> Result<(), Refusal> {
        let deadline = Some(Instant::now() + HAND_OVER_MAX);
        let (from, to) = packet_pair().map_err(|error| format!("cannot create a socket: {error}"))?;
        let ordered = next.control.order(&Order::TakeOver(to));
        ordered.map_err(|error| format!("the new daemon takes no orders: {error}"))?;
        let ordered = self.current.control.order(&Order::HandOver(from));
        ordered.map_err(|error| format!("the present daemon takes no orders: {error}"))?;
        let theirs = answer_of(&mut self.signals, next, deadline);
        if !matches!(theirs, Ok(Some(Answer::Done))) {
            // Nobody reads what the present daemon may still be sending.
            next.kill();
        }
        // It answers in any case, and the next order must not find this answer.
        let ours = self.outcome_at_current(None);
        match theirs {
            Ok(Some(Answer::Done)) => ours,
            // Where it got no session, the present daemon knows why.
            Ok(Some(Answer::Refused(reason))) => {
                ours.and_then(|()| Err(format!("the new daemon refuses the session: {reason}")))
            }
            Ok(Some(Answer::Ready(_) | Answer::Restarted(_)) | None) => {
                Err("the new daemon has ended while it took the session over".into())
            }
            Err(error) => Err(format!("the new daemon does not take the session over: {error}")),
        }
    }

    /// Lets the new daemon treat the session as its own. Until it answers, it would not survive the end of its
    /// connection.
    fn entrust(&mut self, next: &Generation) -> Result<(), Refusal> {
        let ordered = next.control.order(&Order::Begin);
        ordered.map_err(|error| format!("the new daemon takes no orders: {error}"))?;
        match answer_of(&mut self.signals, next, Some(Instant::now() + STEP_MAX)) {
            Ok(Some(Answer::Done)) => Ok(()),
            Ok(_) => Err("the new daemon has ended while it took the session over".into()),
            Err(error) => Err(format!("the new daemon does not take the session over: {error}")),
        }
    }

    pub(super) fn set_rings_up(
        &mut self,
        connection: &mut Connection,
        bases: &BTreeMap<u32, u32>,
    ) -> Result<(), Refusal> {
        let messages = self.relay.as_ref().map(|relay| relay.setup.ring_messages(bases)).unwrap_or_default();
        self.ask_next(connection, &messages, request::GET_FEATURES).map(drop)
    }

    /// Starts the rings at the present daemon again.
    fn restart_rings(&mut self, bases: &BTreeMap<u32, u32>) {
        let Some(relay) = &self.relay else { return };
        let mut messages = Setup::base_messages(bases);
        messages.extend(relay.setup.start_messages());
        messages.push(Message::request(request::GET_FEATURES, &[], vec![]));
        if let Err(error) = self.ask_current(&messages, None) {
            warn!("the rings were not started again: {error}");
        }
        self.kick();
    }

    /// Starts the rings at the new daemon. It is behind `connection`, which becomes the one to the daemon before.
    pub(super) fn start_rings(&mut self, connection: &mut Connection) {
        let Some(relay) = &mut self.relay else { return };
        std::mem::swap(&mut relay.daemon, connection);
        let mut messages = relay.setup.start_messages();
        messages.push(Message::request(request::GET_FEATURES, &[], vec![]));
        if let Err(error) = self.ask_current(&messages, Some(Instant::now() + STEP_MAX)) {
            error!("the rings do not start at the new daemon, so the share stands still: {error}");
        }
        self.kick();
    }

    /// Kicks all rings: a kick may have gone to the daemon before, which had stopped by then.
    fn kick(&self) {
        let Some(relay) = &self.relay else { return };
        for kick in relay.setup.kicks().filter(|kick| is_event_fd(kick)) {
            // A full counter is a kick, too. The daemon has made the descriptor non-blocking.
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }
}

/// Returns whether `fd` is an eventfd, for which fstat(2) reports no file type.
fn is_event_fd(fd: &OwnedFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Unknown)
}
