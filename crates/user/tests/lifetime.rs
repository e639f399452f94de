//! Mounts from beginning to end, over real daemons: data that goes through, daemons that die, references that balance.

mod common;

use std::{
    fs,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use common::{daemons, transomd, tree};
use rustix::process::{Pid, Signal, kill_process_group};
use transom_user::{
    guest::{
        Errno,
        cache::CacheOptions,
        fs::{Fs, OpenOptions},
        session::SessionConfig,
    },
    platform::Process,
    share::{Share, ShareError},
};
use transom_wire::ops::init::InitFlags;

/// Far above what a daemon needs for a few hundred forgets on a busy machine.
const TAKEN_MAX: Duration = Duration::from_secs(30);

fn mount(mount: &Share) -> Fs<Process> {
    Fs::mount(mount.session(SessionConfig::default()).unwrap(), CacheOptions::default())
}

#[test]
fn what_several_threads_write_the_host_reads_and_the_reverse() {
    for program in daemons() {
        let dir = tree();
        let mounted = Share::builder().shared_dir(dir.path()).daemon(program).connect().unwrap();
        let share = mount(&mounted);
        // 1. What the host has.
        let file = share.open_read("sub/large").unwrap();
        let mut found = vec![0; (3 << 20) + 1];
        assert_eq!(file.read_at(0, &mut found).unwrap(), 3 << 20);
        assert!(found[..3 << 20].iter().all(|&byte| byte == 7));
        // 2. A file of each thread, larger than a request.
        thread::scope(|scope| {
            for index in 0..6u8 {
                let share = share.with_queue(index.into());
                scope.spawn(move || {
                    let data: Vec<u8> = (0..(2 << 20) + 4097).map(|at: u32| (at / 7) as u8 ^ index).collect();
                    let file = share.create(format!("of-{index}")).unwrap();
                    assert_eq!(file.write_at(0, &data).unwrap(), data.len());
                    let mut back = vec![0; data.len()];
                    assert_eq!(
                        share.open_read(format!("of-{index}")).unwrap().read_at(0, &mut back).unwrap(),
                        data.len()
                    );
                    assert!(back == data);
                    file.close().unwrap();
                });
            }
        });
        for index in 0..6u8 {
            let data = fs::read(dir.path().join(format!("of-{index}"))).unwrap();
            assert!(data.iter().zip(0u32..).all(|(&byte, at)| byte == (at / 7) as u8 ^ index));
        }
    }
}

#[test]
fn a_daemon_that_is_killed_fails_every_request_and_a_new_one_goes_on() {
    for program in daemons() {
        let dir = tree();
        let mut mounted = Share::builder().shared_dir(dir.path()).daemon(program).connect().unwrap();
        let share = mount(&mounted);
        let open = share.open_read("hello").unwrap();
        let (started, starts) = mpsc::channel();
        // 1. Threads that never stop asking, until they are told.
        let threads: Vec<_> = (0..4u16)
            .map(|queue| {
                let (share, started) = (share.with_queue(queue), started.clone());
                thread::spawn(move || {
                    let mut started = Some(started);
                    loop {
                        if let Err(errno) = share.open_read("hello").and_then(|file| file.read_at(0, &mut [0; 64])) {
                            return errno;
                        }
                        started.take().into_iter().for_each(|started| started.send(()).unwrap());
                    }
                })
            })
            .collect();
        drop(started);
        assert_eq!(starts.iter().count(), 4);
        // 2. The daemon dies in the middle.
        let pid = mounted.device().transport().daemon_id().unwrap();
        // By system call: kill(1) of procps 4.0.2 takes `-PID` for everybody.
        assert!(pid > 1);
        kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Errno::NOTCONN);
        }
        assert!(mounted.is_gone());
        assert_eq!(share.statfs("/").err(), Some(Errno::NOTCONN));
        assert!(matches!(mounted.session(SessionConfig::default()), Err(ShareError::Session(_))));
        // 3. What is left of the old session does no harm beside the new one.
        mounted.reconnect().unwrap();
        let again = mount(&mounted);
        assert_eq!(again.metadata("hello").unwrap().len(), 13);
        drop((open, share));
        assert_eq!(again.read_dir("/").unwrap().count(), 2);
    }
}

#[test]
fn every_reference_is_given_back_before_the_end() {
    let dir = tree();
    let metrics = dir.path().join("metrics");
    let mut program = transomd();
    program.args.push(format!("--metrics-socket={}", metrics.display()).into());
    // The share is another directory than the one with the socket.
    let shared = dir.path().join("sub");
    for index in 0..200 {
        fs::write(shared.join(format!("file-{index}")), "x").unwrap();
    }
    let mounted = Share::builder().shared_dir(&shared).daemon(program).connect().unwrap();
    let share = mount(&mounted);
    let gauge = |name: &str| {
        let report = transom_vm::metrics::read(&metrics).unwrap();
        report.gauges.iter().find(|gauge| gauge.name == name).map(|gauge| gauge.value)
    };
    let at_first = gauge("transom_inodes");
    // 1. Every way to get a reference, kept and not kept.
    for entry in share.read_dir("/").unwrap() {
        let name = entry.unwrap().name;
        assert!(!share.metadata(&name).unwrap().is_empty());
    }
    share.create_dir("dir", 0o755).unwrap();
    share.symlink("../file-0", "dir/link").unwrap();
    share.hard_link("file-0", "dir/second").unwrap();
    share.open("dir/new", &OpenOptions::new().write(true).create_new(true)).unwrap().close().unwrap();
    share.rename("dir/new", "moved").unwrap();
    share.remove_file("moved").unwrap();
    assert_eq!(share.metadata("dir/link/x"), Err(Errno::NOTDIR));
    assert!(gauge("transom_inodes") > at_first);
    // 2. Given back.
    share.volume().drop_names();
    share.volume().session().flush_forgets().unwrap();
    // Nobody is told when the daemon has taken them.
    let deadline = Instant::now() + TAKEN_MAX;
    while gauge("transom_inodes") != at_first && Instant::now() < deadline {
        thread::yield_now();
    }
    assert_eq!((gauge("transom_inodes"), gauge("transom_open_files")), (at_first, Some(0)));
    assert_eq!(share.volume().session().counters().impossible_replies, 0);
}

#[test]
fn a_mount_without_a_place_is_an_error() {
    assert!(matches!(Share::builder().connect(), Err(ShareError::Nowhere)));
    let error = Share::builder().socket("/nonexistent/socket").connect().err().unwrap();
    assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
    let error = Share::builder().shared_dir("/nonexistent/share").daemon(transomd()).connect().err().unwrap();
    assert!(matches!(&error, ShareError::Ended { messages, .. } if messages.contains("/nonexistent/share")), "{error}");
}

#[test]
fn a_daemon_ends_with_the_last_session_on_it() {
    for program in daemons() {
        let dir = tree();
        let mounted = Share::builder().shared_dir(dir.path()).daemon(program).connect().unwrap();
        let pid = mounted.device().transport().daemon_id().unwrap();
        let is_there = || fs::exists(format!("/proc/{pid}")).unwrap();
        let share = mount(&mounted);
        drop(mounted);
        assert!(is_there());
        assert!(share.metadata("hello").is_ok());
        drop(share);
        // Reaped by whoever dropped it last.
        assert!(!is_there(), "daemon {pid} is still there");
    }
}

#[test]
fn a_request_that_waits_does_not_keep_others_from_theirs() {
    let dir = tree();
    let mounted =
        Share::builder().shared_dir(dir.path()).daemon(transomd()).arena_len_bytes(8 << 20).connect().unwrap();
    let share = mount(&mounted);
    // More threads than there is room for in the arena: they take turns.
    let data = vec![5; 1 << 20];
    thread::scope(|scope| {
        for index in 0..24 {
            let (share, data) = (share.clone(), &data);
            scope.spawn(move || {
                let file = share.create(format!("of-{index}")).unwrap();
                assert_eq!(file.write_at(0, data).unwrap(), data.len());
            });
        }
    });
    assert!(mounted.device().dma_counts().mapped_bytes >= 24 << 20);
}

#[test]
fn what_waits_to_be_written_is_written_after_a_while_without_anybody_asking() {
    let dir = tree();
    let mut program = transomd();
    program.args.push("--writeback".into());
    let mounted = Share::builder().shared_dir(dir.path()).daemon(program).connect().unwrap();
    let config = SessionConfig::default().with(InitFlags::WRITEBACK_CACHE);
    let options = CacheOptions { dirty_age_ns: 1_000_000, ..CacheOptions::default() };
    let share = Fs::mount(mounted.session(config).unwrap(), options);
    let file = share.open("hello", &OpenOptions::new().read(true).write(true)).unwrap();
    file.write_at(7, b"there").unwrap();

    // The file stays open, and nobody asks for it to be durable.
    let begun = Instant::now();
    while fs::read(dir.path().join("hello")).unwrap() != b"hello, there\n" {
        assert!(begun.elapsed() < TAKEN_MAX, "{} bytes still wait", share.volume().dirty_bytes());
        thread::yield_now();
    }
    file.close().unwrap();
}
