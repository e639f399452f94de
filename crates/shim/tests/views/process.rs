//! The process that makes the views: what it refuses, what it holds, how it ends.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::FileExt as _, net::UnixStream},
    },
    process::{Command, ExitCode, Stdio},
    thread,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use transom_shim::{Shim, ShimError};

use crate::{Case, guard, mapped::Mapped, namespace};

/// The cases by their names.
pub(crate) const CASES: &[Case] = &[
    ("refuses_what_is_no_file_for_writing", refuses),
    ("holds_no_descriptor_of_files_that_were_viewed", no_leak),
    ("has_few_capabilities_no_descriptors_and_no_files", has_nothing),
    ("is_not_on_the_list_of_mounts", invisible),
    ("outlives_signals_and_ends_with_its_user", ends),
    ("mapping_outlives_the_process", mapping_outlives),
    ("when_it_is_killed_nothing_is_guarded", guard_ends),
    ("knows_its_user_in_another_pid_namespace", elsewhere),
    ("of_a_user_with_threads_is_refused", threads),
    ("keeps_no_more_guards_than_it_is_meant_for", bounded_guards),
];

/// The word behind which the name of a scene follows: this executable as a user of its own process.
pub(crate) const AS_USER: &str = "--as-user";

/// A process of one thread that starts one of its own.
pub(crate) fn act(scene: &str) -> ExitCode {
    let shim = match Shim::start() {
        Ok(shim) => shim,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", shim.pid());
    match scene {
        // A view for each line, until there are no more, or a signal.
        "wait" => {
            for _ in std::io::stdin().lines() {
                println!("{:?}", shim.view(tempfile::tempfile().unwrap().as_fd()).map(drop));
            }
            ExitCode::SUCCESS
        }
        "mapping" => outcome(mapping_without_process(&shim)),
        "holdings" => outcome(with_nothing(&shim)),
        "leak" => outcome(without_leaks(&shim)),
        "elsewhere" => outcome(namespace::user_elsewhere(&shim)),
        "guard" => outcome(guard::without_process(&shim)),
        "guards" => outcome(guard::endless(&shim)),
        _ => ExitCode::FAILURE,
    }
}

fn outcome(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn refuses(shim: &Shim) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("file");
    File::create(&path)?;
    let append = OpenOptions::new().read(true).append(true).open(&path)?;
    let path_alone = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    let (one, _other) = UnixStream::pair()?;
    let (reader, _writer) = rustix::pipe::pipe()?;
    let hostile: [(&str, OwnedFd, &[Errno]); 9] = [
        ("a directory", File::open(directory.path())?.into(), &[Errno::INVAL]),
        ("a socket", one.into(), &[Errno::INVAL]),
        ("a pipe", reader, &[Errno::INVAL]),
        ("a device", OpenOptions::new().read(true).write(true).open("/dev/null")?.into(), &[Errno::INVAL]),
        ("a file for reading", File::open(&path)?.into(), &[Errno::ACCESS]),
        ("a file for writing alone", OpenOptions::new().write(true).open(&path)?.into(), &[Errno::ACCESS]),
        ("a file for appending", append.into(), &[Errno::ACCESS]),
        ("a path", path_alone, &[Errno::ACCESS]),
        ("a file of /proc", OpenOptions::new().read(true).write(true).open("/proc/self/comm")?.into(), &[]),
    ];
    for (what, fd, expected) in hostile {
        match shim.view(fd.as_fd()) {
            Err(ShimError::Refused(errno)) if expected.contains(&errno) || expected.is_empty() => {}
            Ok(view) if expected.is_empty() => ensure!(Mapped::new(&view, 0, 4096).is_err(), "a mapping of {what}"),
            other => bail!("{what}: {other:?}"),
        }
    }
    // A view is no file that could be viewed: its file system is on top of others already.
    let file = tempfile::tempfile()?;
    let view = shim.view(file.as_fd())?;
    ensure!(matches!(shim.view(view.as_fd()), Err(ShimError::Refused(_))), "a view of a view");
    shim.view(file.as_fd()).context("afterwards")?;
    Ok(())
}

fn no_leak(_: &Shim) -> Result<()> {
    played("leak")
}

/// In a process of its own, where nobody asks for anything meanwhile.
fn without_leaks(shim: &Shim) -> Result<()> {
    const ROUNDS: u32 = 5000;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let before = descriptors(shim)?;
    for round in 0..ROUNDS {
        let file = tempfile::tempfile_in(&directory)?;
        file.write_all_at(&round.to_ne_bytes(), 0)?;
        let view = shim.view(file.as_fd()).with_context(|| format!("round {round}"))?;
        if round % 16 == 0 {
            let guard = shim.guard(file.as_fd());
            ensure!(!matches!(guard, Err(ShimError::Gone)), "{guard:?}");
            ensure!(Mapped::new(&view, 0, 4096)?.load(0, 4)? == round.to_ne_bytes(), "round {round}");
        }
    }
    let after = descriptors(shim)?;
    // The last event's file may not be closed yet.
    ensure!(after <= before + 1, "{after} descriptors, {before} before");
    Ok(())
}

fn has_nothing(_: &Shim) -> Result<()> {
    played("holdings")
}

/// In a process of its own, where nobody asks for anything meanwhile.
fn with_nothing(shim: &Shim) -> Result<()> {
    let pid = shim.pid();
    let field = |status: &str, name: &str| -> String {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    const READ_SEARCH: u64 = 1 << 2;
    const PTRACE: u64 = 1 << 19;
    const ADMIN: u64 = 1 << 21;
    let expected = [("transom-shim", ADMIN | READ_SEARCH), ("views", 0), ("closing", ADMIN), ("guard", PTRACE)];
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let name = field(&status, "Name:");
        let (_, capabilities) = expected.iter().find(|(thread, _)| *thread == name).context(name)?;
        for set in ["CapEff:", "CapPrm:"] {
            ensure!(field(&status, set) == format!("{capabilities:016x}"), "{status}");
        }
        for set in ["CapInh:", "CapAmb:"] {
            ensure!(field(&status, set) == "0000000000000000", "{status}");
        }
        ensure!(field(&status, "NoNewPrivs:") == "1" && field(&status, "Seccomp:") == "2", "{status}");
    }
    ensure!(fs::read_dir(format!("/proc/{pid}/root/"))?.next().is_none_or(|entry| entry.is_err()), "its root");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?
        .map(|entry| Ok(fs::read_link(entry?.path())?.display().to_string()))
        .collect::<Result<Vec<_>>>()?;
    let count = |start: &str| descriptors.iter().filter(|target| target.starts_with(start)).count();
    let own = [("/dev/null", 3), ("socket:", 1), ("/dev/fuse", 1), ("anon_inode:[fanotify]", 1), ("/proc", 1)];
    ensure!(own.iter().all(|&(target, expected)| count(target) == expected), "{descriptors:?}");
    // And the root of its file system.
    ensure!(descriptors.len() == 8, "{descriptors:?}");
    Ok(())
}

fn invisible(shim: &Shim) -> Result<()> {
    for pid in ["self".to_owned(), shim.pid().to_string()] {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
        ensure!(!mounts.contains(" - fuse transom "), "{mounts}");
    }
    Ok(())
}

fn ends(_: &Shim) -> Result<()> {
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let mut user = Command::new(env::current_exe()?)
            .args([AS_USER, "wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(user.stdout.take().context("no output")?).lines();
        let mut line = || lines.next().context("no more output")?.context("no line");
        let pid = line()?;
        let pid = Pid::from_raw(pid.parse().context(pid)?).context("no process")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        for harmless in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::PIPE] {
            kill_process(pid, harmless)?;
        }
        writeln!(user.stdin.as_mut().context("no input")?, "a view")?;
        ensure!(line()? == "Ok(())", "after the signals");
        match signal {
            // End of file at its standard input.
            None => drop(user.stdin.take()),
            Some(signal) => kill_process(Pid::from_child(&user), signal)?,
        }
        user.wait()?;
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        let long = Timespec { tv_sec: 60, tv_nsec: 0 };
        ensure!(poll(&mut ended, Some(&long))? == 1, "it lives on after {signal:?}");
    }
    Ok(())
}

fn mapping_outlives(_: &Shim) -> Result<()> {
    played("mapping")
}

fn guard_ends(_: &Shim) -> Result<()> {
    played("guard")
}

fn bounded_guards(_: &Shim) -> Result<()> {
    played("guards")
}

fn elsewhere(_: &Shim) -> Result<()> {
    played("elsewhere")
}

fn played(scene: &str) -> Result<()> {
    let output = Command::new(env::current_exe()?).args([AS_USER, scene]).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// What a front end has when the process is killed.
fn mapping_without_process(shim: &Shim) -> Result<()> {
    let file = tempfile::tempfile()?;
    file.write_all_at(b"before", 0)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, 2 << 20)?;
    let pidfd = pidfd_open(shim.pid(), PidfdFlags::empty())?;
    kill_process(shim.pid(), Signal::KILL)?;
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None)?;
    ensure!(mapped.load(0, 6)? == b"before");
    file.write_all_at(b"after it", 8192)?;
    ensure!(mapped.load(8192, 8)? == b"after it");
    mapped.store(0, b"stored")?;
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0)?;
    ensure!(&bytes == b"stored");
    ensure!(shim.view(file.as_fd()).is_err_and(|error| error == ShimError::Gone), "a view from nowhere");
    Ok(())
}

/// The harness has threads by now.
fn threads(_: &Shim) -> Result<()> {
    let started = thread::spawn(Shim::start).join();
    ensure!(matches!(started, Ok(Err(transom_shim::StartError::Process(_)))), "{started:?}");
    Ok(())
}

fn descriptors(shim: &Shim) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", shim.pid()))?.count())
}
