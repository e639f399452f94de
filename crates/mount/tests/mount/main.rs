//! Shares mounted on this machine: the kernel's own client over real daemons.

mod absent_names;
mod coherence;
#[path = "../../../user/tests/common/mod.rs"]
mod common;
mod direct;
mod flags;
mod lasting;
mod liar;
mod load;
mod locks;
mod own_changes;
mod passthrough;
mod reconnect;
mod restore;
mod rights;
mod set_id;
mod stress;
mod times;

use std::{
    fs, io,
    os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use common::{daemons, tree};
use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use transom_mount::{Mount, MountEnd, Options, Stale};
use transom_user::{daemon::Program, share::Share};
use transom_wire::{Name, NodeId};

/// Why mounts are left out, if they are.
fn obstacle() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    (!geteuid().is_root()).then_some("mount(2) takes root")
}

/// Tests take turns: what one of them starts holds copies of another's descriptors until it executes its program, and
/// closing them waits for a mount whose daemon has just been killed.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Skips the test where nothing can be mounted, else waits for its turn.
macro_rules! needs_mounts {
    () => {
        if let Some(why) = crate::obstacle() {
            println!("SKIPPED: {why}");
            return;
        }
        let _alone = crate::alone();
    };
}
pub(crate) use needs_mounts;

fn start(program: &Program, shared: &Path, at: &Path) -> Mount {
    let share = Share::builder().shared_dir(shared).daemon(program.clone());
    Mount::start(share, at, Options::default()).unwrap()
}

/// Unmounts. What others of this process's tests have just started holds our descriptors until it executes its program.
pub(crate) fn unmount(mounted: &mut Mount) {
    let begun = Instant::now();
    while let Err(error) = mounted.unmount() {
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays busy");
        thread::yield_now();
    }
}

#[test]
fn what_is_written_on_either_side_is_read_on_the_other() {
    needs_mounts!();
    for program in daemons() {
        let (dir, at) = (tree(), tempfile::tempdir().unwrap());
        let mut mounted = start(&program, dir.path(), at.path());
        // 1. What the host has.
        let mut names: Vec<_> = fs::read_dir(at.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["hello", "sub"]);
        assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
        assert!(fs::read(at.path().join("sub/large")).unwrap() == vec![7; 3 << 20]);
        // 2. What the mount has.
        let data: Vec<u8> = (0..(5 << 20) + 17).map(|at: u32| (at / 7) as u8).collect();
        fs::write(at.path().join("sub/new"), &data).unwrap();
        assert!(fs::read(dir.path().join("sub/new")).unwrap() == data);
        assert!(fs::read(at.path().join("sub/new")).unwrap() == data);
        // 3. After the end there is the directory beneath.
        unmount(&mut mounted);
        assert_eq!(mounted.cause(), Some(MountEnd::Unmounted));
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_busy_mount_stays_until_nobody_uses_it() {
    needs_mounts!();
    let (dir, at) = (tree(), tempfile::tempdir().unwrap());
    let mut mounted = start(&common::transomd(), dir.path(), at.path());
    let open = fs::File::open(at.path().join("hello")).unwrap();
    assert_eq!(mounted.unmount().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    assert!(fs::exists(at.path().join("hello")).unwrap());
    mounted.stopper().detach().unwrap();
    assert!(!fs::exists(at.path().join("hello")).unwrap());
    assert_eq!(io::read_to_string(&open).unwrap(), "hello, world\n");
    drop(open);
    assert_eq!(mounted.wait(), MountEnd::Unmounted);
}

#[test]
fn a_daemon_that_is_killed_fails_what_waits_and_what_comes_after() {
    needs_mounts!();
    for program in daemons() {
        let (dir, at) = (tree(), tempfile::tempdir().unwrap());
        let mut mounted = start(&program, dir.path(), at.path());
        // 1. Threads that never stop asking, until they are told.
        let threads = busy(at.path());
        // 2. The daemon dies in the middle.
        let pid = mounted.daemon_id().unwrap();
        assert!(pid > 1);
        kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        for thread in threads {
            let errno = thread.join().unwrap().raw_os_error();
            assert!(matches!(errno, Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)), "{errno:?}");
        }
        assert_eq!(mounted.wait(), MountEnd::Gone);
        // 3. It stays as it is until somebody unmounts it.
        assert_eq!(fs::read_dir(at.path()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        unmount(&mut mounted);
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    }
}

/// Threads that never stop asking, until they are told why they cannot; all have begun.
pub(crate) fn busy(at: &Path) -> Vec<thread::JoinHandle<io::Error>> {
    busy_as(4, at)
}

/// As [`busy`], so many.
fn busy_as(count: usize, at: &Path) -> Vec<thread::JoinHandle<io::Error>> {
    let (started, starts) = mpsc::channel();
    let threads: Vec<_> = (0..count)
        .map(|index| {
            let (path, started) = (at.join(format!("of-{index}")), started.clone());
            thread::spawn(move || {
                let mut started = Some(started);
                loop {
                    if let Err(error) = fs::write(&path, "x").and_then(|()| fs::remove_file(&path)) {
                        return error;
                    }
                    started.take().into_iter().for_each(|started| started.send(()).unwrap());
                }
            })
        })
        .collect();
    drop(started);
    assert_eq!(starts.iter().count(), threads.len());
    threads
}

#[test]
fn a_second_caller_beside_one_who_never_stops_is_served() {
    needs_mounts!();
    for (threads, poll_max_ns) in [(1, 50_000), (1, 0), (2, 50_000)] {
        let (dir, at) = (tree(), tempfile::tempdir().unwrap());
        let share = Share::builder().shared_dir(dir.path()).daemon(common::transomd());
        let options = Options { threads, poll_max_ns, ..Options::default() };
        let mounted = Mount::start(share, at.path(), options).unwrap();
        let threads = busy_as(1, at.path());
        // Each of these makes FORGETs too, which nobody answers.
        for index in 0..200 {
            let path = at.path().join(format!("second-{index}"));
            fs::write(&path, "two").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"two");
            fs::remove_file(&path).unwrap();
        }
        assert!(threads.iter().all(|thread| !thread.is_finished()), "the first one has stopped");
        // Still mounted, or it would write to what is beneath.
        mounted.stopper().abort();
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    }
}

#[test]
fn a_mount_that_is_dropped_under_load_leaves_nothing_behind() {
    needs_mounts!();
    for program in daemons() {
        let (dir, at) = (tree(), tempfile::tempdir().unwrap());
        let mounted = start(&program, dir.path(), at.path());
        let (started, starts) = mpsc::channel();
        // Relative to a descriptor of the share: by path they would go on in the directory beneath.
        let threads: Vec<_> = (0..4)
            .map(|index| {
                let (root, started) = (fs::File::open(at.path()).unwrap(), started.clone());
                thread::spawn(move || {
                    let name = format!("of-{index}");
                    let mut started = Some(started);
                    loop {
                        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR;
                        if let Err(errno) = rustix::fs::openat(&root, &name, flags, 0o600.into()) {
                            return errno;
                        }
                        started.take().into_iter().for_each(|started| started.send(()).unwrap());
                    }
                })
            })
            .collect();
        drop(started);
        assert_eq!(starts.iter().count(), 4);
        drop(mounted);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_lock_that_is_waited_for_keeps_nobody_waiting_and_ends_with_a_signal() {
    needs_mounts!();
    let (dir, at) = (tree(), tempfile::tempdir().unwrap());
    let mut program = common::transomd();
    program.args.extend(["--posix-lock", "--flock"].map(Into::into));
    let share = Share::builder().shared_dir(dir.path()).daemon(program);
    let options = Options { threads: 1, ..Options::default() };
    let mut mounted = Mount::start(share, at.path(), options).unwrap();
    // 1. One holds the lock, on the host; more than there are slots wait for it, each of them a process.
    let path = at.path().join("hello");
    let held = fs::File::open(dir.path().join("hello")).unwrap();
    held.lock().unwrap();
    let mut waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mut command = Command::new("flock");
            command.arg(&path).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    // 2. Others are served meanwhile.
    for _ in 0..100 {
        assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
    }
    // 3. Signals reach those that wait.
    let (signalled, left) = waiters.split_at_mut(WAITERS / 2);
    for waiter in signalled {
        rustix::process::kill_process(Pid::from_child(waiter), Signal::TERM).unwrap();
        assert_eq!(waiter.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
    // 4. The rest gets the lock.
    held.unlock().unwrap();
    for waiter in left {
        assert!(waiter.wait().unwrap().success());
    }
    unmount(&mut mounted);
}

/// More than requests can be in flight on one queue would take thousands of threads of the daemon; the test of the
/// shared part covers those.
const WAITERS: usize = 40;

#[test]
fn a_notification_makes_the_kernel_ask_again() {
    needs_mounts!();
    let (dir, at) = (tree(), tempfile::tempdir().unwrap());
    let mut program = common::transomd();
    program.args.push("--cache=always".into());
    let mut mounted = start(&program, dir.path(), at.path());
    let (path, host) = (at.path().join("hello"), dir.path().join("hello"));
    // 1. What the host changes is not seen: the kernel keeps what it has.
    let links = || fs::metadata(at.path()).unwrap().nlink();
    let before = links();
    fs::create_dir(dir.path().join("another")).unwrap();
    assert_eq!(links(), before);
    // 2. Not after it was told.
    let notifier = mounted.notifier();
    notifier.inode(NodeId::ROOT, Stale::Attributes).unwrap();
    assert_eq!(links(), before + 1);
    // 3. The same for a name.
    assert!(fs::exists(&path).unwrap());
    fs::rename(&host, dir.path().join("elsewhere")).unwrap();
    assert!(fs::exists(&path).unwrap());
    notifier.entry(NodeId::ROOT, Name::new(b"hello").unwrap()).unwrap();
    assert!(!fs::exists(&path).unwrap());
    // 4. What nobody knows is no error; the end is one.
    notifier.entry(NodeId::ROOT, Name::new(b"nobody").unwrap()).unwrap();
    unmount(&mut mounted);
    drop(mounted);
    let error = notifier.inode(NodeId::ROOT, Stale::Data(0, 0)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

#[test]
fn a_place_that_is_none_is_an_error_with_its_path() {
    needs_mounts!();
    let dir = tree();
    let share = Share::builder().shared_dir(dir.path()).daemon(common::transomd());
    let error = Mount::start(share, "/nonexistent/place", Options::default()).err().unwrap();
    assert!(error.to_string().contains("/nonexistent/place"), "{error}");
}
