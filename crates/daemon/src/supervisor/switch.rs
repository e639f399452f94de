//! The upgrade: another daemon takes the session over while the front end waits for nothing but an answer.
//!
//! 1. [`prepare`](super::prepare) starts the new daemon and sets it up like the present one.
//! 2. The rings are stopped, which finishes the requests in flight. The guest waits from here on, and messages of the
//!    front end wait in its socket.
//! 3. The session moves, with its open files and its locks.
//! 4. The rings are set up at the new daemon, which says that it accepts them, and that the session is its own.
//! 5. The rings are enabled. The present daemon ends without touching the session.
//!
//! If anything before 5 fails, or 2 to 4 take longer than [`PAUSE_MAX`], the rings start again at the present daemon
//! and the new one is killed. After 5 the new one has served requests, of which the present one knows nothing.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tracing::{error, info, warn};

use super::{
    Supervisor,
    generation::Generation,
    message::{Connection, Message},
    prepare::{Passing, Prepared},
    relay::Passed,
    request,
    signals::WaitError,
    step::{Refusal, STEP_MAX},
};
use crate::upgrade::control::{Answer, Order, packet_pair};

/// How long the guest may have to wait. Then the present daemon goes on.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What came of an upgrade that has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpgradeError {
    /// The guest notices nothing.
    #[error("not upgraded, and the present daemon goes on: {0}")]
    Refused(Refusal),
    /// Neither daemon serves the rings.
    #[error("the share is lost: {0}: restart the guest, or unplug its device and plug it in again")]
    Broken(String),
}

impl Supervisor {
    /// Replaces the daemon. Returns for how long the rings were stopped.
    pub(super) fn upgrade(&mut self) -> Result<Duration, UpgradeError> {
        let Prepared { mut daemon, mut connection } = self.prepare().map_err(UpgradeError::Refused)?;
        let Some(connected) = &mut connection else {
            self.replace_current(daemon, None);
            return Ok(Duration::ZERO);
        };
        let begun = Instant::now();
        match self.move_to(&mut daemon, connected, begun + PAUSE_MAX) {
            Ok(()) => {
                let served = self.serve_rings(connected);
                self.replace_current(daemon, connection);
                served.map(|()| begun.elapsed())
            }
            Err(error) => {
                // It may share locks, so it must not end by itself.
                daemon.kill();
                self.retire(daemon, connection);
                Err(error)
            }
        }
    }

    /// Makes `next` the present daemon. `connection` is the one to the daemon before, which ends.
    fn replace_current(&mut self, next: Generation, connection: Option<Connection>) {
        let mut before = std::mem::replace(&mut self.current, next);
        // If it does not end, it is killed.
        let _ = before.order(&Order::End);
        self.retire(before, connection);
    }

    /// Moves the session to `next`, whose rings are then set up but not served. If that fails, the present daemon
    /// serves them again.
    fn move_to(
        &mut self,
        next: &mut Generation,
        connection: &mut Connection,
        deadline: Instant,
    ) -> Result<(), UpgradeError> {
        let bases = self.stop_rings(deadline).map_err(UpgradeError::Refused)?;
        let moved = self
            .hand_over(next, deadline)
            .and_then(|()| self.set_rings_up(connection, &bases, deadline))
            .and_then(|()| self.entrust(next, deadline));
        let Err(refusal) = moved else { return Ok(()) };
        // First the end of the new one, which shares what is open.
        next.kill();
        match self.restart_rings(&bases) {
            Ok(()) => Err(UpgradeError::Refused(refusal)),
            Err(error) => Err(UpgradeError::Broken(format!("{refusal}; {error}"))),
        }
    }

    /// Stops the rings at the present daemon, which finishes what is in flight. Returns where they stand.
    ///
    /// At the deadline, the daemon is still about to stop them, so that they start again only once it has:
    /// [`Supervisor::restart_when_stopped`].
    fn stop_rings(&mut self, deadline: Instant) -> Result<BTreeMap<u32, u32>, Refusal> {
        let rings = self.relay.as_ref().map(|relay| relay.setup.running()).unwrap_or_default();
        let ask = |ring: &u32| {
            let payload = u64::from(*ring).to_le_bytes();
            Message::request(request::GET_VRING_BASE, &payload, vec![])
        };
        let messages: Vec<_> = rings.iter().map(ask).collect();
        match self.ask_current(&messages, deadline) {
            Ok(replies) => Ok(bases(&replies)),
            Err(WaitError::TimedOut) => {
                if let Some(relay) = &mut self.relay {
                    relay.is_stopping = true;
                }
                let limit = PAUSE_MAX.as_secs();
                Err(format!(
                    "requests in flight are not finished after {limit} s; the guest goes on as soon as they are"
                ))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Starts the rings again once the present daemon has stopped them, after an upgrade that was given up.
    pub(super) fn restart_when_stopped(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        if !relay.is_stopping || relay.is_asked() {
            return;
        }
        relay.is_stopping = false;
        let bases = bases(&relay.take_answers());
        match self.restart_rings(&bases) {
            Ok(()) => info!("the requests in flight are finished, and the guest goes on"),
            Err(error) => error!("{error}"),
        }
    }

    /// Sends requests to the present daemon, and returns the replies once all have come. What the daemon sends to the
    /// front end is passed on.
    pub(super) fn ask_current(&mut self, messages: &[Message], deadline: Instant) -> Result<Vec<Message>, WaitError> {
        let Some(relay) = &mut self.relay else { return Ok(Vec::new()) };
        // Replies to an earlier attempt.
        drop(relay.take_answers());
        let mut unsent = messages.iter();
        loop {
            let went_on = relay.flush().and_then(|()| relay.pass_replies());
            if !matches!(went_on, Ok(Passed::GoesOn)) {
                return Err(WaitError::Gone);
            }
            if !relay.daemon.has_unsent()
                && let Some(message) = unsent.next()
            {
                relay.ask(message).map_err(|_| WaitError::Gone)?;
                continue;
            }
            if unsent.as_slice().is_empty() && !relay.is_asked() {
                return Ok(relay.take_answers());
            }
            self.signals.wait(&relay.awaited_from_daemon(), Some(deadline))?;
        }
    }

    /// Moves the session from the present daemon to the new one.
    fn hand_over(&mut self, next: &mut Generation, deadline: Instant) -> Result<(), Refusal> {
        let (from, to) = packet_pair().map_err(|error| format!("cannot create a socket: {error}"))?;
        let ordered = next.order(&Order::TakeOver(to));
        ordered.map_err(|error| format!("the new daemon takes no orders: {error}"))?;
        let ordered = self.current.order(&Order::HandOver(from));
        ordered.map_err(|error| format!("the present daemon takes no orders: {error}"))?;
        let theirs = self.answer_of(next, deadline, Passing::Nothing);
        if !matches!(theirs, Ok(Some(Answer::Done))) {
            // Nobody reads what the present daemon may still be sending.
            next.kill();
        }
        if matches!(theirs, Err(WaitError::TimedOut)) {
            return Err(format!("the session is not at the new daemon after {} s", PAUSE_MAX.as_secs()));
        }
        let ours = self.outcome_at_current(deadline);
        match theirs {
            Ok(Some(Answer::Done)) => ours,
            Ok(Some(Answer::Refused(reason))) => Err(match ours {
                Ok(()) => format!("the new daemon refuses the session: {reason}"),
                // Whichever was first, the other has lost its peer.
                Err(ours) => format!("{ours} (the new daemon: {reason})"),
            }),
            Ok(Some(Answer::Ready(_) | Answer::Restarted(_)) | None) => {
                Err("the new daemon has ended while it took the session over".into())
            }
            Err(error) => Err(format!("the new daemon does not take the session over: {error}")),
        }
    }

    pub(super) fn set_rings_up(
        &mut self,
        connection: &mut Connection,
        bases: &BTreeMap<u32, u32>,
        deadline: Instant,
    ) -> Result<(), Refusal> {
        let messages = self.relay.as_ref().map(|relay| relay.setup.ring_messages(bases)).unwrap_or_default();
        self.ask_next(connection, &messages, request::GET_FEATURES, (deadline, Passing::Nothing)).map(drop)
    }

    /// Lets the new daemon treat the session as its own. Until it answers, it would not survive the end of its
    /// connection.
    fn entrust(&mut self, next: &mut Generation, deadline: Instant) -> Result<(), Refusal> {
        let ordered = next.order(&Order::Begin);
        ordered.map_err(|error| format!("the new daemon takes no orders: {error}"))?;
        match self.answer_of(next, deadline, Passing::Nothing) {
            Ok(Some(Answer::Done)) => Ok(()),
            Ok(_) => Err("the new daemon has ended while it took the session over".into()),
            Err(error) => Err(format!("the new daemon does not take the session over: {error}")),
        }
    }

    /// Starts rings again that the present daemon has stopped at `bases`.
    fn restart_rings(&mut self, bases: &BTreeMap<u32, u32>) -> Result<(), String> {
        let Some(relay) = &self.relay else { return Ok(()) };
        let mut messages = relay.setup.restart_messages(bases);
        messages.push(Message::request(request::GET_FEATURES, &[], vec![]));
        let asked = self.ask_current(&messages, Instant::now() + STEP_MAX);
        asked.map(drop).map_err(|error| format!("the present daemon does not start the rings again: {error}"))
    }

    /// Lets the new daemon serve the rings. It is behind `connection`, which becomes the one to the daemon before.
    pub(super) fn serve_rings(&mut self, connection: &mut Connection) -> Result<(), UpgradeError> {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        std::mem::swap(&mut relay.daemon, connection);
        let mut messages = relay.setup.serve_messages();
        messages.push(Message::request(request::GET_FEATURES, &[], vec![]));
        let asked = self.ask_current(&messages, Instant::now() + STEP_MAX);
        asked.map(drop).map_err(|error| {
            warn!(%error, "the new daemon has the session, and does not serve it");
            UpgradeError::Broken(format!("the new daemon has the session, and does not start the rings: {error}"))
        })
    }
}

/// Returns where the rings stand, from the replies to GET_VRING_BASE.
fn bases(replies: &[Message]) -> BTreeMap<u32, u32> {
    let replies = replies.iter().filter(|reply| reply.number() == request::GET_VRING_BASE);
    replies.filter_map(|reply| Some((reply.u32_at(0)?, reply.u32_at(4)?))).collect()
}
