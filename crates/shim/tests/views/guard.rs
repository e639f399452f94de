//! Files that others must not make shorter: another process tries it in every way.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Lines, Write as _},
    os::{fd::AsFd, unix::fs::FileExt, unix::fs::OpenOptionsExt},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    io::Errno,
    process::{Signal, kill_process, pidfd_open},
};
use tempfile::NamedTempFile;
use transom_shim::{Shim, ShimError};

use crate::{
    PlaceCase,
    attempts::{HARMLESS, PUNCH, RING, RING_UNSEEN, SHORTENING, attempt},
    mapped::Mapped,
};

/// Those for the file system called so.
pub(crate) fn cases(place: &str) -> &'static [PlaceCase] {
    match place {
        "disk" => &[
            ("others_cannot_shorten_until_the_guard_is_dropped", shorten),
            ("io_uring_cannot_empty_the_file", ring),
            ("others_read_write_and_lengthen", harmless),
            ("the_user_may_do_anything", user),
            ("shell_cannot_empty_the_file", shell),
            ("two_guards_are_one_until_both_are_dropped", two),
            ("file_of_another_owner_can_be_guarded", other_owner),
            ("mapping_survives_a_hundred_attempts", attempts),
            ("what_is_no_file_is_refused", no_file),
        ],
        _ => &[("is_refused", refused)],
    }
}

/// The word behind which a path follows: this executable as a process that is not the user's.
pub(crate) const AS_OTHER: &str = "--as-other";

/// Opens the file, and then does what each line says.
pub(crate) fn act(path: &Path) -> ExitCode {
    let old = OpenOptions::new().read(true).write(true).open(path).unwrap();
    println!("ready");
    for line in io::stdin().lines() {
        let result = attempt(&line.unwrap(), &old, path);
        println!("{}", result.map_or_else(|error| format!("{:?}", error.raw_os_error()), |()| "done".into()));
    }
    ExitCode::SUCCESS
}

/// The other process.
struct Other {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn new(path: &Path) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg(AS_OTHER)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?).lines();
        let mut other = Self { process, input, output };
        ensure!(other.line()? == "ready");
        Ok(other)
    }

    /// What came of the attempt: "done", or an error's number.
    fn tries(&mut self, what: &str) -> Result<String> {
        writeln!(self.input, "{what}")?;
        self.line()
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.output.next().context("the other process has ended")??)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn shorten(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let before = fs::read(file.path())?;
    let mut other = Other::new(file.path())?;
    let guard = shim.guard(file.as_file().as_fd())?;
    for what in SHORTENING.into_iter().chain([PUNCH]) {
        let outcome = other.tries(what)?;
        ensure!(outcome == format!("{:?}", Some(libc::EPERM)), "{what}: {outcome}");
        ensure!(fs::read(file.path())? == before, "{what}");
    }
    drop(guard);
    for what in SHORTENING.into_iter().chain([PUNCH]) {
        fs::write(file.path(), &before)?;
        let outcome = other.tries(what)?;
        ensure!(outcome == "done", "{what} without a guard: {outcome}");
        let is_shorter = file.as_file().metadata()?.len() < before.len() as u64;
        ensure!(is_shorter != (what == PUNCH), "{what} without a guard");
    }
    Ok(())
}

fn ring(shim: &Shim, directory: &Path) -> Result<()> {
    if io_uring::IoUring::new(1).is_err() {
        println!("SKIPPED: io_uring is not available");
        return Ok(());
    }
    let file = file(directory)?;
    let mut other = Other::new(file.path())?;
    let guard = shim.guard(file.as_file().as_fd())?;
    let outcome = other.tries(RING)?;
    ensure!(outcome == format!("{:?}", Some(libc::EPERM)), "{outcome}");
    // What the guard says of itself: not every truncation is recognised.
    ensure!(other.tries(RING_UNSEEN)? == "done" && file.as_file().metadata()?.len() == 10);
    drop(guard);
    ensure!(other.tries(RING)? == "done" && file.as_file().metadata()?.len() == 0);
    Ok(())
}

fn harmless(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let mut other = Other::new(file.path())?;
    let _guard = shim.guard(file.as_file().as_fd())?;
    for what in HARMLESS {
        let outcome = other.tries(what)?;
        ensure!(outcome == "done", "{what}: {outcome}");
    }
    Ok(())
}

fn user(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let before = fs::read(file.path())?;
    let old = OpenOptions::new().read(true).write(true).open(file.path())?;
    let _guard = shim.guard(file.as_file().as_fd())?;
    for what in SHORTENING.into_iter().chain([PUNCH]).chain(HARMLESS) {
        fs::write(file.path(), &before)?;
        std::thread::scope(|scope| scope.spawn(|| attempt(what, &old, file.path())).join().unwrap())
            .with_context(|| what.to_owned())?;
    }
    Ok(())
}

fn shell(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let before = fs::read(file.path())?;
    let run = |script: &str| -> Result<bool> {
        let status = Command::new("/bin/sh").args(["-c", script, "sh"]).arg(file.path()).stderr(Stdio::null()).status();
        Ok(status?.success())
    };
    let guard = shim.guard(file.as_file().as_fd())?;
    ensure!(!run(r#": > "$1""#)? && !run(r#"cp /dev/null "$1""#)? && !run(r#"truncate -s 1 "$1""#)?);
    ensure!(fs::read(file.path())? == before);
    ensure!(run(r#"cat "$1" | cmp - "$1" && printf x >> "$1""#)?, "reading and appending");
    drop(guard);
    ensure!(run(r#": > "$1""#)? && file.as_file().metadata()?.len() == 0);
    Ok(())
}

fn two(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let mut other = Other::new(file.path())?;
    let first = shim.guard(file.as_file().as_fd())?;
    let second = shim.guard(File::open(file.path())?.as_fd())?;
    drop(first);
    ensure!(other.tries("truncate")? != "done");
    drop(second);
    ensure!(other.tries("truncate")? == "done");
    Ok(())
}

fn other_owner(shim: &Shim, directory: &Path) -> Result<()> {
    let path = directory.join("of another owner");
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all_at(&[1; 10000], 0)?;
    std::os::unix::fs::fchown(&file, Some(1234), Some(1234))?;
    let _guard = shim.guard(file.as_fd())?;
    let _view = shim.view(file.as_fd())?;
    ensure!(Other::new(&path)?.tries("truncate")? != "done");
    Ok(())
}

fn attempts(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let view = shim.view(file.as_file().as_fd())?;
    let mapped = Mapped::new(&view, 0, 2 << 20)?;
    let _guard = shim.guard(file.as_file().as_fd())?;
    let mut other = Other::new(file.path())?;
    for round in 0..100 {
        let what = SHORTENING[round % SHORTENING.len()];
        ensure!(other.tries(what)? != "done", "{what}");
        ensure!(mapped.load(8192, 16)? == [7; 16], "after {what}");
    }
    Ok(())
}

fn no_file(shim: &Shim, directory: &Path) -> Result<()> {
    for hostile in [directory, Path::new("/dev/null")] {
        let refused = shim.guard(File::open(hostile)?.as_fd());
        ensure!(matches!(refused, Err(ShimError::Unguarded(Errno::INVAL))), "{}: {refused:?}", hostile.display());
    }
    Ok(())
}

fn refused(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory)?;
    let refused = shim.guard(file.as_file().as_fd());
    println!("guard in {}: {refused:?}", directory.display());
    ensure!(matches!(refused, Err(ShimError::Unguarded(Errno::OPNOTSUPP))), "{refused:?}");
    Ok(())
}

/// In a process whose views and guards come from `shim`, which ends.
pub(crate) fn without_process(shim: &Shim) -> Result<()> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = file(directory.path())?;
    let mut other = Other::new(file.path())?;
    let guard = shim.guard(file.as_file().as_fd())?;
    ensure!(other.tries("ftruncate")? != "done", "guarded");
    let pidfd = pidfd_open(shim.pid(), rustix::process::PidfdFlags::empty())?;
    kill_process(shim.pid(), Signal::KILL)?;
    rustix::event::poll(&mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)], None)?;
    let outcome = other.tries("ftruncate")?;
    ensure!(outcome == "done", "after its end: {outcome}");
    let refused = shim.guard(file.as_file().as_fd());
    ensure!(matches!(refused, Err(ShimError::Gone)), "{refused:?}");
    drop(guard);
    Ok(())
}

/// In a process whose guards are its own: one file is guarded again and again, and none of the guards ends.
pub(crate) fn endless(shim: &Shim) -> Result<()> {
    const FAR_TOO_MANY: usize = 100_000;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = file(directory.path())?;
    let mut guards = Vec::new();
    let refused = loop {
        match shim.guard(file.as_file().as_fd()) {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
        ensure!(guards.len() < FAR_TOO_MANY, "{FAR_TOO_MANY} guards of one file");
    };
    if guards.is_empty() && matches!(refused, ShimError::Unguarded(Errno::OPNOTSUPP)) {
        println!("SKIPPED: no guards here: {refused}");
        return Ok(());
    }
    ensure!(matches!(refused, ShimError::Unguarded(Errno::NOSPC)), "{refused:?} after {}", guards.len());
    // As many as a window can need, and the rest still hold.
    ensure!(guards.len() >= 1024, "{} guards", guards.len());
    ensure!(Other::new(file.path())?.tries("truncate")? != "done");
    // An end makes room for another.
    guards.pop();
    guards.push(shim.guard(file.as_file().as_fd())?);
    ensure!(shim.guard(file.as_file().as_fd()).is_err(), "one more");
    guards.clear();
    ensure!(Other::new(file.path())?.tries("truncate")? == "done", "without guards");
    Ok(())
}

fn file(directory: &Path) -> Result<NamedTempFile> {
    let file = NamedTempFile::new_in(directory)?;
    file.as_file().write_all_at(&[7; 12288 + 5], 0)?;
    Ok(file)
}
