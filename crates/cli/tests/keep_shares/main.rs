//! `transom share`: directories that a machine gets and loses while it runs.

mod fixture;
#[path = "../within/mod.rs"]
mod within;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use fixture::{Fixture, children};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

fn is_skipped(test: &str) -> bool {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_qemu || !daemon.is_file() {
        eprintln!("SKIPPED: {test}: no qemu-system-x86_64 in PATH, or no daemon {daemon:?}");
    }
    !has_qemu || !daemon.is_file()
}

/// Adds, uses and removes shares; ports are used again.
fn shares_come_and_go(fixture: &Fixture) {
    fixture.succeeds(&["share", "add", "m", "second"]);
    fixture.succeeds(&["share", "add", "m", "third:/data,ro"]);
    assert_eq!(fixture.sh("cat /mnt/second/name /data/name; echo new > /mnt/second/made"), "second\nthird\n");
    assert_eq!(fs::read_to_string(fixture.path("second/made")).unwrap(), "new\n");
    assert_eq!(fixture.sh("echo x 2>/dev/null > /data/made || echo refused"), "refused\n");
    assert_eq!(fixture.guests(), ["/mnt/first", "/mnt/second", "/data"]);

    fixture.is_refused(&["share", "add", "m", "first:/mnt/second"], "would hide");
    fixture.is_refused(&["share", "add", "m", "first:/mnt"], "would hide");
    fixture.is_refused(&["share", "add", "m", "absent"], "does not exist");
    fixture.is_refused(&["share", "add", "m", "third:/x,overlay"], "`transom run --keep`");
    fixture.is_refused(&["share", "remove", "m", "/mnt/first"], "was there at its start");
    fixture.is_refused(&["share", "remove", "m", "/nowhere"], "no share is mounted");

    // What uses it holds it.
    fixture.sh("(cd /mnt/second; exec sleep 1000) >/dev/null 2>&1 & echo $! > /tmp/pid");
    fixture.is_refused(&["share", "remove", "m", "/mnt/second"], "(sleep) has its working directory there");
    assert_eq!(fixture.sh("kill $(cat /tmp/pid); sleep 0.1; cat /mnt/second/name"), "second\n");
    fixture.succeeds(&["share", "remove", "m", "/mnt/second/"]);
    assert_eq!(fixture.sh("ls /mnt/second; cat /data/name"), "third\n");
    assert_eq!(fixture.guests(), ["/mnt/first", "/data"]);
    for _ in 0..2 {
        fixture.succeeds(&["share", "add", "m", "second:/again"]);
        assert_eq!(fixture.sh("cat /again/made"), "new\n");
        fixture.succeeds(&["share", "remove", "m", "/again"]);
    }
    // The daemon has gone with its share, and the other one with the machine.
    let third = fixture.daemon("late2").unwrap();
    assert_eq!(fixture.daemon("late1"), None);
    let stopped = fixture.transom(&["stop", "m"]);
    assert!(stopped.status.success() && stopped.stderr.is_empty(), "{stopped:?}");
    assert!(!Path::new(&format!("/proc/{}", third.as_raw_nonzero())).exists());
}

#[test]
fn shares_come_and_go_while_a_machine_runs() {
    if is_skipped("shares_come_and_go_while_a_machine_runs") {
        return;
    }
    shares_come_and_go(&Fixture::start(&[]));
}

#[test]
fn shares_come_and_go_in_a_machine_that_booted_with_its_devices() {
    if is_skipped("shares_come_and_go_in_a_machine_that_booted") {
        return;
    }
    shares_come_and_go(&Fixture::start(&["--cold"]));
}

#[test]
fn a_machine_has_room_for_six_shares() {
    if is_skipped("a_machine_has_room_for_six_shares") {
        return;
    }
    let fixture = Fixture::start(&["--hide", "first/sub", "--rate", "100M"]);
    for number in 1..6 {
        fixture.succeeds(&["share", "add", "m", &format!("second:/mnt/{number}")]);
    }
    fixture.is_refused(&["share", "add", "m", "third"], "room for 6 shares");
    fixture.succeeds(&["share", "remove", "m", "/mnt/3"]);
    // The options of the machine apply.
    fixture.succeeds(&["share", "add", "m", "first:/mnt/hiding"]);
    assert_eq!(fixture.sh("ls /mnt/hiding; cat /mnt/5/name"), "name\nsecond\n");
}

#[test]
fn a_share_that_something_holds_is_not_removed_and_loses_nothing() {
    if is_skipped("a_share_that_something_holds_is_not_removed_and_loses_nothing") {
        return;
    }
    let fixture = Fixture::start(&[]);
    let remove = ["share", "remove", "m", "/mnt/second"];
    let written = |name: &str| fs::read_to_string(fixture.path("second").join(name)).unwrap();
    fixture.succeeds(&["share", "add", "m", "second"]);

    // A second mount, which stays usable after the refusal.
    fixture.sh("mkdir /x; mount -t virtiofs late1 /x; echo before > /x/held");
    fixture.is_refused(&remove, "is in use: it is also mounted at /x");
    assert_eq!(fixture.sh("echo after >> /x/held; umount /x; cat /mnt/second/name"), "second\n");
    assert_eq!(written("held"), "before\nafter\n");

    // Another mount namespace.
    fixture.sh("(exec unshare -m sleep 1000) >/dev/null 2>&1 & echo $! > /tmp/pid; \
                while [ $(readlink /proc/$!/ns/mnt) = $(readlink /proc/1/ns/mnt) ]; do :; done; \
                until grep -q sleep /proc/$!/comm; do :; done");
    fixture.is_refused(&remove, "(sleep) has it at /mnt/second in a mount namespace of its own");
    fixture.sh("kill $(cat /tmp/pid); while [ -e /proc/$(cat /tmp/pid) ]; do :; done");

    // A file of a mount that was detached: no process shows a mount, and the share has to be mounted again to tell.
    fixture.sh("(exec 3> /mnt/second/late; umount -l /mnt/second; while ! [ -e /tmp/go ]; do sleep 0.1; done; \
                echo late >&3; echo done > /tmp/done) >/dev/null 2>&1 & \
                while grep -q late1 /proc/mounts; do :; done");
    fixture.is_refused(&remove, "is in use: process ");
    fixture.is_refused(&remove, "has /late open");
    fixture.sh("touch /tmp/go; until [ -e /tmp/done ]; do :; done; cat /mnt/second/late");
    assert_eq!(written("late"), "late\n");
    fixture.succeeds(&remove);

    // By force, what has been written is there; what is written later is not.
    fixture.succeeds(&["share", "add", "m", "third"]);
    fixture.sh("(cd /mnt/third; echo early > early; until [ -e /tmp/end ]; do sleep 0.1; done; echo x > late; \
                touch /tmp/ended) >/dev/null 2>&1 & until [ -e /mnt/third/early ]; do :; done");
    fixture.is_refused(&["share", "remove", "m", "/mnt/third"], "is in use");
    fixture.succeeds(&["share", "remove", "--force", "m", "/mnt/third"]);
    fixture.sh("touch /tmp/end; until [ -e /tmp/ended ]; do :; done");
    assert_eq!(fs::read_to_string(fixture.path("third/early")).unwrap(), "early\n");
    assert!(!fixture.path("third/late").exists());
    assert_eq!(fixture.guests(), ["/mnt/first"]);
}

#[test]
fn a_share_that_hangs_holds_up_nothing_else() {
    if is_skipped("a_share_that_hangs_holds_up_nothing_else") {
        return;
    }
    let fixture = Fixture::start(&[]);
    fixture.succeeds(&["share", "add", "m", "second"]);
    fixture.sh("echo written > /mnt/second/made");
    let daemon = fixture.daemon("late1").unwrap();
    // A host whose disk does not answer: the guest can neither write back nor unmount.
    kill_process_group(daemon, Signal::STOP).unwrap();
    fixture.is_refused(&["share", "remove", "--timeout", "1", "m", "/mnt/second"], "within 1 s; it goes on");
    fixture.is_refused(&["share", "remove", "m", "/mnt/second"], "is being removed already");
    assert_eq!(fixture.guests(), ["/mnt/first", "/mnt/second"]);
    // Other shares come and go, and commands run.
    fixture.succeeds(&["share", "add", "m", "third"]);
    assert_eq!(fixture.sh("cat /mnt/third/name"), "third\n");
    fixture.succeeds(&["share", "remove", "m", "/mnt/third"]);
    // It is removed once that is possible, although nobody waits any more.
    kill_process_group(daemon, Signal::CONT).unwrap();
    within::until(|| format!("{:?}", fixture.guests()), || (fixture.guests() == ["/mnt/first"]).then_some(()));
    fixture.succeeds(&["share", "add", "m", "second"]);
    assert_eq!(fixture.sh("cat /mnt/second/made"), "written\n");

    // By force, at the end of the time; the guest cannot use it any more.
    let daemon = fixture.daemon("late3").unwrap();
    kill_process_group(daemon, Signal::STOP).unwrap();
    let forced = fixture.transom(&["share", "remove", "--force", "--timeout", "1", "m", "/mnt/second"]);
    let told = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert!(forced.status.success() && told.contains("within 1 s: the daemon was killed"), "{told}");
    assert_eq!(fixture.guests(), ["/mnt/first"]);
    within::until(|| "the daemon is there".into(), || fixture.daemon("late3").is_none().then_some(()));
    // Its path can have another one at once.
    fixture.succeeds(&["share", "add", "m", "third:/mnt/second"]);
    assert_eq!(fixture.sh("cat /mnt/second/name; echo kept > /mnt/second/made"), "third\n");
    // The machine does not wait for what was removed, and loses nothing of the others.
    let stopped = fixture.transom(&["stop", "m"]);
    assert!(stopped.status.success() && stopped.stderr.is_empty(), "{stopped:?}");
    assert_eq!(fs::read_to_string(fixture.path("third/made")).unwrap(), "kept\n");
}

#[test]
fn a_daemon_that_starts_slowly_holds_up_no_other_change() {
    if is_skipped("a_daemon_that_starts_slowly_holds_up_no_other_change") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [script, started, go] = ["daemon", "started", "go"].map(|name| place.path().join(name));
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let [begins, waits] = [&started, &go].map(|path| path.display());
    let is_second = "case $(pwd -P) in */second)";
    let text = format!(
        "#!/bin/sh\n{is_second} : >{begins}; while ! [ -e {waits} ]; do sleep 0.05; done;; esac\nexec {} \"$@\"\n",
        daemon.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let fixture = Fixture::start(&["--daemon", script.to_str().unwrap()]);
    let added = thread::scope(|scope| {
        let adding = scope.spawn(|| fixture.transom(&["share", "add", "m", "second"]));
        within::until(|| "its daemon does not start".into(), || started.exists().then_some(()));
        // QEMU waits for it by now, but nobody else does.
        fixture.is_refused(&["share", "remove", "m", "/mnt/nothing"], "no share is mounted at");
        fixture.is_refused(&["share", "add", "m", "third:/mnt/second"], "would hide the one");
        fs::write(&go, "").unwrap();
        adding.join().unwrap()
    });
    assert!(added.status.success(), "{added:?}");
    assert_eq!(fixture.sh("cat /mnt/second/name"), "second\n");
    fixture.succeeds(&["share", "remove", "m", "/mnt/second"]);
}

#[test]
fn a_guest_that_stands_still_holds_up_nothing() {
    if is_skipped("a_guest_that_stands_still_holds_up_nothing") {
        return;
    }
    let fixture = Fixture::start(&[]);
    // What it is asked for has an end, and so has the machine.
    fixture.succeeds(&["share", "add", "m", "third"]);
    let qemu = children(fixture.keeper()).into_iter().find(|pid| {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
        name.starts_with("qemu")
    });
    kill_process(qemu.unwrap(), Signal::STOP).unwrap();
    fixture.is_refused(&["share", "remove", "--timeout", "1", "m", "/mnt/third"], "within 1 s");
    fixture.is_refused(&["stop", "--timeout", "1", "m"], "transom stop --force m");
    fixture.succeeds(&["stop", "--force", "m"]);
    assert_eq!(fixture.succeeds(&["ps", "--json"]), "[]\n");
}

/// A mount on this host, which ends with its test.
struct HostMount(Child);

impl HostMount {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for HostMount {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        within::end(&mut self.0, || "the mount on this host".into());
    }
}

#[test]
fn a_directory_of_the_host_that_hangs_holds_up_nothing() {
    let test = "a_directory_of_the_host_that_hangs_holds_up_nothing";
    if is_skipped(test) {
        return;
    }
    let fixture = Fixture::start(&[]);
    fs::create_dir(fixture.path("mounted")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["mount", "--shared-dir", "second", "mounted"]).current_dir(fixture.path("."));
    let mut mount = HostMount(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let ended = within::until(
        || "not mounted".into(),
        || match mount.0.try_wait().unwrap() {
            Some(status) => Some(Some(status)),
            None => fixture.path("mounted/name").exists().then_some(None),
        },
    );
    if let Some(status) = ended {
        eprintln!("SKIPPED: {test}: `transom mount` does not work here ({status})");
        std::mem::forget(mount);
        return;
    }
    mount.signal(Signal::STOP);
    fixture.is_refused(&["share", "add", "--timeout", "1", "m", "mounted/sub"], "on this host does not answer");
    assert_eq!(fixture.sh("cat /mnt/first/name"), "first\n");
    fixture.succeeds(&["share", "add", "m", "third"]);
    fixture.succeeds(&["stop", "m"]);
}

#[test]
fn a_device_that_the_guest_keeps_is_shown_as_it_is() {
    if is_skipped("a_device_that_the_guest_keeps_is_shown_as_it_is") {
        return;
    }
    let fixture = Fixture::start(&[]);
    fixture.succeeds(&["share", "add", "m", "second"]);
    // The agent finds no slot to switch off.
    fixture.sh("mount -t tmpfs none /sys/bus/pci/slots");
    let removed = fixture.transom(&["share", "remove", "m", "/mnt/second"]);
    let told = String::from_utf8_lossy(&removed.stderr).into_owned();
    assert!(removed.status.success() && told.contains("not switched the device off"), "{told}");
    assert_eq!((fixture.guests(), fixture.daemon("late1")), (vec!["/mnt/first".to_owned()], None));
    for number in 1..5 {
        fixture.succeeds(&["share", "add", "m", &format!("second:/mnt/{number}")]);
    }
    fixture.is_refused(&["share", "add", "m", "third"], "1 of them were removed, but the guest");
    // Once it is released, there is room again.
    fixture.sh("umount /sys/bus/pci/slots; grep -l '^0000:02:00' /sys/bus/pci/slots/*/address | \
                while read file; do echo 0 > $(dirname $file)/power; done");
    fixture.succeeds(&["share", "add", "m", "third"]);
    assert_eq!(fixture.sh("cat /mnt/third/name"), "third\n");
}

/// Adds and removes a share many times.
fn nothing_is_left(times: usize) {
    let fixture = Fixture::start(&[]);
    let once = || {
        fixture.succeeds(&["share", "add", "m", "second"]);
        fixture.succeeds(&["share", "remove", "m", "/mnt/second"]);
    };
    once();
    let before = fixture.counts();
    for _ in 1..times {
        once();
    }
    // Threads that have ended give their descriptors back a moment later.
    within::until(|| format!("{before:?}, then {:?}", fixture.counts()), || (fixture.counts() == before).then_some(()));
}

#[test]
fn shares_that_have_gone_leave_nothing() {
    if !is_skipped("shares_that_have_gone_leave_nothing") {
        nothing_is_left(5);
    }
}

#[test]
#[ignore = "half a minute; by name"]
fn fifty_shares_that_have_gone_leave_nothing() {
    if !is_skipped("fifty_shares_that_have_gone_leave_nothing") {
        nothing_is_left(50);
    }
}
