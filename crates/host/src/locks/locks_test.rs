use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::{AtomicI64, Ordering},
    thread,
};

use super::*;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);

fn owner(number: u64) -> LockOwner {
    LockOwner(number.into())
}

fn range(start: u64, end: u64) -> FileRange {
    FileRange::new(start, end).unwrap()
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    Ok(File::options().read(true).write(true).open(path).unwrap().into())
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    (dir, path)
}

fn descriptors_of(path: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter(|entry| std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|target| target == path))
        .count()
}

#[test]
fn owners_exclude_each_other_and_not_themselves() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let set = |number, range, kind| locks.set(ONE, owner(number), range, kind, || open(&path));
    let handle = open(&path).unwrap();
    // 1. Two ranges of two owners.
    set(1, range(0, 9), LockKind::Exclusive).unwrap();
    set(2, range(10, 19), LockKind::Shared).unwrap();
    // 2. Conflicts are told with their bounds; own locks are replaced.
    assert_eq!(set(2, range(5, 12), LockKind::Shared), Err(Errno::AGAIN));
    let found = locks.get(ONE, owner(3), range(0, 100), LockKind::Exclusive, &handle).unwrap().unwrap();
    assert_eq!((found.range, found.kind), (range(0, 9), LockKind::Exclusive));
    let found = locks.get(ONE, owner(1), range(0, 100), LockKind::Exclusive, &handle).unwrap().unwrap();
    assert_eq!((found.range, found.kind), (range(10, 19), LockKind::Shared));
    set(1, range(0, 9), LockKind::Shared).unwrap();
    // 3. A part is given back, then the rest with the owner.
    locks.unset(ONE, owner(1), range(0, 4)).unwrap();
    set(2, range(0, 4), LockKind::Exclusive).unwrap();
    assert_eq!(set(2, range(5, 9), LockKind::Exclusive), Err(Errno::AGAIN));
    locks.release_owner(ONE, owner(1));
    set(2, range(0, 100), LockKind::Exclusive).unwrap();
    // 4. The host sees the guest's locks.
    assert_eq!(ofd::try_lock(&handle, range(50, 50), LockKind::Shared), Err(Errno::AGAIN));
    locks.unset(ONE, owner(2), FileRange::ALL).unwrap();
    ofd::try_lock(&handle, range(50, 50), LockKind::Shared).unwrap();
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (0, 1));
}

#[test]
fn descriptors_are_held_for_locks_alone_and_within_limits() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits { owners: 3, owners_per_inode: 2 }).unwrap();
    let set = |inode, number, at| locks.set(inode, owner(number), range(at, at), LockKind::Exclusive, || open(&path));
    set(ONE, 1, 1).unwrap();
    assert_eq!(set(ONE, 2, 1), Err(Errno::AGAIN));
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (1, 1), "a failure leaves nothing");
    set(ONE, 2, 2).unwrap();
    assert_eq!(set(ONE, 3, 3), Err(Errno::NOLCK), "of one inode");
    set(TWO, 1, 4).unwrap();
    assert_eq!(set(TWO, 2, 5), Err(Errno::NOLCK), "in all");
    assert_eq!(locks.set(TWO, owner(1), range(1, 1), LockKind::Exclusive, || panic!("it is open")), Err(Errno::AGAIN));
    assert_eq!(descriptors_of(&path), 3);
    locks.release_inode(ONE);
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (1, 1));
    assert_eq!(locks.set(ONE, owner(9), range(0, 0), LockKind::Shared, || Err(Errno::MFILE)), Err(Errno::MFILE));
    locks.release_all();
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (0, 0));
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_free_and_eintr_when_it_is_interrupted() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let wait = |unique, number| {
        locks.set_waiting(Unique(unique), ONE, owner(number), range(0, 0), LockKind::Exclusive, || open(&path))
    };
    locks.set(ONE, owner(1), range(0, 0), LockKind::Exclusive, || open(&path)).unwrap();
    thread::scope(|scope| {
        let interrupted = scope.spawn(|| wait(10, 2));
        let patient = scope.spawn(|| wait(11, 3));
        while locks.waiting() < 2 {
            thread::yield_now();
        }
        locks.interrupt(Unique(10));
        assert_eq!(interrupted.join().unwrap(), Err(Errno::INTR));
        assert_eq!(locks.descriptors(), 2, "the interrupted owner holds nothing");
        locks.release_owner(ONE, owner(1));
        assert_eq!(patient.join().unwrap(), Ok(()));
    });
    assert_eq!(locks.set(ONE, owner(1), range(0, 0), LockKind::Shared, || open(&path)), Err(Errno::AGAIN));
}

#[test]
fn an_owner_that_ends_while_it_waits_gets_ebadf_and_holds_nothing() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    locks.set(ONE, owner(1), range(0, 0), LockKind::Exclusive, || open(&path)).unwrap();
    thread::scope(|scope| {
        let waiter = scope
            .spawn(|| locks.set_waiting(Unique(1), ONE, owner(2), range(0, 0), LockKind::Exclusive, || open(&path)));
        while locks.waiting() == 0 {
            thread::yield_now();
        }
        locks.release_owner(ONE, owner(2));
        locks.release_owner(ONE, owner(1));
        assert_eq!(waiter.join().unwrap(), Err(Errno::BADF));
    });
    locks.set(ONE, owner(3), FileRange::ALL, LockKind::Exclusive, || open(&path)).unwrap();
    assert_eq!(descriptors_of(&path), 1);
}

#[test]
fn the_end_of_a_session_wakes_all_and_frees_all() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let holder = open(&path).unwrap();
    locks.flock(&holder, Some(LockKind::Exclusive)).unwrap();
    locks.set(ONE, owner(0), FileRange::ALL, LockKind::Exclusive, || open(&path)).unwrap();
    thread::scope(|scope| {
        let mut waiters = Vec::new();
        for number in 1..9 {
            let (locks, path) = (&locks, &path);
            waiters.push(scope.spawn(move || match number % 2 {
                0 => {
                    locks.set_waiting(Unique(number), ONE, owner(number), FileRange::ALL, LockKind::Shared, || {
                        open(path)
                    })
                }
                _ => locks.flock_waiting(Unique(number), open(path).unwrap(), LockKind::Shared),
            }));
        }
        while locks.waiting() < 8 {
            thread::yield_now();
        }
        locks.release_all();
        for waiter in waiters {
            // A POSIX waiter may also have got the lock that was just given back, for an owner that has ended.
            let outcome = waiter.join().unwrap();
            assert!(matches!(outcome, Err(Errno::INTR | Errno::BADF)), "{outcome:?}");
        }
    });
    assert_eq!((locks.waiting(), locks.descriptors(), descriptors_of(&path)), (0, 0, 1));
}

#[test]
fn flock_belongs_to_the_open_file() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let (one, two) = (open(&path).unwrap(), File::open(&path).unwrap());
    locks.flock(&one, Some(LockKind::Exclusive)).unwrap();
    assert_eq!(locks.flock(&two, Some(LockKind::Shared)), Err(Errno::AGAIN));
    locks.flock(&one, None).unwrap();
    locks.flock_waiting(Unique(1), &two, LockKind::Shared).unwrap();
    locks.flock(&one, Some(LockKind::Shared)).unwrap();
    drop(two);
    locks.flock(&one, Some(LockKind::Exclusive)).unwrap();
}

#[test]
fn a_file_that_cannot_be_written_is_opened_for_reading() {
    let (_dir, path) = file();
    let proc_fds = ProcFds::open().unwrap();
    let fd = rustix::fs::open(&path, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let access = |fd: OwnedFd| rustix::fs::fcntl_getfl(fd).unwrap() & OFlags::RWMODE;
    assert_eq!(access(open_for_locks(&proc_fds, &fd).unwrap()), OFlags::RDWR);
    let program = rustix::fs::open("/proc/self/exe", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(access(open_for_locks(&proc_fds, program).unwrap()), OFlags::RDONLY, "a running program");
}

/// Owners take, wait for, interrupt and release exclusive locks; a plain counter is the oracle of exclusion.
#[test]
fn under_stress_locks_exclude_and_nothing_is_left() {
    const ROUNDS: u64 = 300;
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let inside = AtomicI64::new(0);
    thread::scope(|scope| {
        for lane in 0..4u64 {
            let (locks, path, inside) = (&locks, &path, &inside);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let unique = Unique(lane * ROUNDS + round);
                    let owner = owner(lane);
                    let outcome =
                        locks.set_waiting(unique, ONE, owner, range(0, 7), LockKind::Exclusive, || open(path));
                    match outcome {
                        Ok(()) => {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            thread::yield_now();
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                            match round % 3 {
                                0 => locks.release_owner(ONE, owner),
                                1 => locks.unset(ONE, owner, FileRange::ALL).unwrap(),
                                _ => locks.unset(ONE, owner, range(0, 7)).unwrap(),
                            }
                        }
                        Err(Errno::INTR) => {}
                        Err(errno) => panic!("{errno}"),
                    }
                }
            });
            scope.spawn(move || {
                for round in (0..ROUNDS).step_by(5) {
                    locks.interrupt(Unique(lane * ROUNDS + round));
                    thread::yield_now();
                }
            });
        }
    });
    locks.release_all();
    assert_eq!((locks.waiting(), locks.descriptors(), descriptors_of(&path)), (0, 0, 0));
}
