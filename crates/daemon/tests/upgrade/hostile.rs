//! Daemons that fail at the worst moment, or are in the hands of their guest: the supervisor says what is so, waits for
//! a limited time, and ends when it is told to.

use std::fs;

use rustix::process::Signal;

use crate::{
    Guest, REQUEST, ask, ask_meanwhile, fake,
    launch::{Bench, Daemon},
    refused, start, upgrade,
};

/// Starts a daemon whose executable is a fake from now on, with a guest.
fn begin(behaviour: &str) -> (Bench, Daemon, Guest) {
    let bench = Bench::with_executable();
    let good = bench.path().join("good");
    fs::hard_link(bench.executable(), good).unwrap();
    let mut daemon = start(&bench, "");
    let guest = Guest::begin(&mut daemon);
    fake::install(&bench, behaviour);
    (bench, daemon, guest)
}

fn install_good(bench: &Bench) {
    bench.replace_executable(&bench.path().join("good"));
}

#[test]
fn a_daemon_that_ends_while_its_rings_are_set_up_is_refused() {
    let (bench, _daemon, mut guest) = begin("ends-when-started");
    let nodeid = guest.session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap().entry.nodeid.get();
    for _ in 0..3 {
        let said = refused(&bench);
        assert!(said.contains("the present daemon goes on") && said.contains("set-up"), "{said}");
        assert_eq!(guest.session.lookup(1, b"file").unwrap().nodeid.get(), nodeid);
    }
    install_good(&bench);
    upgrade(&bench);
    assert_eq!(guest.session.lookup(1, b"file").unwrap().nodeid.get(), nodeid);
}

#[test]
fn a_daemon_that_ends_when_it_has_the_session_is_reported() {
    let (bench, daemon, guest) = begin("ends-when-enabled");
    let output = ask(&bench);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the share is lost") && said.contains("restart the guest"), "{said}");
    guest.front_end.channel.wait_for_close().unwrap();
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(7), "{log}");
    assert!(log.contains("the share is lost") && !log.contains("goes on"), "{log}");
}

#[test]
#[ignore = "waits for a time limit, 10 s"]
fn a_daemon_that_hangs_when_it_has_the_session_is_reported() {
    let (bench, _daemon, _guest) = begin("hangs-when-enabled");
    let output = ask(&bench);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_program_that_says_something_else_is_refused_and_killed() {
    let (bench, _daemon, mut guest) = begin("nonsense");
    for _ in 0..3 {
        let said = refused(&bench);
        assert!(said.contains("unknown answer"), "{said}");
        guest.session.getattr(1, None).unwrap();
    }
}

#[test]
fn reasons_of_a_daemon_are_shown_without_control_characters() {
    let (bench, daemon, mut guest) = begin("escapes");
    let said = refused(&bench);
    assert!(said.contains(r"\u{1b}]0;owned\u{7}\u{d}\u{a}line"), "{said:?}");
    assert!(!said.trim_end().contains(char::is_control), "{said:?}");
    guest.session.getattr(1, None).unwrap();
    drop(guest);
    assert!(!daemon.wait().1.contains("\u{1b}]0"));
}

#[test]
fn a_daemon_that_floods_its_supervisor_holds_nobody_up() {
    let (bench, daemon, _guest) = begin("flood");
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let before = descriptors();
    upgrade(&bench);
    for _ in 0..5 {
        assert!(refused(&bench).contains("the present daemon"));
    }
    assert!(descriptors() <= before + 8, "{} descriptors, {before} before", descriptors());
    // The front end reads nothing, and the daemon does not end by itself.
    daemon.signal(Signal::TERM);
    let (status, said) = daemon.wait();
    assert!(!status.success(), "{said}");
}

#[test]
#[ignore = "waits for time limits, 10 s each"]
fn a_daemon_that_does_not_answer_is_not_waited_for_without_a_limit() {
    let (bench, daemon, _guest) = begin("silent");
    upgrade(&bench);
    for _ in 0..2 {
        let said = refused(&bench);
        assert!(said.contains("does not answer in time"), "{said}");
    }
    daemon.signal(Signal::TERM);
    daemon.wait();
}

#[test]
#[ignore = "waits for a time limit, 30 s"]
fn rings_that_do_not_stop_start_again_when_they_have() {
    let (bench, _daemon, _guest) = begin("slow-stop");
    upgrade(&bench);
    install_good(&bench);
    let said = refused(&bench);
    assert!(said.contains("requests in flight"), "{said}");
    let said = refused(&bench);
    assert!(said.contains("an earlier upgrade"), "{said}");
    fs::write(bench.path().join("go"), "").unwrap();
    fake::wait_for(&bench.path().join("restarted"));
}

#[test]
fn messages_of_the_front_end_pass_while_the_new_daemon_starts() {
    let (bench, _daemon, mut guest) = begin("unused");
    let (path, script) = (bench.path().display().to_string(), bench.path().join("slow"));
    fs::write(
        &script,
        format!(
            "#!/bin/sh\n: >{path}/starting\nwhile ! [ -e {path}/go ]; do sleep 0.01; done\nexec {path}/good \"$@\"\n"
        ),
    )
    .unwrap();
    bench.replace_executable(&script);
    let asked = ask_meanwhile(&bench);
    fake::wait_for(&bench.path().join("starting"));
    // The new daemon is not ready before this is done.
    let base = guest.front_end.stop_queue(REQUEST).unwrap();
    guest.front_end.restart_queue(REQUEST, &guest.session.exchange, base).unwrap();
    guest.session.getattr(1, None).unwrap();
    fs::write(bench.path().join("go"), "").unwrap();
    let output = asked.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    guest.session.getattr(1, None).unwrap();
}

#[test]
fn a_daemon_is_started_anew_if_the_front_end_changes_the_device_meanwhile() {
    let (bench, daemon, mut guest) = begin("unused");
    let (path, script) = (bench.path().display().to_string(), bench.path().join("twice"));
    let fake = fake::start(&bench, "slow-set-up");
    fs::write(
        &script,
        format!("#!/bin/sh\nif mkdir {path}/first 2>/dev/null; then {fake}fi\nexec {path}/good \"$@\"\n"),
    )
    .unwrap();
    bench.replace_executable(&script);
    let asked = ask_meanwhile(&bench);
    fake::wait_for(&bench.path().join("set-up"));
    let base = guest.front_end.stop_queue(REQUEST).unwrap();
    guest.front_end.restart_queue(REQUEST, &guest.session.exchange, base).unwrap();
    fs::write(bench.path().join("go"), "").unwrap();
    let output = asked.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    guest.session.getattr(1, None).unwrap();
    drop(guest);
    assert!(daemon.wait().0.success());
}

#[test]
fn an_executable_in_the_share_is_not_started() {
    let bench = Bench::with_executable();
    // The folder of the bench has the executable.
    let mut daemon = bench.start("--socket-path {S} --shared-dir . --upgradable");
    let mut guest = Guest::begin(&mut daemon);
    assert!(refused(&bench).contains("is in the shared directory"));
    guest.session.getattr(1, None).unwrap();
    drop(guest);
    let said = daemon.wait().1;
    assert!(said.contains("upgrades will be refused"), "it says so at the start: {said}");

    let mut daemon = bench.start("--socket-path {S} --shared-dir . --upgradable --readonly");
    let guest = Guest::begin(&mut daemon);
    upgrade(&bench);
    drop(guest);
    assert!(!daemon.wait().1.contains("upgrades will be refused"));
}

#[test]
fn an_executable_that_others_can_write_is_not_started() {
    use std::os::unix::fs::PermissionsExt as _;
    let (bench, _daemon, mut guest) = begin("unused");
    install_good(&bench);
    let set_mode = |mode| fs::set_permissions(bench.executable(), fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o757);
    assert!(refused(&bench).contains("can be changed by other users"));
    set_mode(0o755);
    upgrade(&bench);
    guest.session.getattr(1, None).unwrap();
}
