//! [`Session`] follows a run from the start of the VMM to the end of the command, in one loop over events.
//!
//! Threads in [`streams`](crate::streams) move the bytes. Nothing here waits for anything but the next event.

mod restart;
mod shares;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use self::shares::LateShares;
pub(crate) use self::shares::SharedDirectories;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH},
    iterator::{Handle, Signals},
};

use crate::{
    Error, GuestSpec, Result, RunOutcome, Stdio, Timings,
    event::Event,
    keep::{
        Keeper,
        hub::{self, ForHub},
    },
    machine::Machine,
    network::{self, Network},
    protocol::{FromGuest, Milestone, Stream, ToGuest},
    streams::{self, Collected},
    terminal::{self, RawMode},
};

/// Limit for the start of the command, generous even on a busy machine.
const START_MAX: Duration = Duration::from_secs(240);
/// Limit for the first message of a guest that was resumed, which takes a part of a second on a quiet machine.
const RESUME_MAX: Duration = Duration::from_secs(30);
/// A boot that takes longer looks as if nothing happened.
const TELLS_AFTER: Duration = Duration::from_secs(2);
/// How long the command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(3);
/// How long to wait for the VMM to end after a daemon ended, since a daemon also ends because its VMM did.
const VMM_ENDS: Duration = Duration::from_millis(300);

/// The state of one run.
pub(crate) struct Session<'a> {
    spec: &'a GuestSpec,
    /// Makes the machine stay, to run commands of others.
    keeper: Option<&'a Keeper>,
    /// When the caller has begun, perhaps with another session before this one.
    begun: Instant,
    is_interrupted: Arc<AtomicBool>,
    sender: Sender<Event>,
    events: Receiver<Event>,
    signals: Option<Handle>,
    timings: Timings,
    deadline: Option<(Instant, Deadline)>,
    /// When to tell that the guest is still booting, if there is somebody to tell.
    tells_at: Option<Instant>,
    control: Option<File>,
    stdin: Option<OwnedFd>,
    /// The output of a machine that stays.
    from_guest: Option<OwnedFd>,
    raw_mode: Option<RawMode>,
    /// The guest may do what the task says, or has it from the start.
    is_going: bool,
    is_command_started: bool,
    /// A signal has ended a machine that stays.
    is_stopping: bool,
    /// The time of the last milestone.
    reached: Option<Instant>,
    arrived: [u64; 2],
    warnings: Vec<String>,
    ended: Option<Ended>,
    late_shares: LateShares,
}

/// What a deadline limits.
#[derive(Clone, Copy)]
enum Deadline {
    Start,
    Resume,
    Run(Duration),
    Signal(i32),
}

/// The agent's report.
struct Ended {
    exit_code: i32,
    bytes: [u64; 2],
    warnings: Vec<String>,
    notes: Vec<String>,
}

impl<'a> Session<'a> {
    /// Creates a session; takes over the signals if the run is in the foreground.
    pub(crate) fn new(spec: &'a GuestSpec, keeper: Option<&'a Keeper>, begun: Instant) -> Result<Self> {
        let (sender, events) = mpsc::channel();
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let watch = || watch_signals(sender.clone(), Arc::clone(&is_interrupted));
        let signals = if spec.is_foreground { Some(watch()?) } else { None };
        Ok(Self {
            spec,
            keeper,
            begun,
            is_interrupted,
            sender,
            events,
            signals,
            timings: Timings::default(),
            deadline: None,
            tells_at: None,
            control: None,
            stdin: None,
            from_guest: None,
            raw_mode: None,
            is_going: false,
            is_command_started: false,
            is_stopping: false,
            reached: None,
            arrived: [0; 2],
            warnings: Vec::new(),
            ended: None,
            late_shares: LateShares::default(),
        })
    }

    /// Follows `machine`, whose VMM was started at `started`, until the command has ended and all its output has
    /// arrived.
    pub(crate) fn follow(&mut self, machine: &mut Machine, started: Instant) -> Result<RunOutcome> {
        let [stdout, stderr] = self.connect(machine).map_err(Error::io("cannot connect the channels"))?;
        self.deadline = Some(match machine.is_resumed() {
            true => self.earlier(started + RESUME_MAX, Deadline::Resume),
            false => self.earlier(started + START_MAX, Deadline::Start),
        });
        self.is_going = !machine.is_late();
        self.reached = Some(started);
        if self.spec.is_foreground && io::stderr().is_terminal() {
            self.tells_at = Some(started + TELLS_AFTER);
        }
        let ended = loop {
            if let Some(ended) = self.ended.take_if(|ended| arrived_all(&self.arrived, &ended.bytes)) {
                break ended;
            }
            match self.next_event() {
                Ok(event) => {
                    self.handle(event, machine)?;
                    self.share_times(machine);
                }
                Err(deadline) => return Err(passed(deadline, machine)),
            }
        };
        if let Some(last) = self.reached {
            self.timings.run = last.elapsed();
        }
        self.raw_mode = None;
        let take = |collected: &Collected| std::mem::take(&mut *streams::bytes(collected));
        Ok(RunOutcome {
            exit_code: ended.exit_code,
            stdout: take(&stdout),
            stderr: take(&stderr),
            warnings: self.warnings.drain(..).chain(ended.warnings).collect(),
            notes: ended.notes,
            dax: Vec::new(),
            timings: self.timings,
        })
    }

    /// Returns whether the machine stays.
    pub(crate) fn is_kept(&self) -> bool {
        self.keeper.is_some()
    }

    /// Starts the threads of the channels, except that of the input, which waits for the command.
    fn connect(&mut self, machine: &Machine) -> io::Result<[Collected; 2]> {
        let channels = &machine.channels;
        self.control = Some(File::from(channels.control.try_clone()?));
        self.stdin = Some(channels.stdin.try_clone()?);
        streams::read_control(channels.control.try_clone()?, self.sender.clone());
        for (number, daemon) in machine.daemons.iter().enumerate() {
            watch_daemon(daemon.process.pidfd().try_clone_to_owned()?, number, self.sender.clone());
        }
        if let Network::Allowed(policy) = &self.spec.network {
            network::host::serve(channels.network.try_clone()?, Arc::clone(policy))?;
        }
        if self.is_kept() {
            self.from_guest = Some(channels.stdout.try_clone()?);
            return Ok(Default::default());
        }
        let stdio = &self.spec.stdio;
        let output =
            |channel: &OwnedFd, stream, to| streams::read_output(channel.try_clone()?, stream, to, self.sender.clone());
        Ok([
            output(&channels.stdout, Stream::Stdout, stdio.stdout)?,
            output(&channels.stderr, Stream::Stderr, stdio.stderr)?,
        ])
    }

    /// Returns the caller's deadline if it comes before this one. It holds until the command starts.
    fn earlier(&self, at: Instant, deadline: Deadline) -> (Instant, Deadline) {
        match self.spec.timeout {
            Some(timeout) if self.begun + timeout < at => (self.begun + timeout, Deadline::Run(timeout)),
            _ => (at, deadline),
        }
    }

    /// Returns the next event. Tells a person who waits for the command what goes on.
    fn next_event(&mut self) -> std::result::Result<Event, Deadline> {
        if let Some(at) = self.tells_at.take_if(|_| !self.is_command_started) {
            match self.events.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Ok(event) => {
                    self.tells_at = Some(at);
                    return Ok(event);
                }
                Err(_) => eprintln!("transom: the guest is booting; Ctrl-C stops it"),
            }
        }
        let share_time = self.late_shares.next_time();
        let received = match self.deadline.map(|(at, _)| at).into_iter().chain(share_time).min() {
            Some(at) => self.events.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match (received, self.deadline) {
            (Ok(event), _) => Ok(event),
            (Err(RecvTimeoutError::Timeout), Some((at, deadline))) if at <= Instant::now() => Err(deadline),
            (Err(RecvTimeoutError::Timeout), _) if share_time.is_some() => Ok(Event::ShareTime),
            // The session itself holds a sender, and without a deadline nothing times out.
            (Err(_), _) => unreachable!("the event channel closed while the session holds a sender"),
        }
    }

    fn handle(&mut self, event: Event, machine: &mut Machine) -> Result<()> {
        match event {
            Event::Message(message) => self.message(message, machine)?,
            Event::Garbled(what) => return Err(Error::Guest(format!("invalid message: {what}"))),
            Event::Output(stream, bytes) => self.arrived[index(stream)] = bytes,
            Event::OutputFailed(stream, error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.send(&ToGuest::Unwanted(stream));
            }
            Event::OutputFailed(_, error) => return Err(Error::io("cannot write the command's output")(error)),
            Event::InputEnded(bytes) => self.send(&ToGuest::StdinEnd { bytes }),
            // The task has the size until then, and the command gets the one of its start.
            Event::Signal(SIGWINCH) if !self.is_command_started => {}
            Event::Signal(SIGWINCH) => self.send(&ToGuest::Resize(terminal::size())),
            Event::Signal(number) => self.signal(number)?,
            Event::Share(asked) => self.change_share(asked, machine),
            Event::Plugged(daemon, outcome) => self.plugged(daemon, outcome, machine),
            Event::ShareTime => {}
            Event::Stop { is_forced: true } => return Err(Error::Forced),
            Event::Stop { is_forced: false } => self.send(&ToGuest::Finish),
            Event::ControlClosed if self.ended.is_none() => return Err(machine.ended_early()),
            Event::DaemonEnded(number)
                if machine.is_late_daemon(number) && self.late_shares.is_expected_end(number) => {}
            Event::DaemonEnded(number) if self.ended.is_none() => {
                return Err(if machine.vmm_ends(VMM_ENDS) {
                    machine.ended_early()
                } else {
                    machine.daemon_died(number)
                });
            }
            Event::ControlClosed | Event::DaemonEnded(_) => {}
        }
        Ok(())
    }

    fn message(&mut self, message: FromGuest, machine: &mut Machine) -> Result<()> {
        match message {
            FromGuest::Waiting => {
                self.warnings.extend(machine.begin()?);
                Ok(())
            }
            FromGuest::Reached { milestone, agent_us } => self.milestone(milestone, Duration::from_micros(agent_us)),
            FromGuest::Failed { message, lacks_device: true } => Err(machine.refuse_snapshots(&message)),
            FromGuest::Failed { message, lacks_device: false } => Err(Error::Guest(message)),
            FromGuest::ShareChanged { number, error } => {
                self.share_changed(number, error);
                Ok(())
            }
            FromGuest::Ended { exit_code, stdout_bytes, stderr_bytes, warnings, notes } => {
                self.ended = Some(Ended { exit_code, bytes: [stdout_bytes, stderr_bytes], warnings, notes });
                Ok(())
            }
        }
    }

    /// Records the time since the last milestone, and connects the input once the command runs.
    fn milestone(&mut self, milestone: Milestone, since_agent: Duration) -> Result<()> {
        let now = Instant::now();
        let before = self.reached.replace(now).unwrap_or(now);
        match milestone {
            // This is the first message, and it says how long ago the agent started.
            Milestone::Devices => {
                if !self.is_going {
                    self.is_going = true;
                    self.send(&ToGuest::Go);
                    self.deadline = Some(self.earlier(now + START_MAX, Deadline::Start));
                }
                self.timings.devices = since_agent;
                self.timings.boot = (now - before).saturating_sub(since_agent);
            }
            Milestone::Mounts => self.timings.mounts = now - before,
            Milestone::Command => {
                self.timings.command = now - before;
                self.command_started()?;
            }
        }
        Ok(())
    }

    fn command_started(&mut self) -> Result<()> {
        self.is_command_started = true;
        if let Some(keeper) = self.keeper {
            return self.keep(keeper);
        }
        self.deadline = self.spec.timeout.map(|timeout| (Instant::now() + timeout, Deadline::Run(timeout)));
        if self.spec.stdio.is_terminal {
            // Until now, Ctrl-C was handled by this process.
            self.raw_mode = Some(RawMode::enter().map_err(Error::io("cannot set the terminal to raw mode"))?);
            self.send(&ToGuest::Resize(terminal::size()));
        }
        if let Some(channel) = self.stdin.take() {
            let Stdio { stdin, is_terminal, .. } = &self.spec.stdio;
            streams::write_input(channel, stdin, *is_terminal, self.sender.clone())
                .map_err(Error::io("cannot connect standard input"))?;
        }
        Ok(())
    }

    /// Takes requests of others from now on.
    fn keep(&mut self, keeper: &Keeper) -> Result<()> {
        self.deadline = None;
        let (Some(to_guest), Some(from_guest)) = (self.stdin.take(), self.from_guest.take()) else { return Ok(()) };
        self.publish();
        let for_hub = ForHub {
            to_guest,
            from_guest,
            events: self.sender.clone(),
            shares: self.late_shares.published(),
            is_interrupted: Arc::clone(&self.is_interrupted),
        };
        hub::serve(keeper, for_hub).map_err(Error::io("cannot keep the machine"))
    }

    /// Forwards the first signal to the command, which may handle it. A second signal, or one before the command
    /// starts, ends the run. A machine that stays ends in good order at the first one.
    fn signal(&mut self, number: i32) -> Result<()> {
        let is_second = self.is_stopping || matches!(self.deadline, Some((_, Deadline::Signal(_))));
        if !self.is_command_started || is_second {
            return Err(Error::Interrupted(number));
        }
        if self.is_kept() {
            self.is_stopping = true;
            self.send(&ToGuest::Finish);
            return Ok(());
        }
        self.send(&ToGuest::Signal { number });
        self.deadline = Some((Instant::now() + GRACE, Deadline::Signal(number)));
        Ok(())
    }

    /// Sends a message. If the channel has closed, its reader reports that.
    fn send(&mut self, message: &ToGuest) {
        if let (Some(control), Ok(mut line)) = (&mut self.control, serde_json::to_vec(message)) {
            line.push(b'\n');
            let _ = control.write_all(&line);
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(signals) = &self.signals {
            signals.close();
        }
    }
}

fn arrived_all(arrived: &[u64; 2], expected: &[u64; 2]) -> bool {
    arrived.iter().zip(expected).all(|(arrived, expected)| arrived >= expected)
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

fn passed(deadline: Deadline, machine: &Machine) -> Error {
    match deadline {
        Deadline::Start => Error::NotStarted { after: START_MAX, console: machine.console_tail() },
        Deadline::Resume => Error::NotStarted { after: RESUME_MAX, console: machine.console_tail() },
        Deadline::Run(timeout) => Error::TimedOut(timeout),
        Deadline::Signal(number) => Error::Interrupted(number),
    }
}

fn watch_signals(events: Sender<Event>, is_interrupted: Arc<AtomicBool>) -> Result<Handle> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).map_err(Error::io("cannot take over the signals"))?;
    let handle = signals.handle();
    thread::spawn(move || {
        for signal in signals.forever() {
            if signal != SIGWINCH {
                is_interrupted.store(true, Ordering::Relaxed);
            }
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(handle)
}

fn watch_daemon(pidfd: OwnedFd, number: usize, events: Sender<Event>) {
    thread::spawn(move || {
        while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
        let _ = events.send(Event::DaemonEnded(number));
    });
}
