//! What a driver has before an upgrade, it has afterwards.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    thread,
    time::{Duration, Instant},
};

use rustix::{io::Errno, process::Signal};

use crate::{
    Guest, ask_meanwhile,
    launch::{Bench, Daemon, is_root},
    start, upgrade,
};

const SANDBOXES: [&str; 3] = ["--sandbox=namespace", "--sandbox=chroot", "--sandbox=none"];

#[test]
fn a_session_goes_on_with_its_inodes_files_and_directories() {
    for sandbox in SANDBOXES.iter().filter(|sandbox| is_root() || !sandbox.contains("chroot")) {
        let bench = Bench::with_executable();
        fs::create_dir_all(bench.share().join("dir")).unwrap();
        fs::write(bench.share().join("dir/file"), "content").unwrap();
        let mut daemon = start(&bench, sandbox);
        let mut guest = Guest::begin(&mut daemon);
        let session = &mut guest.session;
        let dir = session.lookup(1, b"dir").unwrap().nodeid.get();
        let file = session.lookup(dir, b"file").unwrap().nodeid.get();
        let fh = session.open(file, libc::O_RDWR as u32).unwrap();
        let listing = session.opendir(dir).unwrap();
        let first = session.readdir_once(dir, listing, 0, 4096, false).unwrap();

        for round in 0..3 {
            upgrade(&bench);
            session.write(file, fh, 7, format!(" more {round}").as_bytes()).unwrap();
            assert_eq!(session.read(file, fh, 0, 100).unwrap(), format!("content more {round}").as_bytes());
            assert_eq!(session.lookup(dir, b"file").unwrap().nodeid.get(), file, "{sandbox}");
            let again = session.readdir_once(dir, listing, 0, 4096, false).unwrap();
            assert_eq!(again.len(), first.len());
            let new = session.create(dir, format!("new{round}").as_bytes(), libc::O_RDWR as u32, 0o644).unwrap();
            assert!(![1, dir, file].contains(&new.entry.nodeid.get()));
            session.release(new.entry.nodeid.get(), new.open.fh.get()).unwrap();
            session.unlink(dir, format!("new{round}").as_bytes()).unwrap();
            session.forget(new.entry.nodeid.get(), 1).unwrap();
        }
        assert_eq!(fs::read_to_string(bench.share().join("dir/file")).unwrap(), "content more 2");
        session.release(file, fh).unwrap();
        drop(guest);
        let (status, said) = daemon.wait();
        assert!(status.success(), "{sandbox}: {status}: {said}");
        assert_eq!(bench.left_behind(), Vec::<String>::new());
    }
}

#[test]
fn files_without_names_go_on() {
    let bench = Bench::with_executable();
    fs::write(bench.share().join("removed"), "removed").unwrap();
    fs::write(bench.share().join("moved"), "moved").unwrap();
    fs::create_dir_all(bench.share().join("from/below")).unwrap();
    fs::write(bench.share().join("from/below/file"), "below").unwrap();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let mut open = |name: &[u8]| {
        let nodeid = session.lookup(1, name).unwrap().nodeid.get();
        (nodeid, session.open(nodeid, libc::O_RDWR as u32).unwrap())
    };
    let (removed, removed_fh) = open(b"removed");
    let (moved, moved_fh) = open(b"moved");
    let from = session.lookup(1, b"from").unwrap().nodeid.get();
    let below = session.lookup(from, b"below").unwrap().nodeid.get();
    session.unlink(1, b"removed").unwrap();
    // By the host, which tells nobody.
    fs::rename(bench.share().join("moved"), bench.share().join("elsewhere")).unwrap();
    fs::rename(bench.share().join("from/below"), bench.share().join("to")).unwrap();

    for _ in 0..2 {
        upgrade(&bench);
        session.write(removed, removed_fh, 0, b"REMOVED").unwrap();
        assert_eq!(session.read(removed, removed_fh, 0, 100).unwrap(), b"REMOVED");
        assert_eq!(session.getattr(removed, None).unwrap().nlink.get(), 0);
        session.write(moved, moved_fh, 0, b"MOVED").unwrap();
        let again = session.open(moved, libc::O_RDONLY as u32).unwrap();
        assert_eq!(session.read(moved, again, 0, 100).unwrap(), b"MOVED");
        session.lookup(below, b"file").unwrap();
    }
    assert_eq!(fs::read(bench.share().join("elsewhere")).unwrap(), b"MOVED");
    drop(guest);
}

#[test]
fn a_file_that_the_host_has_moved_stays_one_inode() {
    for handles in ["prefer", "never"] {
        let bench = Bench::with_executable();
        let at = |name: &str| bench.share().join(name);
        fs::write(at("before"), "content").unwrap();
        let mut daemon = start(&bench, &format!("--inode-file-handles={handles}"));
        let mut guest = Guest::begin(&mut daemon);
        let session = &mut guest.session;
        let nodeid = session.lookup(1, b"before").unwrap().nodeid.get();
        let fh = session.open(nodeid, libc::O_RDWR as u32).unwrap();
        // Not by rename(2), which the kernel would tell the daemon's descriptor.
        fs::hard_link(at("before"), at("after")).unwrap();
        fs::remove_file(at("before")).unwrap();
        for _ in 0..2 {
            upgrade(&bench);
            assert_eq!(session.lookup(1, b"after").unwrap().nodeid.get(), nodeid, "{handles}");
            session.link(nodeid, 1, b"link").unwrap();
            session.unlink(1, b"link").unwrap();
            session.write(nodeid, fh, 0, b"CONTENT").unwrap();
            let again = session.open(nodeid, libc::O_RDONLY as u32).unwrap();
            assert_eq!(session.read(nodeid, again, 0, 100).unwrap(), b"CONTENT");
        }
        assert_eq!(fs::read(at("after")).unwrap(), b"CONTENT");
        drop(guest);
    }
}

#[test]
fn hidden_paths_stay_hidden() {
    let bench = Bench::with_executable();
    fs::create_dir(bench.share().join("dir")).unwrap();
    for name in ["dir/secret", "dir/file", ".private"] {
        fs::write(bench.share().join(name), "content").unwrap();
    }
    let mut daemon = start(&bench, "--hide=dir/secret --hide-name=.private");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let dir = session.lookup(1, b"dir").unwrap().nodeid.get();
    for _ in 0..3 {
        assert_eq!(session.lookup(dir, b"secret").unwrap_err().errno(), Some(Errno::NOENT));
        assert_eq!(session.lookup(1, b".private").unwrap_err().errno(), Some(Errno::NOENT));
        let listed = session.readdir(dir, 4096, false).unwrap();
        assert!(listed.iter().all(|entry| entry.name != b"secret"));
        session.lookup(dir, b"file").unwrap();
        upgrade(&bench);
    }
    drop(guest);
}

/// Returns what a daemon has counted, as OpenMetrics. Empty if the daemon before has accepted the connection and ended.
fn metrics(bench: &Bench) -> String {
    let mut stream = UnixStream::connect(bench.path().join("metrics")).unwrap();
    let mut page = String::new();
    let read = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").and_then(|()| stream.read_to_string(&mut page));
    if read.is_ok() { page } else { String::new() }
}

#[test]
fn the_metrics_stay_at_their_socket_and_begin_anew() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "--metrics-socket=metrics");
    let mut guest = Guest::begin(&mut daemon);
    let absent = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("transom_errors_total{errno=\"ENOENT\"}"));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    for _ in 0..3 {
        for _ in 0..5 {
            guest.session.lookup(1, b"absent").unwrap_err();
        }
        // A request is counted after its answer.
        while absent(&metrics(&bench)) < 5 {
            thread::yield_now();
        }
        upgrade(&bench);
        // The daemon before may answer until it has ended.
        while !metrics(&bench).contains("transom_sessions") || absent(&metrics(&bench)) > 0 {
            thread::yield_now();
        }
    }
    drop(guest);
    assert!(daemon.wait().0.success());
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

#[test]
fn requests_during_upgrades_are_served_once_each() {
    const UPGRADES: usize = 5;
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let flags = (libc::O_RDWR | libc::O_APPEND) as u32;
    let log = session.create(1, b"log", flags, 0o644).unwrap();
    let (nodeid, fh) = (log.entry.nodeid.get(), log.open.fh.get());
    let mut expected = Vec::new();
    for round in 0..UPGRADES {
        let asked = ask_meanwhile(&bench);
        let mut number = 0;
        while !asked.is_finished() || number < 20 {
            let line = format!("{round} {number}\n");
            session.write(nodeid, fh, expected.len() as u64, line.as_bytes()).unwrap();
            expected.extend_from_slice(line.as_bytes());
            let name = format!("file{}", number % 7);
            let created = session.create(1, name.as_bytes(), libc::O_RDWR as u32, 0o644).unwrap();
            session.release(created.entry.nodeid.get(), created.open.fh.get()).unwrap();
            session.rename((1, name.as_bytes()), (1, b"renamed")).unwrap();
            session.unlink(1, b"renamed").unwrap();
            session.forget(created.entry.nodeid.get(), 1).unwrap();
            number += 1;
        }
        let output = asked.join().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read(bench.share().join("log")).unwrap(), expected);
    assert_eq!(fs::metadata(bench.share().join("log")).unwrap().nlink(), 1);
    drop(guest);
}

#[test]
fn a_hangup_upgrades_and_a_termination_ends() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let before = daemon.serving_pid();
    daemon.signal(Signal::HUP);
    while daemon.serving_pid() == before {
        guest.session.getattr(1, None).unwrap();
    }
    guest.session.getattr(1, None).unwrap();
    daemon.signal(Signal::TERM);
    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("upgraded"), "{said}");
    assert_eq!(bench.left_behind(), Vec::<String>::new());
    guest.front_end.channel.wait_for_close().unwrap();
}

#[test]
fn the_next_front_end_is_served_too() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "--keep-serving");
    // It listens.
    drop(Guest::begin(&mut daemon));
    for _ in 0..2 {
        upgrade(&bench);
        let mut guest = Guest::begin(&mut daemon);
        upgrade(&bench);
        guest.session.getattr(1, None).unwrap();
        drop(guest);
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0.code(), Some(1));
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

/// The descriptors of the supervisor.
fn descriptors(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

#[test]
fn upgrades_leave_neither_descriptors_nor_processes_behind() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    guest.session.getattr(1, None).unwrap();
    let before = descriptors(&daemon);
    for _ in 0..10 {
        upgrade(&bench);
    }
    guest.session.getattr(1, None).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    // The last daemon but one may still be ending.
    let begun = Instant::now();
    while descriptors(&daemon) > before || fs::read_to_string(&children).unwrap().split_whitespace().count() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} descriptors, {before} before", descriptors(&daemon));
        thread::sleep(Duration::from_millis(5));
    }
    drop(guest);
}

#[test]
#[ignore = "a measurement: prints the pause by the number of inodes that the guest knows"]
fn pause_by_number_of_inodes() {
    for count in [10, 1000, 10_000, 100_000] {
        let bench = Bench::with_executable();
        for number in 0..count {
            fs::write(bench.share().join(number.to_string()), "").unwrap();
        }
        let mut daemon = start(&bench, "");
        let mut guest = Guest::begin(&mut daemon);
        for number in 0..count {
            guest.session.lookup(1, number.to_string().as_bytes()).unwrap();
        }
        let pauses: Vec<_> = (0..5).map(|_| upgrade(&bench).trim().to_owned()).collect();
        println!("{count} inodes: {pauses:?}");
        guest.session.getattr(1, None).unwrap();
        drop(guest);
    }
}
