use std::{
    fs::File,
    path::{Path, PathBuf},
    thread,
};

use rustix::fs::OFlags;

use super::*;
use crate::sysfd::ProcFds;

pub(super) const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);

pub(super) fn owner(number: u64) -> LockOwner {
    LockOwner(number.into())
}

/// Returns the request of the owner with this number, which is also its process's number.
pub(super) fn wanted(inode: NodeId, number: u64, range: FileRange, kind: LockKind) -> Wanted {
    Wanted { inode, owner: owner(number), pid: number as u32, range, kind }
}

pub(super) fn range(start: u64, end: u64) -> FileRange {
    FileRange::new(start, end).unwrap()
}

pub(super) fn open(path: &Path) -> Result<OwnedFd, Errno> {
    Ok(File::options().read(true).write(true).open(path).unwrap().into())
}

pub(super) fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    (dir, path)
}

pub(super) fn descriptors_of(path: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter(|entry| std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|target| target == path))
        .count()
}

#[test]
fn owners_exclude_each_other_and_not_themselves() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let through = LockingFile::default();
    let set = |number, range, kind| locks.set(&wanted(ONE, number, range, kind), &through, || open(&path));
    let handle = open(&path).unwrap();
    let get = |number, kind| locks.get(&wanted(ONE, number, range(0, 100), kind), &handle).unwrap().unwrap();
    // 1. Two ranges of two owners.
    set(1, range(0, 9), LockKind::Exclusive).unwrap();
    set(2, range(10, 19), LockKind::Shared).unwrap();
    // 2. Conflicts are reported with their bounds; own locks are replaced.
    assert_eq!(set(2, range(5, 12), LockKind::Shared), Err(Errno::AGAIN));
    assert_eq!(get(3, LockKind::Exclusive), Obstacle { range: range(0, 9), kind: LockKind::Exclusive, pid: 1 });
    assert_eq!(get(1, LockKind::Exclusive), Obstacle { range: range(10, 19), kind: LockKind::Shared, pid: 2 });
    set(1, range(0, 9), LockKind::Shared).unwrap();
    // 3. A part is released, then the rest with the owner.
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
    let locks = Locks::new(Limits { owners: 3, owners_per_inode: 2, ..Limits::default() }).unwrap();
    let through = LockingFile::default();
    let at = |inode, number, at| wanted(inode, number, range(at, at), LockKind::Exclusive);
    let set = |inode, number, byte| locks.set(&at(inode, number, byte), &through, || open(&path));
    set(ONE, 1, 1).unwrap();
    assert_eq!(set(ONE, 2, 1), Err(Errno::AGAIN));
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (1, 1), "a failure leaves nothing");
    set(ONE, 2, 2).unwrap();
    assert_eq!(set(ONE, 3, 3), Err(Errno::NOLCK), "of one inode");
    set(TWO, 1, 4).unwrap();
    assert_eq!(set(TWO, 2, 5), Err(Errno::NOLCK), "in all");
    assert_eq!(locks.set(&at(TWO, 1, 1), &through, || panic!("it is open")), Err(Errno::AGAIN));
    assert_eq!(descriptors_of(&path), 3);
    locks.release_inode(ONE);
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (1, 1));
    assert_eq!(locks.set(&at(ONE, 9, 0), &through, || Err(Errno::MFILE)), Err(Errno::MFILE));
    locks.release_all();
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (0, 0));
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_free_and_eintr_when_it_is_interrupted() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let through = LockingFile::default();
    let first = |number, kind| wanted(ONE, number, range(0, 0), kind);
    let wait = |unique, number| {
        locks.set_waiting(Unique(unique), &first(number, LockKind::Exclusive), &through, || open(&path))
    };
    locks.set(&first(1, LockKind::Exclusive), &through, || open(&path)).unwrap();
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
    assert_eq!(locks.set(&first(1, LockKind::Shared), &through, || open(&path)), Err(Errno::AGAIN));
}

#[test]
fn an_owner_that_ends_while_it_waits_gets_ebadf_and_holds_nothing() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let through = LockingFile::default();
    let first = |number| wanted(ONE, number, range(0, 0), LockKind::Exclusive);
    locks.set(&first(1), &through, || open(&path)).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.set_waiting(Unique(1), &first(2), &through, || open(&path)));
        while locks.waiting() == 0 {
            thread::yield_now();
        }
        locks.release_owner(ONE, owner(2));
        locks.release_owner(ONE, owner(1));
        assert_eq!(waiter.join().unwrap(), Err(Errno::BADF));
    });
    locks.set(&wanted(ONE, 3, FileRange::ALL, LockKind::Exclusive), &through, || open(&path)).unwrap();
    assert_eq!(descriptors_of(&path), 1);
}

#[test]
fn the_end_of_a_session_wakes_all_and_frees_all() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let holder = open(&path).unwrap();
    locks.flock(&holder, Some(LockKind::Exclusive)).unwrap();
    let through = LockingFile::default();
    locks.set(&wanted(ONE, 10, FileRange::ALL, LockKind::Exclusive), &through, || open(&path)).unwrap();
    thread::scope(|scope| {
        let mut waiters = Vec::new();
        for number in 1..9 {
            let (locks, path, through) = (&locks, &path, &through);
            let all = wanted(ONE, number, FileRange::ALL, LockKind::Shared);
            waiters.push(scope.spawn(move || match number % 2 {
                0 => locks.set_waiting(Unique(number), &all, through, || open(path)),
                _ => locks.flock_waiting(Unique(number), open(path).unwrap(), LockKind::Shared),
            }));
        }
        while locks.waiting() < 8 {
            thread::yield_now();
        }
        locks.release_all();
        for waiter in waiters {
            // A POSIX waiter may also have got the lock that was just released, for an owner that has ended.
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
fn a_file_is_opened_for_what_its_handle_is_open_for() {
    let (_dir, path) = file();
    let proc_fds = ProcFds::open().unwrap();
    let mode = |options: &mut std::fs::OpenOptions| {
        let handle = options.open(&path).unwrap().into();
        rustix::fs::fcntl_getfl(open_for_locks(&proc_fds, &handle).unwrap()).unwrap() & OFlags::RWMODE
    };
    assert_eq!(mode(File::options().read(true)), OFlags::RDONLY);
    assert_eq!(mode(File::options().read(true).write(true)), OFlags::RDWR);
    assert_eq!(mode(File::options().write(true)), OFlags::RDWR, "shared locks may follow");
}

#[test]
fn locks_move_to_a_description_that_is_open_for_more() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let (reader, writer) = (LockingFile::default(), LockingFile::default());
    let for_reading = || Ok(File::open(&path).unwrap().into());
    let want = |number, at, kind| wanted(ONE, number, range(at, at + 1), kind);
    // 1. Shared locks through a file that is open for reading: no descriptor may write.
    locks.set(&want(1, 0, LockKind::Shared), &reader, for_reading).unwrap();
    locks.set(&want(1, 4, LockKind::Shared), &reader, for_reading).unwrap();
    assert_eq!(locks.set(&want(1, 8, LockKind::Exclusive), &reader, for_reading), Err(Errno::BADF));
    assert_eq!(locks.set(&want(2, 8, LockKind::Exclusive), &reader, for_reading), Err(Errno::BADF));
    assert_eq!(locks.descriptors(), 1);
    // 2. Meanwhile another thread of the owner waits for a shared lock.
    locks.set(&want(3, 20, LockKind::Exclusive), &writer, || open(&path)).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.set_waiting(Unique(1), &want(1, 20, LockKind::Shared), &reader, for_reading));
        while locks.waiting() == 0 {
            thread::yield_now();
        }
        // 3. An exclusive one through another open file: all are held as before.
        locks.set(&want(1, 8, LockKind::Exclusive), &writer, || open(&path)).unwrap();
        let other = |at, kind| locks.set(&want(4, at, kind), &writer, || open(&path));
        assert_eq!(other(0, LockKind::Exclusive), Err(Errno::AGAIN));
        assert_eq!(other(5, LockKind::Exclusive), Err(Errno::AGAIN));
        assert_eq!(other(8, LockKind::Shared), Err(Errno::AGAIN));
        locks.unset(ONE, owner(3), FileRange::ALL).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
        assert_eq!(other(20, LockKind::Exclusive), Err(Errno::AGAIN));
    });
    // 4. Nothing refers to the former description any more.
    assert_eq!(descriptors_of(&path), 1);
    locks.release_owner(ONE, owner(1));
    locks.set(&wanted(ONE, 4, FileRange::ALL, LockKind::Exclusive), &writer, || open(&path)).unwrap();
}

#[test]
fn the_last_open_file_through_which_an_owner_locked_ends_its_locks() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let (one, two) = (LockingFile::default(), LockingFile::default());
    let want = |number| wanted(ONE, number, range(number, number), LockKind::Exclusive);
    let set = |number, through| locks.set(&want(number), through, || open(&path));
    // 1. Ended by FLUSH and created again through another open file: the first file does not count.
    set(1, &one).unwrap();
    locks.release_owner(ONE, owner(1));
    set(1, &two).unwrap();
    // 2. Through both, and through only the first one.
    set(2, &one).unwrap();
    set(2, &two).unwrap();
    set(3, &one).unwrap();
    locks.release_file(ONE, &one);
    let other = |byte| locks.set(&wanted(ONE, 9, range(byte, byte), LockKind::Exclusive), &two, || open(&path));
    assert_eq!((other(1), other(2), other(3)), (Err(Errno::AGAIN), Err(Errno::AGAIN), Ok(())));
    // 3. A request overtaken by RELEASE leaves nothing behind.
    assert_eq!((set(4, &one), set(1, &one)), (Err(Errno::BADF), Err(Errno::BADF)));
    locks.release_file(ONE, &two);
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (0, 0));
}

#[test]
fn locked_ranges_have_a_limit() {
    const PER_INODE: usize = 60;
    const TOTAL: usize = 100;
    let (_dir, path) = file();
    let limits = Limits { ranges: TOTAL, ranges_per_inode: PER_INODE, ..Limits::default() };
    let locks = Locks::new(limits).unwrap();
    let through = LockingFile::default();
    let set = |inode, number, byte| {
        locks.set(&wanted(inode, number, range(byte, byte), LockKind::Shared), &through, || open(&path))
    };
    // 1. Every second byte, until no more is granted: of one inode, and in all.
    let fill = |inode, number| (0..1000).step_by(2).find(|&byte| set(inode, number, byte) == Err(Errno::NOLCK));
    assert_eq!(fill(ONE, 1), Some(2 * PER_INODE as u64));
    assert_eq!(set(ONE, 2, 1), Err(Errno::NOLCK), "another owner");
    assert_eq!(fill(TWO, 1), Some(2 * (TOTAL - PER_INODE) as u64));
    // 2. A request that reduces the number is always granted. One that increases it is not, even an unlock of a part.
    locks.unset(TWO, owner(1), range(0, 0)).unwrap();
    locks.set(&wanted(TWO, 1, range(0, 3), LockKind::Shared), &through, || open(&path)).unwrap();
    (200..300).step_by(2).find(|&byte| set(TWO, 1, byte) == Err(Errno::NOLCK)).unwrap();
    assert_eq!(locks.unset(TWO, owner(1), range(1, 1)), Err(Errno::NOLCK));
    locks.unset(TWO, owner(1), range(1, 1000)).unwrap();
    // 3. All capacity returns with the owners.
    locks.release_owner(ONE, owner(1));
    locks.release_owner(TWO, owner(1));
    assert_eq!(fill(ONE, 3), Some(2 * PER_INODE as u64));
}

#[test]
fn open_files_of_an_owner_have_a_limit_and_the_rest_ends_with_flush() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let want = |number| wanted(ONE, number, range(number, number), LockKind::Exclusive);
    let many: Vec<LockingFile> = (0..1000).map(|_| LockingFile::default()).collect();
    many.iter().for_each(|through| locks.set(&want(1), through, || open(&path)).unwrap());
    locks.release_owner(ONE, owner(1));
    locks.set(&want(1), &many[999], || open(&path)).unwrap();
    many[..999].iter().for_each(|through| locks.release_file(ONE, through));
    assert_eq!(locks.descriptors(), 1);
    locks.release_file(ONE, &many[999]);
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (0, 0));
}

#[test]
fn an_unlock_of_all_leaves_those_who_wait_for_the_same_owner() {
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let through = LockingFile::default();
    let first = |number| wanted(ONE, number, range(0, 0), LockKind::Exclusive);
    locks.set(&first(1), &through, || open(&path)).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.set_waiting(Unique(1), &first(2), &through, || open(&path)));
        while locks.waiting() == 0 {
            thread::yield_now();
        }
        locks.unset(ONE, owner(2), FileRange::ALL).unwrap();
        locks.unset(ONE, owner(1), FileRange::ALL).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert_eq!(locks.set(&first(1), &through, || open(&path)), Err(Errno::AGAIN));
}
