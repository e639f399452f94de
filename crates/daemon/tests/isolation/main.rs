//! The process that serves: what it sees, what it may do, and how it ends.

mod descriptors;
mod devices;
mod filter;
mod full_disk;
#[path = "../launch/mod.rs"]
mod launch;

use launch::{Bench, Daemon, has_user_namespaces, is_root, skipped};
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, MKNOD, SETFCAP as the kernel numbers them.
const USUAL_CAPABILITIES: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 27 | 1 << 31;

/// The fields of `/proc/PID/status`.
fn status(pid: u32) -> HashMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn capabilities(status: &HashMap<String, String>, set: &str) -> u64 {
    u64::from_str_radix(&status[set], 16).unwrap()
}

fn namespace(pid: u32, kind: &str) -> std::path::PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap()
}

/// A front end that has connected: the daemon is isolated by then.
fn connected(bench: &Bench, args: &str) -> (Daemon, UnixStream) {
    let mut daemon = bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} {args}"));
    let stream = daemon.connect();
    wait_until(|| status(daemon.serving_pid())["Seccomp"] == "2", "the daemon is restricted");
    (daemon, stream)
}

/// The sandboxes that this user may have.
fn modes() -> &'static [&'static str] {
    if is_root() || has_user_namespaces() { &["none", "namespace"] } else { &["none"] }
}

fn wait_until(holds: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Checks what holds for every isolated daemon.
fn assert_isolated(pid: u32) {
    let ours = std::process::id();
    for kind in ["mnt", "net"] {
        assert_ne!(namespace(pid, kind), namespace(ours, kind), "{kind}");
    }
    let status = status(pid);
    assert_eq!(status["NSpid"].split_whitespace().last(), Some("1"));
    assert_eq!((&*status["NoNewPrivs"], &*status["Seccomp"]), ("1", "2"));
    for set in ["CapEff", "CapPrm"] {
        assert_eq!(capabilities(&status, set) & !USUAL_CAPABILITIES, 0, "{set}");
    }
    assert_eq!((capabilities(&status, "CapInh"), capabilities(&status, "CapAmb")), (0, 0));
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    for line in mounts.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (point, options) = (fields[4], fields[5]);
        assert!(point == "/" || point == "/fd" || point.starts_with("/share"), "{mounts}");
        for wanted in ["nodev", "nosuid", "noexec"] {
            assert!(options.split(',').any(|option| option == wanted), "{wanted}: {line}");
        }
    }
}

#[test]
fn root_serves_from_namespaces_with_few_capabilities() {
    if !is_root() {
        return skipped("needs root");
    }
    let bench = Bench::new();
    fs::write(bench.share().join("file"), "").unwrap();

    let (daemon, _front_end) = connected(&bench, "");

    // 1. Its files are the share and its own descriptors.
    let pid = daemon.serving_pid();
    assert_ne!(pid, daemon.pid());
    assert_isolated(pid);
    let seen = |path: &str| {
        let entries = fs::read_dir(format!("/proc/{pid}/root/{path}")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(seen(""), ["fd", "share"]);
    assert_eq!(seen("share"), ["file"]);
    // 2. Its groups are gone, its mask is empty.
    let status = status(pid);
    assert_eq!(status["Groups"], "");
    assert_eq!(status["Umask"], "0000");
    // 3. The process that stays outside can remove the socket, and no more.
    let keeper = capabilities(&self::status(daemon.pid()), "CapEff");
    assert_eq!(keeper & !(1 << 1 | 1 << 5), 0, "{keeper:x}");
}

#[test]
fn an_ordinary_user_serves_from_namespaces() {
    if !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::of_ordinary_user();

    let (daemon, _front_end) = connected(&bench, "");

    assert_isolated(daemon.serving_pid());
    assert_ne!(namespace(daemon.serving_pid(), "user"), namespace(std::process::id(), "user"));
}

#[test]
fn an_ordinary_user_can_be_root_of_the_namespace() {
    if !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::of_ordinary_user();
    let own = if is_root() { launch::ORDINARY_ID } else { rustix::process::geteuid().as_raw() };

    let (daemon, _front_end) = connected(&bench, &format!("--uid-map :0:{own}:1: --gid-map :0:{own}:1:"));

    let map = fs::read_to_string(format!("/proc/{}/uid_map", daemon.serving_pid())).unwrap();
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", &own.to_string(), "1"]);
}

#[test]
fn root_can_serve_from_a_user_namespace_of_other_ids() {
    if !is_root() {
        return skipped("needs root");
    }
    let bench = Bench::new();

    let (daemon, _front_end) = connected(&bench, "--uid-map :0:100000:65536: --gid-map :0:100000:65536:");

    assert_isolated(daemon.serving_pid());
    assert_eq!(status(daemon.serving_pid())["Uid"].split_whitespace().next(), Some("100000"));
}

#[test]
fn ids_that_nobody_granted_are_refused() {
    if !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::of_ordinary_user();

    let daemon = bench.start("--socket-path {S} --shared-dir {D} --uid-map :0:3000000000:10:");

    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("newuidmap"), "{said}");
    assert_eq!(bench.left_behind(), [""; 0]);
}

#[test]
fn a_root_directory_of_its_own_is_for_root() {
    let bench = Bench::of_ordinary_user();
    let (status, said) = bench.start("--socket-path {S} --shared-dir {D} --sandbox chroot").wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("needs root"), "{said}");
    assert_eq!(bench.left_behind(), [""; 0]);

    if !is_root() {
        return skipped("the rest needs root");
    }
    let bench = Bench::new();
    let (daemon, _front_end) = connected(&bench, "--sandbox chroot");
    let root = fs::read_link(format!("/proc/{}/root", daemon.serving_pid())).unwrap();
    assert_eq!(root, bench.share().canonicalize().unwrap());
}

#[test]
fn changes_of_capabilities_are_in_force() {
    if !is_root() {
        return skipped("needs root");
    }
    let bench = Bench::new();
    const SYS_ADMIN: u64 = 1 << 21;

    let (daemon, _front_end) = connected(&bench, "--modcaps=+sys_admin:-mknod:-setfcap");

    let status = status(daemon.serving_pid());
    let expected = (USUAL_CAPABILITIES & !(1 << 27) & !(1 << 31)) | SYS_ADMIN;
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(capabilities(&status, set), expected, "{set}");
    }
}

#[test]
fn a_daemon_without_handles_gives_up_the_capability_to_open_them() {
    if !is_root() {
        return skipped("needs root");
    }
    const DAC_READ_SEARCH: u64 = 1 << 2;
    for (option, expected) in [("never", USUAL_CAPABILITIES & !DAC_READ_SEARCH), ("prefer", USUAL_CAPABILITIES)] {
        let bench = Bench::new();

        let (daemon, _front_end) = connected(&bench, &format!("--inode-file-handles={option}"));

        let status = status(daemon.serving_pid());
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(capabilities(&status, set), expected, "{option}: {set}");
        }
    }
}

#[test]
fn signals_end_every_kind_of_daemon_at_once_and_leave_nothing() {
    let modes: &[&str] = match (is_root(), has_user_namespaces()) {
        (true, _) => &["none", "chroot", "namespace"],
        (false, true) => &["none", "namespace"],
        (false, false) => &["none"],
    };
    for mode in modes {
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            let bench = Bench::new();
            let (daemon, _front_end) = connected(&bench, &format!("--sandbox {mode}"));
            let serving = daemon.serving_pid();

            daemon.signal(signal);

            let (status, said) = daemon.wait();
            assert_eq!(status.code(), Some(1), "{mode} {signal:?}: {said}");
            assert!(!is_running(serving), "{mode} {signal:?}");
            assert_eq!(bench.left_behind(), [""; 0], "{mode} {signal:?}");
        }
    }
}

#[test]
fn a_killed_keeper_takes_the_daemon_along_and_the_socket_can_be_used_again() {
    if !is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::new();
    let (daemon, _front_end) = connected(&bench, "");
    let serving = daemon.serving_pid();

    daemon.signal(Signal::KILL);

    daemon.wait();
    wait_until(|| !is_running(serving), "the daemon follows");
    let (second, _front_end) = connected(&bench, "");
    drop(second);
}

#[test]
fn a_killed_daemon_is_reported_by_its_keeper_which_cleans_up() {
    if !is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::new();
    let (daemon, _front_end) = connected(&bench, "");

    let serving = rustix::process::Pid::from_raw(daemon.serving_pid() as i32).unwrap();
    rustix::process::kill_process(serving, Signal::KILL).unwrap();

    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(128 + 9));
    assert!(said.contains("killed by signal 9"), "{said}");
    assert_eq!(bench.left_behind(), [""; 0]);
}

#[test]
fn a_second_daemon_on_a_socket_is_refused_with_the_first_ones_id() {
    let bench = Bench::new();
    let (first, _front_end) = connected(&bench, "--sandbox none");

    let (status, said) = bench.start("--socket-path {S} --shared-dir {D}").wait();

    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&format!("in use by process {}", first.pid())), "{said}");
    assert_eq!(fs::read_to_string(bench.path().join("socket.pid")).unwrap(), format!("{}\n", first.pid()));
}

#[test]
fn what_cannot_be_shared_is_named() {
    let bench = Bench::new();
    for (share, reason) in [("/nonexistent", "No such file"), ("/dev/null", "neither a directory nor a file")] {
        let (status, said) = bench.start(&format!("--socket-path {{S}} --shared-dir {share}")).wait();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(share) && said.contains(reason), "{said}");
        assert_eq!(bench.left_behind(), [""; 0]);
    }
}

#[test]
fn a_single_file_can_be_shared() {
    let bench = Bench::new();
    fs::write(bench.share().join("file"), "content").unwrap();
    for mode in modes() {
        let mut daemon = bench.start(&format!("--socket-path {{S}} --shared-dir {{D}}/file --sandbox {mode}"));
        let front_end = daemon.connect();
        if *mode == "namespace" {
            // The process that serves may not be there yet.
            let share = || format!("/proc/{}/root/share", daemon.serving_pid());
            wait_until(|| fs::read_to_string(share()).is_ok_and(|text| text == "content"), "the file is the share");
        }
        drop(front_end);
        let (status, said) = daemon.wait();
        assert_eq!(status.code(), Some(0), "{mode}: {said}");
    }
}

#[test]
fn a_limit_that_cannot_be_had_is_refused_with_the_one_that_can() {
    let most = fs::read_to_string("/proc/sys/fs/nr_open").unwrap().trim().parse::<u64>().unwrap();
    let bench = Bench::new();

    let line = format!("--socket-path {{S}} --shared-dir {{D}} --rlimit-nofile {}", most + 1);
    let (status, said) = bench.start(&line).wait();

    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&most.to_string()), "{said}");
}

#[test]
fn a_share_is_served_under_the_hard_limit_if_the_process_may_not_raise_it() {
    let bench = Bench::new();
    let mut wrapper = vec!["sh", "-c", "ulimit -n 4000; exec \"$@\"", "sh"];
    if is_root() {
        // Root in a container: all other capabilities.
        wrapper.extend(["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]);
    }

    let line = "--socket-path {S} --shared-dir {D} --sandbox none --rlimit-nofile 5000";
    let mut daemon = bench.start_under(&wrapper, line, |_| {});
    let front_end = daemon.connect();
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.serving_pid())).unwrap();
    drop(front_end);
    let (status, said) = daemon.wait();

    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert_eq!(limit.split_whitespace().take(2).collect::<Vec<_>>(), ["4000", "4000"], "{said}");
    assert_eq!(status.code(), Some(0), "{said}");
    for part in ["4000", "5000", "SYS_RESOURCE"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn no_open_has_to_wait_for_the_table_of_descriptors_to_grow() {
    let bench = Bench::new();
    for mode in modes() {
        let (daemon, _stream) = connected(&bench, &format!("--sandbox {mode}"));
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.serving_pid())).unwrap();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let limit: u64 = limit.split_whitespace().next().unwrap().parse().unwrap();
        let size: u64 = status(daemon.serving_pid())["FDSize"].parse().unwrap();
        assert!(size >= limit.min(1 << 16), "{mode}: room for {size} of {limit}");
    }
}

#[test]
fn the_environment_outweighs_the_level_of_messages() {
    const LINE: &str = "--socket-path {S} --shared-dir {D} --sandbox none";
    const READY: &str = "Waiting for vhost-user socket connection...";
    for (option, environment, is_said) in [
        ("", None, true),
        ("--log-level error", None, false),
        ("--log-level error", Some("info"), true),
        ("", Some("ERROR"), false),
    ] {
        let bench = Bench::new();
        let mut daemon = bench.start_with(&format!("{LINE} {option}"), |command| {
            if let Some(value) = environment {
                command.env("RUST_LOG", value);
            }
        });
        drop(daemon.connect());
        let (_, said) = daemon.wait();
        assert_eq!(said.contains(READY), is_said, "{option} {environment:?}: {said}");
    }
}
