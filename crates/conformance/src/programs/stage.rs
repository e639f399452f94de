//! Where a program runs: a fresh tree in one of the two directories, and the processes of its callers in it.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    caller::{Request, send},
    operation::{Caller, Operation, Process, Step},
    outcome::{Outcome, Seen},
    requests::Requests,
    tree::{self, RACES, USER},
};

/// No step waits for anything: a caller that is silent for so long hangs.
const SILENCE_MAX: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// What root writes to the file of a race.
const SECRET: &[u8] = b"secret";

/// A directory that programs run in.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    /// Where callers work.
    pub(super) dir: PathBuf,
    /// The same directory on the host: `dir` itself, or what is mounted there.
    pub(super) host: PathBuf,
    /// The command that serves as a caller; the user's number is added.
    pub(super) caller: Vec<String>,
    /// How far the requests of the mount are, if it is one of FUSE.
    pub(super) requests: Option<Rc<Requests>>,
}

/// A tree with its callers. Dropping it ends them and removes the tree.
pub(super) struct Stage {
    root: Speaker,
    user: Speaker,
    observer: Speaker,
    name: String,
    directories: Directories,
    pub(super) seen: Seen,
    races: u32,
}

impl Stage {
    /// Makes the tree called `name`, which nobody has used before.
    pub(super) fn set(directories: &Directories, name: &str) -> anyhow::Result<Self> {
        let place = directories.dir.join(name);
        fs::create_dir(&place).with_context(|| format!("mkdir {}", place.display()))?;
        let set = tree::plant(&place).and_then(|()| {
            let speaker = |id| Speaker::start(&directories.caller, id, &place);
            let (root, user, observer) = (speaker(0)?, speaker(USER)?, speaker(0)?);
            let (name, directories) = (name.to_owned(), directories.clone());
            Ok(Self { root, user, observer, name, directories, seen: Seen::default(), races: 0 })
        });
        set.inspect_err(|_| remove(&directories.host.join(name), &place))
    }

    /// Does one step.
    pub(super) fn perform(&mut self, step: &Step, timing: &mut Timing) -> anyhow::Result<Outcome> {
        if let Operation::Race { attempts } = step.operation {
            return self.race(attempts, timing);
        }
        let speaker = match step.caller {
            Caller::Root => &mut self.root,
            Caller::User => &mut self.user,
        };
        let mut outcome = speaker.ask(&Request { process: step.process, operation: step.operation.clone() })?;
        outcome.note_times(&mut self.seen);
        Ok(outcome)
    }

    /// Waits until a FUSE mount's requests are answered.
    ///
    /// The daemon learns of a close after close(2) has returned, and releases locks only then.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        self.directories.requests.as_ref().map_or(Ok(()), |requests| requests.wait())
    }

    /// Looks at the whole tree.
    pub(super) fn inspect(&mut self) -> anyhow::Result<Outcome> {
        let mut outcome = self.observer.ask(&Request { process: Process::First, operation: Operation::Inspect })?;
        outcome.note_times(&mut self.seen);
        Ok(outcome)
    }

    /// Lets the user open names that root creates on the host at that moment.
    ///
    /// Whatever the order of the two, the user holds no file of root's, and what root has written stays.
    fn race(&mut self, attempts: u8, timing: &mut Timing) -> anyhow::Result<Outcome> {
        let (mut is_held, mut is_truncated) = (false, false);
        for _ in 0..attempts {
            self.races += 1;
            let name = self.races.to_string();
            let path = self.directories.host.join(&self.name).join(RACES).join(&name);
            let request = Request { process: Process::First, operation: Operation::RaceOpen { name } };
            self.user.tell(&request)?;
            timing.wait();
            let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let is_roots = match created {
                Ok(mut file) => {
                    file.write_all(SECRET).context("writing on the host")?;
                    true
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error).with_context(|| format!("creating {}", path.display())),
            };
            let answer = self.user.hear()?;
            timing.learn(is_roots);
            is_held |= answer.facts.get("holds-what-it-may-not-open").is_some_and(|fact| fact == "true");
            is_truncated |= is_roots && fs::read(&path).context("reading on the host")? != SECRET;
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(Outcome::ok().with("user-holds-roots-file", is_held).with("roots-data-is-lost", is_truncated))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for speaker in [&mut self.root, &mut self.user, &mut self.observer] {
            speaker.end();
        }
        remove(&self.directories.host.join(&self.name), &self.directories.dir.join(&self.name));
    }
}

/// Removes a tree that may have immutable files in it, by the way that callers have used.
///
/// What cannot be removed goes with the directory of the whole run, or is told there.
fn remove(host: &Path, place: &Path) {
    clear_flags(host);
    if fs::remove_dir_all(place).is_err() {
        let _ = fs::remove_dir_all(host);
    }
}

/// Takes the flags away that keep the files in `dir` from being removed.
pub fn clear_flags(dir: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let stubborn = IFlags::IMMUTABLE | IFlags::APPEND;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            clear_flags(&entry.path());
        } else if kind.is_file()
            && let Ok(file) = fs::File::open(entry.path())
            && let Ok(flags) = ioctl_getflags(&file)
            && flags.intersects(stubborn)
        {
            // A failure shows in the removal.
            let _ = ioctl_setflags(&file, flags - stubborn);
        }
    }
}

/// How long root waits before it creates the file of a race: it looks for the moment at which either may be first.
#[derive(Debug)]
pub(super) struct Timing {
    delay_ns: u64,
    step_ns: u64,
    random: u64,
}

impl Timing {
    pub(super) fn new() -> Self {
        Self { delay_ns: 100_000, step_ns: 5_000, random: 1 }
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        // A multiplicative generator: the delay is to differ, no more.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let delay = Duration::from_nanos(self.delay_ns + (self.random >> 33) % (4 * self.step_ns));
        while begun.elapsed() < delay {
            std::hint::spin_loop();
        }
    }

    fn learn(&mut self, was_root_first: bool) {
        self.delay_ns = match was_root_first {
            true => (self.delay_ns + self.step_ns).min(2_000_000),
            false => self.delay_ns.saturating_sub(self.step_ns),
        };
    }
}

/// The caller's end of a conversation.
struct Speaker {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Speaker {
    fn start(command: &[String], id: u32, place: &Path) -> anyhow::Result<Self> {
        let [program, arguments @ ..] = command else { anyhow::bail!("no command for callers") };
        let mut process = Command::new(program)
            .args(arguments)
            .arg(id.to_string())
            .current_dir(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("a caller has a standard output")?);
        Ok(Self { process, input, output })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<Outcome> {
        self.tell(request)?;
        self.hear()
    }

    fn tell(&mut self, request: &Request) -> anyhow::Result<()> {
        send(self.input.as_mut().context("the caller has ended")?, request).context("asking a caller")
    }

    fn hear(&mut self) -> anyhow::Result<Outcome> {
        let ready = poll(&mut [PollFd::new(self.output.get_ref(), PollFlags::IN)], Some(&SILENCE_MAX));
        anyhow::ensure!(ready.context("poll")? > 0, "a step has not ended after {} s", SILENCE_MAX.tv_sec);
        let mut line = String::new();
        self.output.read_line(&mut line).context("a caller's answer")?;
        serde_json::from_str(&line).with_context(|| format!("a caller's answer `{line}`"))
    }

    /// Ends the process; one that hangs in a system call stays behind.
    fn end(&mut self) {
        drop(self.input.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
