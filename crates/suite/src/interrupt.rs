//! SIGINT, SIGTERM and SIGHUP: ends what runs on mounts, removes the mounts and the directory of the run, then exits.
//!
//! Virtual machines need no such handling: they end with this process.

use std::{
    fs,
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use transom_conformance::programs;

/// What a shell gives for a command that Ctrl-C has ended.
const STATUS: i32 = 130;

/// Can be read from once there was a signal.
static SIGNALLED: OnceLock<UnixStream> = OnceLock::new();

/// What a signal has to wait for.
struct Mounts {
    count: usize,
    /// There was a signal: no other mount begins.
    is_ending: bool,
}

static MOUNTS: Mutex<Mounts> = Mutex::new(Mounts { count: 0, is_ending: false });
static CHANGED: Condvar = Condvar::new();

fn mounts() -> MutexGuard<'static, Mounts> {
    MOUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mount that a signal waits for, until this is dropped.
pub(crate) struct Mounting(());

impl Mounting {
    /// Errors: there was a signal.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let mut mounts = mounts();
        anyhow::ensure!(!mounts.is_ending, "interrupted");
        mounts.count += 1;
        Ok(Self(()))
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        mounts().count -= 1;
        CHANGED.notify_all();
    }
}

/// From here on a signal removes `dir`.
pub(crate) fn watch(dir: PathBuf) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (ours, theirs) = UnixStream::pair()?;
    SIGNALLED.set(theirs).ok().context("signals are watched once")?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            end(ours, &dir);
        }
    });
    Ok(())
}

/// Ends the process, once nothing is mounted any more.
fn end(mut told: UnixStream, dir: &Path) -> ! {
    mounts().is_ending = true;
    // It has room for one byte, and those who wait for a command see it.
    let _ = told.write_all(&[0]);
    let _none = CHANGED.wait_while(mounts(), |mounts| mounts.count > 0).unwrap_or_else(PoisonError::into_inner);
    programs::clear_flags(dir);
    // Who is just ending may remove it as well.
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("transom-suite: {} is left behind: {error}", dir.display());
    }
    std::process::exit(STATUS)
}

/// Whether there was a signal. What runs shall end soon.
pub(crate) fn is_signalled() -> bool {
    mounts().is_ending
}

/// Runs a command that uses a mount and returns its status and its standard output. A signal kills it.
///
/// # Errors
/// The command cannot be started, or there was a signal.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<Output> {
    let mut output = tempfile::tempfile().context("a file for the command's output")?;
    let mut child = command.stdout(output.try_clone()?).spawn().with_context(|| format!("running {command:?}"))?;
    let status = wait(&mut child)?;
    let mut stdout = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut stdout)?;
    Ok(Output { status, stdout, stderr: Vec::new() })
}

/// Waits for a command that uses a mount; a signal kills it.
fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process has a number")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    let mut ends = vec![PollFd::new(&process, PollFlags::IN)];
    ends.extend(SIGNALLED.get().map(|signal| PollFd::new(signal, PollFlags::IN)));
    loop {
        match poll(&mut ends, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("poll"),
        }
    }
    if !ends[0].revents().is_empty() {
        return Ok(child.wait()?);
    }
    child.kill()?;
    child.wait()?;
    anyhow::bail!("interrupted")
}
