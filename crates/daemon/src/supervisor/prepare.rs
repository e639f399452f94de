//! The first half of an upgrade, during which the guest does not wait: another daemon is started, isolates itself, and
//! is set up as the front end has set up the present one. Messages of the front end pass meanwhile.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    task::Poll,
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    fs::{FileType, fstat},
};

use super::{
    Supervisor, executable,
    generation::Generation,
    message::{Connection, Message, Received},
    request,
    signals::WaitError,
    step::{Refusal, STEP_MAX},
};
use crate::upgrade::control::{Answer, Order, VERSION};

/// How long a new daemon may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long the status of a daemon may take that has closed its channel.
const STATUS_MAX: Duration = Duration::from_secs(1);
/// How many daemons are started for one upgrade. Another one is needed if the front end has changed what it has set up.
const ATTEMPTS_MAX: usize = 5;

/// A daemon that is ready to take the session over.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) daemon: Generation,
    /// The connection to it, which is set up, unless there is no front end.
    pub(super) connection: Option<Connection>,
}

/// Whose messages pass while the supervisor waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// Both sides': the front end does not notice the upgrade.
    All,
    /// Nobody's: what the front end has set up stays as it is.
    Nothing,
}

impl Supervisor {
    /// Starts a daemon that is set up like the present one, except for the rings. The front end's next messages wait
    /// until the caller passes them on.
    ///
    /// # Errors
    ///
    /// With the reason. Nothing has changed for the guest.
    pub(super) fn prepare(&mut self) -> Result<Prepared, Refusal> {
        executable::check(&self.executable, self.writable_share.as_deref())?;
        self.check_front_end()?;
        self.order_current(&Order::Check, Instant::now() + STEP_MAX)?;
        for _ in 0..ATTEMPTS_MAX {
            let started = self.launch.start(&self.executable);
            let mut daemon = started.map_err(|error| format!("cannot start {}: {error}", self.executable.display()))?;
            let mut connection = None;
            let outcome = self.make_ready(&mut daemon, &mut connection);
            if outcome == Ok(true) {
                return Ok(Prepared { daemon, connection });
            }
            daemon.kill();
            self.retire(daemon, connection);
            outcome?;
        }
        Err(format!("the front end has changed the device {ATTEMPTS_MAX} times meanwhile: try again"))
    }

    /// Waits for the daemon and sets it up. Returns false if the front end has changed something since.
    fn make_ready(&mut self, next: &mut Generation, connection: &mut Option<Connection>) -> Result<bool, Refusal> {
        self.wait_until_ready(next)?;
        if self.current.ended().is_some() {
            return Err("the present daemon has ended".into());
        }
        let Some(setup) = self.setup_version() else { return Ok(true) };
        self.check_front_end()?;
        let connected = next.connect().and_then(Connection::new);
        let connected = connected.map_err(|error| format!("cannot connect to the new daemon: {error}"))?;
        self.set_up(connection.insert(connected), (Instant::now() + STEP_MAX, Passing::All))?;
        self.settle()?;
        Ok(self.setup_version() == Some(setup))
    }

    /// Returns a value that differs once another front end has come, or it has changed what it has set up.
    fn setup_version(&self) -> Option<(u64, u64)> {
        self.relay.as_ref().map(|relay| (self.front_ends, relay.setup.changes()))
    }

    /// Fails if what the front end does cannot go on at another daemon.
    pub(super) fn check_front_end(&self) -> Result<(), Refusal> {
        let Some(relay) = &self.relay else { return Ok(()) };
        if relay.is_stopping {
            return Err(
                "an earlier upgrade still waits for the requests in flight: try again when they are done".into()
            );
        }
        if let Some(obstacle) = relay.setup.obstacle() {
            return Err(obstacle);
        }
        if !relay.setup.kicks().all(|kick| is_event_fd(kick)) {
            return Err("the front end kicks with something other than an eventfd".into());
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, next: &mut Generation) -> Result<(), Refusal> {
        let deadline = Instant::now() + READY_MAX;
        match self.answer_of(next, deadline, Passing::All) {
            Ok(Some(Answer::Ready(VERSION))) => Ok(()),
            Ok(Some(Answer::Ready(version))) => {
                Err(format!("the new daemon expects another supervisor (version {version}): restart the daemon"))
            }
            Ok(Some(Answer::Refused(reason))) => Err(format!("the new daemon refuses: {reason}")),
            Ok(Some(Answer::Done | Answer::Restarted(_))) => Err("the new daemon sent an unexpected answer".into()),
            Ok(None) => {
                let status = self.status_of(next);
                let status = status.map_or("without a status".into(), |status| format!("with status {status}"));
                Err(format!("{} has ended {status} before it was ready", self.executable.display()))
            }
            Err(WaitError::TimedOut) => {
                Err(format!("{} is not ready after {} s", self.executable.display(), READY_MAX.as_secs()))
            }
            Err(WaitError::Unknown) => {
                Err(format!("{} is not a transomd of this kind: it sent an unknown answer", self.executable.display()))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the exit status of a daemon that has closed its channel, if it ends.
    fn status_of(&mut self, next: &mut Generation) -> Option<i32> {
        let deadline = Instant::now() + STATUS_MAX;
        loop {
            match next.ended() {
                None => self.wait_for(None, deadline, Passing::All).ok()?,
                status => return status,
            }
        }
    }

    /// Has the present daemon carry out an order.
    pub(super) fn order_current(&mut self, order: &Order, deadline: Instant) -> Result<(), Refusal> {
        self.current.order(order).map_err(|error| format!("the present daemon takes no orders: {error}"))?;
        self.outcome_at_current(deadline)
    }

    /// Waits until the present daemon has dealt with all that the front end has sent and that was passed on.
    fn settle(&mut self) -> Result<(), Refusal> {
        let barrier = Message::request(request::GET_FEATURES, &[], vec![]);
        self.ask_current(&[barrier], Instant::now() + STEP_MAX).map(drop).map_err(|error| match error {
            WaitError::TimedOut => "the present daemon is still busy with a message of the front end: try again".into(),
            error => error.to_string(),
        })
    }

    /// Sets the new daemon up like the present one, except for the rings.
    pub(super) fn set_up(
        &mut self,
        connection: &mut Connection,
        (deadline, passing): (Instant, Passing),
    ) -> Result<(), Refusal> {
        let Some(relay) = &self.relay else { return Ok(()) };
        let (features, protocol_features) = relay.setup.features();
        let messages = relay.setup.messages();
        let offers = [
            (request::GET_FEATURES, features, "features"),
            (request::GET_PROTOCOL_FEATURES, protocol_features, "protocol features"),
        ];
        for (number, used, what) in offers {
            let reply = self.ask_next(connection, &[], number, (deadline, passing))?;
            let missing = used & !reply.u64_at(0).unwrap_or(0);
            if missing != 0 {
                return Err(format!("the new daemon lacks {what} {missing:#x}, which the front end uses"));
            }
        }
        self.ask_next(connection, &messages, request::GET_FEATURES, (deadline, passing)).map(drop)
    }

    /// Sends `messages` to the new daemon, then the request `number`, and returns the reply to that.
    pub(super) fn ask_next(
        &mut self,
        connection: &mut Connection,
        messages: &[Message],
        number: u32,
        (deadline, passing): (Instant, Passing),
    ) -> Result<Message, Refusal> {
        let last = Message::request(number, &[], vec![]);
        let mut unsent = messages.iter().chain([&last]);
        let failed = |error: std::io::Error| format!("the new daemon does not accept the set-up: {error}");
        loop {
            connection.flush().map_err(failed)?;
            if !connection.has_unsent()
                && let Some(message) = unsent.next()
            {
                connection.send(message).map_err(failed)?;
                continue;
            }
            match connection.receive().map_err(failed)? {
                Received::Message(message) if message.number() == number => return Ok(message),
                Received::Message(_) if Instant::now() < deadline => {}
                Received::End => return Err("the new daemon does not accept the set-up".into()),
                Received::Message(_) | Received::Nothing => {
                    let events = if connection.has_unsent() { PollFlags::OUT } else { PollFlags::IN };
                    let waited = self.wait_for(Some((connection.as_fd(), events)), deadline, passing);
                    waited.map_err(|error| format!("the new daemon does not answer: {error}"))?;
                }
            }
        }
    }

    /// Waits for the outcome of the last order to the present daemon.
    pub(super) fn outcome_at_current(&mut self, deadline: Instant) -> Result<(), Refusal> {
        match super::answer_of(&mut self.signals, &mut self.current, Some(deadline)) {
            Ok(Some(Answer::Done)) => Ok(()),
            Ok(Some(Answer::Refused(reason))) => Err(reason),
            Ok(Some(Answer::Ready(_) | Answer::Restarted(_))) | Err(WaitError::Unknown) => {
                Err("the present daemon sent an unexpected answer".into())
            }
            Ok(None) => Err("the present daemon has ended".into()),
            Err(WaitError::TimedOut) => Err("the present daemon does not answer in time: try again".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits for an answer of the new daemon. Returns `None` if it has ended.
    pub(super) fn answer_of(
        &mut self,
        next: &mut Generation,
        deadline: Instant,
        passing: Passing,
    ) -> Result<Option<Answer>, WaitError> {
        loop {
            match super::answer_now(next)? {
                Poll::Ready(answer) => return Ok(answer),
                Poll::Pending => self.wait_for(Some((next.as_fd(), PollFlags::IN)), deadline, passing)?,
            }
        }
    }

    /// Waits for an event or a signal, while messages pass.
    fn wait_for(
        &mut self,
        event: Option<(BorrowedFd<'_>, PollFlags)>,
        deadline: Instant,
        passing: Passing,
    ) -> Result<(), WaitError> {
        let mut fds: Vec<_> = event.into_iter().collect();
        if passing == Passing::All {
            fds.extend(super::connection_events(self.relay.as_ref(), &self.listener, self.may_accept()));
        }
        self.signals.wait(&fds, Some(deadline))?;
        if passing == Passing::All {
            self.pass();
            self.accept();
        }
        Ok(())
    }
}

/// Returns whether `fd` is an eventfd, for which fstat(2) reports no file type.
fn is_event_fd(fd: &OwnedFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Unknown)
}
