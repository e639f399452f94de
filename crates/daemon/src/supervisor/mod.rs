//! The process that stays when the daemon is upgraded: `--upgradable`.
//!
//! It is the process that the caller has started. It owns the sockets and the front end's connection, and starts the
//! daemon as a child ([`generation`]), which isolates itself as ever. Messages between the front end and the daemon
//! pass through it ([`relay`], [`message`]), and it records what sets the device up ([`setup`]). Requests of the guest
//! do not pass: kicks, calls and memory are descriptors, which the daemon has itself. On SIGHUP ([`signals`]), or when
//! [`command`] requests it, [`prepare`] starts another daemon, if [`executable`] lets it, and [`switch`] moves the
//! session there. With `--resilient`, [`resilience`] goes on after the death of the process that serves.
//!
//! The supervisor has one thread. It never reads what a guest has written, and maps no memory of a guest. A daemon may
//! be in the hands of its guest: whatever it sends or leaves unanswered, the supervisor waits for a limited time, keeps
//! a limited amount of it, and still answers signals.

pub mod command;
mod executable;
mod generation;
mod message;
mod prepare;
mod relay;
mod request;
mod resilience;
mod setup;
mod signals;
mod step;
mod switch;

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{event::PollFlags, process::Signal};
use tracing::{debug, error, info, warn};
use transom_host::survival::{Feature, Way};

use crate::{
    listen::{self, Listening, Traces},
    options::{Endpoint, Options},
    sandbox,
    upgrade::control::Answer,
};
use command::Commands;
use generation::{Generation, Launch};
use message::Connection;
use relay::{Passed, Relay};
use signals::{Signals, WaitError};
use switch::UpgradeError;

/// How long a daemon that was told to end may take.
const RETIRED_MAX: Duration = Duration::from_secs(5);
/// Pause before accepting again after a failure, of descriptors for example.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// What the first daemon is started from: this executable, even if its file was replaced meanwhile.
const THIS_EXECUTABLE: &str = "/proc/self/exe";

/// The supervisor of one socket.
struct Supervisor {
    launch: Launch,
    /// What an upgrade starts.
    executable: PathBuf,
    /// What guests can write, if they can write anything.
    writable_share: Option<PathBuf>,
    listener: UnixListener,
    keeps_serving: bool,
    /// The session survives the process that serves it.
    is_resilient: bool,
    commands: Option<Commands>,
    signals: Signals,
    current: Generation,
    relay: Option<Relay>,
    /// Number of front ends that have connected.
    front_ends: u64,
    retired: Vec<Retired>,
}

/// A daemon that is about to end.
struct Retired {
    generation: Generation,
    /// Stays open until the daemon has ended. Otherwise it would end its session, and release locks that another daemon
    /// has now.
    _connection: Option<Connection>,
    deadline: Instant,
}

/// Serves until the daemon ends, and returns its exit status. Must be called before the first thread starts.
///
/// # Errors
///
/// If the daemon cannot be started.
pub fn run(options: &Options, listening: Listening, arguments: Vec<OsString>) -> anyhow::Result<i32> {
    let Listening { listener, mut traces } = listening;
    // The path, not the link: an upgrade starts the file that is there by then.
    let executable = std::env::current_exe().context("cannot find this executable")?;
    let metrics = options.metrics_socket.as_ref().map(|path| listen::open_private(path, &mut traces)).transpose()?;
    let commands = commands(options, &listener, &mut traces)?;
    listener.set_nonblocking(true).context("cannot prepare the socket")?;
    let writable_share = (!options.share.is_readonly).then(|| options.share.path.clone());
    if let Err(reason) = executable::check(&executable, writable_share.as_deref()) {
        warn!("upgrades will be refused: {reason}");
    }
    let mut signals = Signals::new().context("cannot wait for signals")?;
    sandbox::reduce_effective_capabilities();
    let launch = Launch { arguments, metrics };
    let mut current = launch.start(THIS_EXECUTABLE.as_ref()).context("cannot start the daemon")?;
    // Nothing limits the start of the first daemon, which no guest can have reached yet.
    let Ok(Some(Answer::Ready(_))) = answer_of(&mut signals, &mut current, None) else {
        current.signal(Signal::TERM);
        return Ok(end(&traces, &mut current));
    };
    // Programs that start daemons wait for this message.
    info!("Waiting for vhost-user socket connection...");
    let (keeps_serving, is_resilient) = (options.socket.keep_serving, options.socket.resilient);
    let (relay, retired) = (None, Vec::new());
    let mut supervisor = Supervisor {
        launch,
        executable,
        writable_share,
        listener,
        keeps_serving,
        is_resilient,
        commands,
        signals,
        current,
        relay,
        front_ends: 0,
        retired,
    };
    let status = supervisor.attend();
    traces.remove();
    Ok(status)
}

/// Waits for the end of a daemon that is to end or has done so already.
fn end(traces: &Traces, daemon: &mut Generation) -> i32 {
    let status = daemon.wait();
    traces.remove();
    status
}

fn commands(options: &Options, listener: &UnixListener, traces: &mut Traces) -> anyhow::Result<Option<Commands>> {
    match &options.socket.endpoint {
        Endpoint::Path { path, .. } => Ok(Some(Commands::open(path, traces)?)),
        Endpoint::Nowhere => Ok(None),
        Endpoint::Inherited(_) => {
            let opened = command::path_of(listener).map(|path| Commands::open(&path, traces)).transpose();
            Ok(opened.unwrap_or_else(|error| {
                warn!(%error, "only SIGHUP can ask for an upgrade");
                None
            }))
        }
    }
}

/// Returns the answer to the last order to `daemon`, if it has come, or `None` if the daemon has ended.
fn answer_now(daemon: &mut Generation) -> Result<Poll<Option<Answer>>, WaitError> {
    match daemon.answer() {
        Ok(answer) => Ok(Poll::Ready(answer)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Poll::Pending),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Poll::Ready(None)),
        Err(error) => {
            warn!(%error, pid = daemon.pid(), "a daemon does not keep to the protocol");
            Err(WaitError::Unknown)
        }
    }
}

/// Waits for the answer to the last order to `daemon`. Returns `None` if it has ended.
fn answer_of(
    signals: &mut Signals,
    daemon: &mut Generation,
    deadline: Option<Instant>,
) -> Result<Option<Answer>, WaitError> {
    loop {
        match answer_now(daemon)? {
            Poll::Ready(answer) => return Ok(answer),
            Poll::Pending => signals.wait(&[(daemon.as_fd(), PollFlags::IN)], deadline)?,
        }
    }
}

/// Returns what to wait for before messages can pass, or a front end can be accepted.
fn connection_events<'a>(
    relay: Option<&'a Relay>,
    listener: &'a UnixListener,
    may_accept: bool,
) -> Vec<(BorrowedFd<'a>, PollFlags)> {
    match relay {
        Some(relay) => relay.awaited(),
        None if may_accept => vec![(listener.as_fd(), PollFlags::IN)],
        None => Vec::new(),
    }
}

impl Supervisor {
    /// Passes messages on and upgrades until the daemon has ended. Returns its exit status.
    fn attend(&mut self) -> i32 {
        let mut kill_at = None;
        loop {
            if let Some(status) = self.current.ended() {
                return status;
            }
            self.bury();
            if self.signals.is_ending {
                let kill_at = *kill_at.get_or_insert_with(|| {
                    self.current.signal(Signal::TERM);
                    Instant::now() + RETIRED_MAX
                });
                if Instant::now() >= kill_at {
                    warn!(pid = self.current.pid(), "the daemon does not end: killing it");
                    self.current.kill();
                    return self.current.wait();
                }
            }
            match self.wait(kill_at) {
                Ok(()) | Err(WaitError::TimedOut | WaitError::Ending | WaitError::Gone | WaitError::Unknown) => {}
                Err(error @ WaitError::Failed(_)) => {
                    error!("{error}");
                    self.current.kill();
                    return self.current.wait();
                }
            }
            if !self.signals.is_ending {
                self.go_on_after_death();
                self.pass();
                self.accept();
                self.upgrade_if_wanted();
            }
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let commands = self.commands.as_ref().filter(|_| !self.signals.is_ending);
        let mut fds = commands.map(Commands::awaited).unwrap_or_default();
        if !self.signals.is_ending {
            fds.extend(connection_events(self.relay.as_ref(), &self.listener, self.may_accept()));
            fds.extend(self.is_resilient.then(|| (self.current.as_fd(), PollFlags::IN)));
        }
        let retired = self.retired.iter().map(|retired| retired.deadline);
        let deadline = retired.chain(commands.and_then(Commands::deadline)).chain(deadline).min();
        self.signals.wait(&fds, deadline)
    }

    fn may_accept(&self) -> bool {
        self.keeps_serving || self.front_ends == 0
    }

    fn accept(&mut self) {
        if self.relay.is_some() || !self.may_accept() || self.has_died() {
            return;
        }
        let front_end = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                warn!(%error, "cannot accept a front end yet");
                std::thread::sleep(ACCEPT_AGAIN_AFTER);
                return;
            }
        };
        match self.current.connect().and_then(|daemon| Relay::new(front_end, daemon)) {
            Ok(relay) => {
                self.front_ends += 1;
                self.relay = Some(relay);
            }
            Err(error) => error!(%error, "cannot connect the front end to the daemon"),
        }
    }

    /// Passes messages on. Drops the connection if one side has ended it.
    fn pass(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        match relay.pass() {
            Ok(Passed::GoesOn) => return self.restart_when_stopped(),
            // Another process goes on, and has closed the connection of the one that died.
            Ok(Passed::Ended) if self.has_died() => return,
            Ok(Passed::Ended) => debug!("the connection has ended"),
            Err(error) => warn!(%error, "front end dropped for a protocol error"),
        }
        self.relay = None;
    }

    fn upgrade_if_wanted(&mut self) {
        let askers = self.commands.as_mut().map(Commands::requests).unwrap_or_default();
        if !std::mem::take(&mut self.signals.is_upgrade_wanted) && askers.is_empty() {
            return;
        }
        let outcome = match Feature::Journal.obstacle(Way::Upgrade).filter(|_| self.is_resilient) {
            Some(obstacle) => Err(UpgradeError::Refused(obstacle.to_string())),
            None => self.upgrade(),
        };
        match &outcome {
            Ok(pause) => info!(pid = self.current.pid(), pause_us = pause.as_micros() as u64, "upgraded"),
            Err(error) => error!("{error}"),
        }
        askers.into_iter().for_each(|asker| asker.tell(&outcome));
    }

    /// Looks after daemons that are about to end.
    fn bury(&mut self) {
        self.retired.retain_mut(|retired| {
            if Instant::now() >= retired.deadline {
                warn!(pid = retired.generation.pid(), "a daemon does not end: killing it");
                retired.generation.kill();
                retired.deadline += RETIRED_MAX;
            }
            retired.generation.ended().is_none()
        });
    }

    fn retire(&mut self, generation: Generation, connection: Option<Connection>) {
        self.retired.push(Retired { generation, _connection: connection, deadline: Instant::now() + RETIRED_MAX });
    }
}
