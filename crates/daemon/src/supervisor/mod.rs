//! The process that stays when the daemon is upgraded: `--upgradable`.
//!
//! It is the process that the caller has started. It owns the sockets and the front end's connection, and starts the
//! daemon as a child ([`generation`]), which isolates itself as ever. Messages between the front end and the daemon
//! pass through it ([`relay`], [`message`]), and it records what sets the device up ([`setup`]). Requests of the guest
//! do not pass: kicks, calls and memory are descriptors, which the daemon has itself. On SIGHUP ([`signals`]), or when
//! [`command`] requests it, [`switch`] starts another daemon and moves the session there. With
//! `--resilient`, [`resilience`] goes on after the death of the process that serves.
//!
//! The supervisor has one thread. It never reads what a guest has written, and maps no memory of a guest.

pub mod command;
mod generation;
mod message;
mod relay;
mod resilience;
mod setup;
mod signals;
mod switch;

use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd as _, unix::net::UnixListener},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{event::PollFlags, process::Signal};
use tracing::{debug, error, info, warn};

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
    listener: UnixListener,
    keeps_serving: bool,
    /// The session survives the process that serves it.
    is_resilient: bool,
    commands: Option<Commands>,
    signals: Signals,
    current: Generation,
    relay: Option<Relay>,
    /// A front end has connected.
    has_served: bool,
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
    for listener in commands.iter().map(|commands| &commands.listener).chain([&listener]) {
        command::never_block(listener).context("cannot prepare a socket")?;
    }
    let mut signals = Signals::new().context("cannot wait for signals")?;
    sandbox::reduce_effective_capabilities();
    let launch = Launch { arguments, metrics };
    let mut current = launch.start(THIS_EXECUTABLE.as_ref()).context("cannot start the daemon")?;
    let Some(Answer::Ready(_)) = switch::first_answer(&mut signals, &current) else {
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
        listener,
        keeps_serving,
        is_resilient,
        commands,
        signals,
        current,
        relay,
        has_served: false,
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
        Endpoint::Inherited(_) => {
            let opened = command::path_of(listener).map(|path| Commands::open(&path, traces)).transpose();
            Ok(opened.unwrap_or_else(|error| {
                warn!(%error, "only SIGHUP can ask for an upgrade");
                None
            }))
        }
    }
}

impl Supervisor {
    /// Passes messages on and upgrades until the daemon has ended. Returns its exit status.
    fn attend(&mut self) -> i32 {
        let mut is_told = false;
        loop {
            if let Some(status) = self.current.ended() {
                return status;
            }
            self.bury();
            if self.signals.is_ending && !std::mem::replace(&mut is_told, true) {
                self.current.signal(Signal::TERM);
            }
            match self.wait() {
                Ok(()) | Err(WaitError::TimedOut | WaitError::Ending) => {}
                Err(error @ WaitError::Failed(_)) => {
                    error!("{error}");
                    self.current.signal(Signal::TERM);
                    return self.current.wait();
                }
            }
            if self.signals.is_ending {
                continue;
            }
            self.go_on_after_death();
            self.pass();
            self.accept();
            self.upgrade_if_wanted();
        }
    }

    fn wait(&mut self) -> Result<(), WaitError> {
        let mut fds = Vec::with_capacity(4);
        fds.extend(self.commands.as_ref().map(|commands| (commands.listener.as_fd(), PollFlags::IN)));
        fds.extend(self.is_resilient.then(|| (self.current.control.as_fd(), PollFlags::IN)));
        match &self.relay {
            Some(relay) => fds.extend(relay.awaited()),
            None if self.may_accept() => fds.push((self.listener.as_fd(), PollFlags::IN)),
            None => {}
        }
        if self.signals.is_ending {
            fds.clear();
        }
        let deadline = self.retired.iter().map(|retired| retired.deadline).min();
        self.signals.wait(&fds, deadline)
    }

    fn may_accept(&self) -> bool {
        self.keeps_serving || !self.has_served
    }

    fn accept(&mut self) {
        if self.relay.is_some() || !self.may_accept() {
            return;
        }
        if self.is_resilient && switch::is_readable(&self.current.control) {
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
                self.has_served = true;
                self.relay = Some(relay);
            }
            Err(error) => error!(%error, "cannot connect the front end to the daemon"),
        }
    }

    /// Passes messages on. Drops the connection if one side has ended it.
    fn pass(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        match relay.pass() {
            Ok(Passed::GoesOn) => return,
            // Another process goes on, and has closed the connection of the one that died.
            Ok(Passed::Ended) if self.is_resilient && switch::is_readable(&self.current.control) => return,
            Ok(Passed::Ended) => debug!("the connection has ended"),
            Err(error) => warn!(%error, "front end dropped for a protocol error"),
        }
        self.relay = None;
    }

    fn upgrade_if_wanted(&mut self) {
        let asker = self.commands.as_ref().and_then(Commands::next);
        if !std::mem::take(&mut self.signals.is_upgrade_wanted) && asker.is_none() {
            return;
        }
        let outcome = match self.is_resilient {
            true => Err("a daemon with --resilient is not upgraded: its journal is for its own version".into()),
            false => self.upgrade(),
        };
        match &outcome {
            Ok(pause) => info!(pid = self.current.pid(), pause_us = pause.as_micros() as u64, "upgraded"),
            Err(reason) => error!("not upgraded, and the present daemon goes on: {reason}"),
        }
        if let Some(stream) = asker {
            command::tell(stream, outcome.as_ref().map(|&pause| pause).map_err(String::as_str));
        }
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
