//! [`capture`] runs a program to its end, collects what it prints, and ends it if it stands still.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use super::{Error, Result};
use crate::Supervised;

/// The longest time without progress. apt itself gives up on a server after 30 seconds and tries three times.
pub(super) const STILL_MAX: Duration = Duration::from_secs(300);

/// How often a program that runs is looked after.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What a program that has ended printed.
pub(super) struct Captured {
    pub(super) is_success: bool,
    pub(super) status: String,
    /// Standard output without progress lines.
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs `command` to its end. `percent` parses progress lines, which are not kept. `check` says every second whether it
/// can go on.
///
/// The program dies with this process, with the processes that it started in its group.
///
/// # Errors
///
/// Returns [`Error::Stalled`] if the program has printed nothing and made no progress for `still_max`, or the error of
/// `check`. It has been killed then.
pub(super) fn capture(
    mut command: Command,
    program: &'static str,
    still_max: Duration,
    percent: impl Fn(&str) -> Option<f32>,
    check: impl Fn() -> Result<()>,
) -> Result<Captured> {
    command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Supervised::spawn(command, Vec::new()).map_err(|error| match error {
        crate::Error::Io { source, .. } => Error::NoApt { program, source },
        error => Error::Unexpected(error.to_string()),
    })?;
    let (stdout, stderr) = process.take_output();
    let errors = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stderr.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = stdout.into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
        // Nobody listens once the program has been killed.
        lines.map(|line| sender.send(line)).take_while(|sent| sent.is_ok()).for_each(drop);
    });
    let mut kept = String::new();
    let (mut last_percent, mut last_change) = (None, Instant::now());
    let mut last_check = Instant::now();
    loop {
        if last_check.elapsed() >= CHECK_EVERY {
            check()?;
            last_check = Instant::now();
        }
        let left = still_max.saturating_sub(last_change.elapsed());
        let line = match lines.recv_timeout(left.min(CHECK_EVERY)) {
            Ok(line) => line.map_err(Error::io(format!("cannot read the output of {program}")))?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if left > CHECK_EVERY => continue,
            Err(RecvTimeoutError::Timeout) => return Err(Error::Stalled { program, seconds: still_max.as_secs() }),
        };
        let now = percent(&line);
        if now.is_none() {
            kept.push_str(&line);
            kept.push('\n');
        }
        if now.is_none() || now != last_percent {
            (last_percent, last_change) = (now, Instant::now());
        }
    }
    let status = process.wait().map_err(Error::io(format!("cannot wait for {program}")))?;
    Ok(Captured {
        is_success: status.success(),
        status: status.to_string(),
        stdout: kept,
        stderr: errors.join().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn percent(line: &str) -> Option<f32> {
        line.strip_suffix('%')?.parse().ok()
    }

    #[test]
    fn lines_are_kept_but_for_progress() {
        let script = "echo one; echo 5%; echo two >&2; echo three; exit 3";
        let captured = capture(shell(script), "sh", STILL_MAX, percent, || Ok(())).unwrap();
        assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("one\nthree\n", "two\n"));
        assert!(!captured.is_success);
        assert!(captured.status.contains('3'), "{}", captured.status);
    }

    #[test]
    fn a_program_that_stands_still_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let alive = dir.path().join("alive");
        // The child holds a lock for as long as it lives. The same percentage again and again is no progress.
        let script = format!(
            "flock {0} -c 'echo locked; exec sleep 600' & sleep 600 & while :; do echo 7%; sleep 0.05; done",
            alive.display()
        );
        let error =
            capture(shell(&script), "sh", Duration::from_secs(1), percent, || Ok(())).err().expect("it stands still");
        assert!(matches!(error, Error::Stalled { program: "sh", seconds: 1 }), "{error}");
        let file = std::fs::File::create(&alive).unwrap();
        // Blocks for as long as the child is there; a test program has a limit.
        file.lock().unwrap();
    }

    #[test]
    fn a_program_that_cannot_go_on_is_killed() {
        let full = || Err(Error::DiskFull { dir: "/cache".into(), output: "0 MiB free".into() });
        let error = capture(shell("sleep 600"), "sh", STILL_MAX, percent, full).err().expect("the disk is full");
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let missing = Command::new("/nowhere/apt");
        let error = capture(missing, "apt", STILL_MAX, percent, || Ok(())).err().expect("no such program");
        assert!(matches!(error, Error::NoApt { program: "apt", .. }), "{error}");
    }
}
