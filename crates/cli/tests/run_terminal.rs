//! `transom run` on a terminal: what it says while the guest boots, and the key that ends a command that nothing else
//! ends.

#[allow(dead_code, reason = "other tests use the rest")]
mod within;

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Reads from the terminal until `text` has come, and returns everything.
fn until(terminal: &mut File, text: &str) -> String {
    let (mut said, mut chunk) = (Vec::new(), [0; 1024]);
    let end = Instant::now() + within::LIMIT;
    while !String::from_utf8_lossy(&said).contains(text) {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap();
        let ready = poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&left));
        assert_ne!(ready, Ok(0), "no {text:?} within {:?}: {}", within::LIMIT, String::from_utf8_lossy(&said));
        match terminal.read(&mut chunk) {
            Ok(len) if len > 0 => said.extend_from_slice(&chunk[..len]),
            // All other ends are closed.
            end => panic!("{end:?} before {text:?}: {}", String::from_utf8_lossy(&said)),
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Waits until a run has started QEMU.
fn qemu_of(run: u32) -> Pid {
    let children = || fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap();
    within::until(
        || format!("no QEMU among the processes {}", children()),
        || {
            let is_qemu = |pid: &&str| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("qemu-system"))
            };
            let pid = children().split_whitespace().find(is_qemu)?.parse().unwrap();
            Pid::from_raw(pid)
        },
    )
}

#[test]
fn a_boot_is_announced_and_three_escapes_end_a_command_that_ignores_signals() {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_qemu || !daemon.is_file() {
        return eprintln!("SKIPPED: a_boot_is_announced: no qemu-system-x86_64 in PATH, or no daemon {daemon:?}");
    }
    let mut terminal = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["run", "--cold", "--no-events", "--accel", "tcg", "--timeout", "400", "--", "sh", "-c"]);
    command.arg("trap '' INT TERM HUP; echo ready; while :; do sleep 1; done");
    let mut run = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();

    // A boot is announced after two seconds, which it may not take otherwise.
    let qemu = qemu_of(run.id());
    kill_process(qemu, Signal::STOP).unwrap();
    until(&mut terminal, "transom: the guest is booting; Ctrl-C stops it");
    kill_process(qemu, Signal::CONT).unwrap();
    until(&mut terminal, "ready");
    // Ctrl-C is the command's, which ignores it; two of the keys are, too.
    terminal.write_all(b"\x03\x1d\x1dx").unwrap();
    terminal.write_all(b"\x1d\x1d\x1d").unwrap();
    let status = within::end(&mut run, || "three escapes were typed".into());
    assert_eq!(status.code(), Some(128 + 15), "{status:?}");
}
