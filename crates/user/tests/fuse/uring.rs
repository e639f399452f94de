//! Mounts whose requests come by io_uring: the same as any other, also where something ends in the middle.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
        process::ExitStatusExt as _,
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use transom_user::{
    daemon::Program,
    fuse::{End, Mount, NoRings, Options},
    mount,
};

use crate::{busy, common, needs_mounts, unmount};

/// More than a queue of the kernel has entries on a machine with two processors.
const THREADS: usize = 300;
const PAGE: usize = 4096;

fn options() -> Options {
    Options { io_uring: true, ..Options::default() }
}

fn start(program: &Program, shared: &Path, at: &Path, options: Options) -> Mount {
    let share = mount::Mount::builder().shared_dir(shared).daemon(program.clone());
    Mount::start(share, at, options).unwrap()
}

/// A mount of a tree by each daemon, to be looked at and ended.
fn each(look: impl Fn(&mut Mount, &TempDir, &TempDir)) {
    for program in common::daemons() {
        let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
        let mut mounted = start(&program, dir.path(), at.path(), options());
        mounted.io_uring().unwrap();
        look(&mut mounted, &dir, &at);
    }
}

/// Why the kernel's requests cannot come by io_uring here, if they cannot.
fn obstacle() -> Option<String> {
    let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
    let mut mounted = start(&common::transomd(), dir.path(), at.path(), options());
    let outcome = mounted.io_uring();
    unmount(&mut mounted);
    outcome.err().map(|why| why.to_string())
}

/// Skips the test where the kernel does not offer it.
macro_rules! needs_io_uring {
    () => {
        needs_mounts!();
        if let Some(why) = obstacle() {
            println!("SKIPPED: {why}");
            return;
        }
    };
}

#[test]
fn who_does_not_ask_or_asks_for_what_it_does_not_go_with_gets_none() {
    needs_mounts!();
    for (options, why) in [
        (Options::default(), NoRings::Off),
        (Options { passthrough: true, ..options() }, NoRings::Passthrough),
        (Options { reconnect: Some(Duration::from_secs(5)), ..options() }, NoRings::Reconnect),
    ] {
        let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
        let mut program = common::transomd();
        program.args = options.daemon_args();
        let mut mounted = start(&program, dir.path(), at.path(), options);
        assert_eq!(mounted.io_uring(), Err(why));
        assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
        unmount(&mut mounted);
    }
}

#[test]
fn where_the_kernel_does_not_offer_it_requests_come_by_reading() {
    needs_mounts!();
    if obstacle().is_none() {
        println!("SKIPPED: the kernel offers it");
        return;
    }
    let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
    let mut mounted = start(&common::transomd(), dir.path(), at.path(), options());
    assert!(mounted.io_uring().is_err());
    assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
    unmount(&mut mounted);
}

#[test]
fn data_names_and_attributes_of_any_length_arrive_whole_both_ways() {
    needs_io_uring!();
    each(|mounted, dir, at| {
        let (host, here) = (dir.path(), at.path());
        // 1. Data, of lengths beside those of pages and requests.
        for len in [0, 1, PAGE - 1, PAGE, PAGE + 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 17] {
            let data: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
            fs::write(here.join("sub/new"), &data).unwrap();
            assert!(fs::read(host.join("sub/new")).unwrap() == data, "{len}");
            assert!(fs::read(here.join("sub/new")).unwrap() == data, "{len}");
        }
        // 2. Without the page cache in between.
        let direct = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(here.join("sub/new"));
        if let Ok(direct) = direct {
            let mut page = vec![0; 2 * PAGE];
            let start = page.as_ptr().align_offset(PAGE);
            page[start..start + PAGE].fill(9);
            direct.write_all_at(&page[start..start + PAGE], 0).unwrap();
            page[start..start + PAGE].fill(0);
            direct.read_exact_at(&mut page[start..start + PAGE], 0).unwrap();
            assert!(page[start..start + PAGE].iter().all(|&byte| byte == 9));
        }
        // 3. Names: the longest, a symlink's target, both names of a rename, many in a directory.
        let long = "n".repeat(255);
        fs::rename(here.join("sub/new"), here.join(&long)).unwrap();
        let target = "t".repeat(4000);
        std::os::unix::fs::symlink(&target, here.join("link")).unwrap();
        assert_eq!(fs::read_link(here.join("link")).unwrap(), Path::new(&target));
        fs::create_dir(here.join("many")).unwrap();
        (0..1000).for_each(|number| drop(File::create(here.join(format!("many/{number}"))).unwrap()));
        assert_eq!(fs::read_dir(here.join("many")).unwrap().count(), 1000);
        fs::remove_dir_all(here.join("many")).unwrap();
        assert!(fs::exists(host.join(&long)).unwrap() && !fs::exists(host.join("many")).unwrap());
        // 4. Errors are those of the host.
        assert_eq!(fs::remove_dir(here.join("sub")).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(fs::read(here.join("nobody")).unwrap_err().kind(), io::ErrorKind::NotFound);
        unmount(mounted);
        assert_eq!(mounted.cause(), Some(End::Unmounted));
    });
}

#[test]
fn more_callers_than_there_are_entries_are_all_served() {
    needs_io_uring!();
    each(|mounted, _, at| {
        thread::scope(|scope| {
            for index in 0..THREADS {
                let path = at.path().join(format!("of-{index}"));
                scope.spawn(move || {
                    for round in 0..5 {
                        let data = vec![index as u8; PAGE * (1 + (index + round) % 5)];
                        fs::write(&path, &data).unwrap();
                        assert!(fs::read(&path).unwrap() == data);
                    }
                    fs::remove_file(&path).unwrap();
                });
            }
        });
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 2);
        unmount(mounted);
    });
}

#[test]
fn a_daemon_that_is_killed_fails_what_waits_and_what_comes_after() {
    needs_io_uring!();
    each(|mounted, _, at| {
        let threads = busy(at.path());
        let pid = mounted.daemon_id().unwrap();
        assert!(pid > 1);
        kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
        for thread in threads {
            let errno = thread.join().unwrap().raw_os_error();
            assert!(matches!(errno, Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)), "{errno:?}");
        }
        assert_eq!(mounted.wait(), End::Gone);
        assert_eq!(fs::read_dir(at.path()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        unmount(mounted);
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_mount_that_is_ended_under_load_fails_what_waits() {
    needs_io_uring!();
    each(|mounted, _, at| {
        let threads = busy(at.path());
        mounted.stopper().abort();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(mounted.wait(), End::Stopped);
        unmount(mounted);
    });
}

#[test]
fn a_lock_that_is_waited_for_keeps_nobody_waiting_and_ends_with_a_signal() {
    needs_io_uring!();
    let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
    let mut program = common::transomd();
    program.args.extend(["--posix-lock", "--flock"].map(Into::into));
    let mut mounted = start(&program, dir.path(), at.path(), options());
    mounted.io_uring().unwrap();
    // 1. One holds the lock, on the host; others wait for it, each of them a process.
    let path = at.path().join("hello");
    let held = File::open(dir.path().join("hello")).unwrap();
    held.lock().unwrap();
    let waiter = |_| {
        let mut command = Command::new("flock");
        command.arg(&path).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut waiters: Vec<_> = (0..WAITERS).map(waiter).collect();
    // All of them are with the host: before, the kernel would not tell of a signal.
    let begun = Instant::now();
    while waiting(&held) < WAITERS {
        assert!(begun.elapsed() < Duration::from_secs(60), "they do not all wait");
        thread::yield_now();
    }
    // 2. Others are served meanwhile.
    for _ in 0..100 {
        assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
    }
    // 3. Signals reach those that wait: INTERRUPT goes by /dev/fuse.
    let (signalled, left) = waiters.split_at_mut(WAITERS / 2);
    for waiter in signalled {
        kill_process(Pid::from_child(waiter), Signal::TERM).unwrap();
        assert_eq!(waiter.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
    // 4. The rest gets the lock.
    held.unlock().unwrap();
    for waiter in left {
        assert!(waiter.wait().unwrap().success());
    }
    unmount(&mut mounted);
}

/// Who waits for a lock of the file, on the host.
fn waiting(file: &File) -> usize {
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().filter(|line| line.contains("->") && line.contains(&inode)).count()
}

/// Each takes a thread of the daemon.
const WAITERS: usize = 40;

#[test]
fn a_busy_mount_stays_until_nobody_uses_it() {
    needs_io_uring!();
    each(|mounted, _, at| {
        let open = File::open(at.path().join("hello")).unwrap();
        assert_eq!(mounted.unmount().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        mounted.stopper().detach().unwrap();
        assert_eq!(io::read_to_string(&open).unwrap(), "hello, world\n");
        drop(open);
        assert_eq!(mounted.wait(), End::Unmounted);
    });
}
