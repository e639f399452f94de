//! Machines that stay: one process keeps a machine, others run commands in it.
//!
//! [`Claim`] is the name of a machine, held by the process that keeps it. [`hub`] takes the requests of others there,
//! and [`call`](call()) is a command from their side. In the guest, [`agent::serve`](crate::agent) runs the commands.
//! All share one connection to the guest by [`frame`]s with [`credit`]: the channels that carry standard input and
//! output of the only command in other machines.

mod call;
mod claim;
mod copy;
pub(crate) mod credit;
pub(crate) mod frame;
pub(crate) mod hub;
pub(crate) mod messages;
pub(crate) mod shares;

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::{
    call::{CallOptions, Called, CallerStreams, call},
    claim::{Claim, READY},
    copy::{copy_in, copy_out},
    messages::{Exec, Program, RunningCommand, SharedDirectory, Status},
    shares::{ParseShare, ShareChanged, ShareRequest},
};
use self::{
    claim::{Files, Holder},
    frame::{Frame, START_MAX},
    messages::Request,
};
use crate::{Error, GuestSpec, Result, Root, RunOutcome, Vmm};

/// Starts the machine of `spec` under `vmm` and keeps it until somebody stops it. The command of `spec` is not run.
/// `parse` makes the shares that are added later.
///
/// Once commands can be run, writes [`READY`] to standard output, which must be a pipe or the like.
///
/// # Errors
///
/// As [`run`](crate::run()).
pub fn keep(spec: &GuestSpec, vmm: &dyn Vmm, claim: &Arc<Claim>, parse: Arc<dyn ParseShare>) -> Result<RunOutcome> {
    let keeper = Keeper { claim: Arc::clone(claim), description: describe(spec, vmm), parse };
    crate::run::follow(spec, vmm, Some(&keeper))
}

/// How long the process that keeps a machine may take to say what the machine does, for which it asks nobody.
const STATUS_MAX: Duration = Duration::from_secs(30);

/// What turns a run into a machine that stays.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) claim: Arc<Claim>,
    /// What the machine is, before it does anything.
    pub(crate) description: Status,
    pub(crate) parse: Arc<dyn ParseShare>,
}

/// A connection to the process that keeps a machine.
#[derive(Debug)]
pub struct Machine {
    name: String,
    connection: UnixStream,
}

/// What a name stands for.
#[derive(Debug)]
pub enum State {
    /// The machine does not run commands yet.
    Starting,
    /// The machine runs commands.
    Running(Status),
    /// The machine has ended by itself, as the error says. Its name is free now.
    Ended(Error),
}

impl Machine {
    /// Connects to the machine `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such machine, if it is not ready, or if it has ended by itself, with the reason.
    pub fn connect(name: &str) -> Result<Self> {
        match Files::of(name)?.holder()? {
            Holder::Running(connection) => Ok(Self { name: name.to_owned(), connection }),
            Holder::Starting => Err(Error::Usage(format!("the machine {name} is still starting"))),
            Holder::Ended(log) => Err(ended(name, &log)),
            Holder::Nobody => Err(Error::Usage(format!(
                "there is no machine {name}: `transom ps` lists those that are there, `transom run --keep {name}` \
                 starts one"
            ))),
        }
    }

    /// Returns what the machine is doing.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine ends meanwhile.
    pub fn status(mut self) -> Result<Status> {
        let limit = self.connection.set_read_timeout(Some(STATUS_MAX));
        limit.map_err(Error::io("cannot limit the time"))?;
        self.ask(&Request::Status)?;
        let frame = Frame::read(&mut self.connection, START_MAX).and_then(|frame| match frame {
            Some(frame) => frame.parse(),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        frame.map_err(Error::io(format!("the machine {} does not answer", self.name)))
    }

    /// Stops the machine, and returns what is to be told about it: warnings, and what became of its overlays. Blocks
    /// until the machine has ended, but not for longer than `timeout`. With `is_forced`, the guest is not asked, and
    /// what its programs have not written is lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine has not ended in time. It goes on with its end.
    pub fn stop(mut self, is_forced: bool, timeout: Duration) -> Result<String> {
        let name = self.name.clone();
        self.ask(&Request::Stop { is_forced })?;
        let until = Instant::now().checked_add(timeout);
        let (mut log, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
            let limited = self.connection.set_read_timeout(left);
            match limited.and_then(|()| self.connection.read(&mut chunk)) {
                Ok(0) => return Ok(String::from_utf8_lossy(&log).into_owned()),
                Ok(len) => log.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let next = match is_forced {
                        true => "end its process, which `transom ps` shows".into(),
                        false => format!("wait, or end it without that: transom stop --force {name}"),
                    };
                    return Err(Error::Usage(format!(
                        "the machine {name} has not ended within {} s: its programs, or what they have written, are \
                         not finished, or its guest does not answer; it goes on: {next}",
                        timeout.as_secs_f32()
                    )));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(format!("the machine {name} does not answer"))(error)),
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<()> {
        let asked = Frame::message(0, request).and_then(|frame| frame.write(&mut self.connection));
        asked.map_err(Error::io(format!("cannot talk to the machine {}", self.name)))
    }
}

/// Returns the machines of this user, by name. Frees the names of those that have ended.
///
/// # Errors
///
/// Returns an error if the directory of the names cannot be used.
pub fn machines() -> Result<Vec<(String, State)>> {
    let mut machines = Vec::new();
    for name in Files::names()? {
        let state = match Files::of(&name).and_then(|files| files.holder()) {
            Ok(Holder::Running(connection)) => match (Machine { name: name.clone(), connection }).status() {
                Ok(status) => State::Running(status),
                // It ends just now.
                Err(_) => continue,
            },
            Ok(Holder::Starting) => State::Starting,
            Ok(Holder::Ended(log)) => State::Ended(ended(&name, &log)),
            // The file of another program.
            Ok(Holder::Nobody) | Err(_) => continue,
        };
        machines.push((name, state));
    }
    Ok(machines)
}

/// Returns the error for a machine that has ended by itself.
fn ended(name: &str, log: &str) -> Error {
    let log = log.trim_end();
    let said = if log.is_empty() { String::new() } else { format!(":\n{log}") };
    Error::Usage(format!("the machine {name} has ended{said}"))
}

fn describe(spec: &GuestSpec, vmm: &dyn Vmm) -> Status {
    Status {
        since: 0,
        pid: std::process::id(),
        vmm: vmm.name().into(),
        memory_mib: spec.memory_mib,
        cpus: spec.cpus,
        root: match &spec.root {
            Root::Host(root) => Some(PathBuf::from(&root.host)),
            Root::Minimal => None,
        },
        shares: spec.shares.iter().map(SharedDirectory::of).collect(),
        commands: Vec::new(),
    }
}
