//! Changes of the host reach a guest of `transom run` without any option.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "400";

/// Returns why no guest with events can run here, if none can.
fn missing(share: &Path) -> Option<String> {
    let beside = |name: &str| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name(name);
    let built: [PathBuf; 2] = ["transomd", "transom-agent"].map(beside);
    if let Some(absent) = built.iter().find(|program| !program.is_file()) {
        return Some(format!("{} is not built", absent.display()));
    }
    if std::env::var_os("TRANSOM_DAEMON").is_some() {
        return Some("another daemon is named".into());
    }
    let version = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    if version.is_err() {
        return Some("no qemu-system-x86_64 in PATH".into());
    }
    let options =
        transom_watch::Options { weakest: transom_watch::Strength::Directories, ..transom_watch::Options::default() };
    let root = fs::File::open(share).unwrap();
    transom_watch::Watch::open(&root, &options).err().map(|error| error.to_string())
}

/// A run that is killed if the test fails before its end.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a guest of `transom`, and has it see a change. `who` decides who starts it.
fn sees_a_change(share: &Path, who: impl FnOnce(&mut Command)) {
    let file = share.join("file");
    fs::write(&file, "before\n").unwrap();
    // Without events, this guest would not look again for a day.
    let script = "cat file; until [ \"$(cat file)\" = behind ]; do sleep 0.1; done; echo seen";
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "-v", "--timeout", LIMIT_S, "--share"]);
    command.arg(format!("{}:/share,cache=always", share.display())).args(["--", "sh", "-c", script]);
    who(&mut command);
    let mut run = Run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap());

    let stdout = BufReader::new(run.0.stdout.take().unwrap());
    let (lines, said) = mpsc::channel();
    thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line))));
    assert_eq!(said.recv().as_deref(), Ok("before"), "what the run wrote to standard error says why");
    // The command may start before the agent does, which is told of changes from then on.
    let seen = loop {
        fs::write(&file, "behind\n").unwrap();
        match said.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => break line,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the run ended: {:?}", run.0.wait()),
        }
    };
    assert_eq!(seen, "seen");
    assert!(run.0.wait().unwrap().success());
}

#[test]
fn a_guest_sees_what_the_host_writes_by_default() {
    let share = tempfile::tempdir().unwrap();
    if let Some(reason) = missing(share.path()) {
        return eprintln!("SKIPPED: a_guest_sees_what_the_host_writes_by_default: {reason}");
    }
    sees_a_change(share.path(), |_| {});
}

#[test]
fn the_guest_of_an_ordinary_user_does_too() {
    const ORDINARY_USER: u32 = 65534;
    let share = tempfile::tempdir().unwrap();
    if let Some(reason) = missing(share.path()) {
        return eprintln!("SKIPPED: the_guest_of_an_ordinary_user_does_too: {reason}");
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: the_guest_of_an_ordinary_user_does_too: the other test runs as one");
    }
    let home = tempfile::tempdir().unwrap();
    for dir in [&share, &home] {
        std::os::unix::fs::chown(dir.path(), Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
    }
    sees_a_change(share.path(), |command| {
        command.uid(ORDINARY_USER).gid(ORDINARY_USER).env("HOME", home.path()).env("TMPDIR", home.path());
    });
}
