//! Locks that the guest keeps itself, because the server keeps none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use transom_conformance::memfs::MemFs;
use transom_guest::{
    Errno,
    cache::CacheOptions,
    fs::{Credentials, File, Fs, OpenOptions},
    session::{Caller, SessionConfig},
    volume::{Lock, LockKind, LockOwner, Volume},
};
use transom_wire::ops::init::InitFlags;

use crate::{
    peer::{self, Peer, Plain},
    script::{reply, session_with},
};

const PROCESS: bool = true;
const OPEN_FILE: bool = false;

/// A share whose server is never asked for locks.
fn without_locks() -> Fs<Plain> {
    let peer = Peer::new(MemFs::default());
    let config = SessionConfig::default().without(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
    let fs = Fs::mount(peer::session_for(&peer, config), CacheOptions::default());
    fs.create("f").unwrap();
    fs
}

fn process(fs: &Fs<Plain>, number: u64) -> Fs<Plain> {
    let credentials = fs.credentials().clone();
    fs.with_credentials(Credentials { lock_owner: number, pid: number as u32, ..credentials })
}

fn open(fs: &Fs<Plain>) -> File<Plain> {
    fs.open("f", &OpenOptions::new().read(true).write(true)).unwrap()
}

fn lock(kind: LockKind, start: u64, len: u64) -> Lock {
    Lock { kind, start, len, pid: 0 }
}

fn exclusive(start: u64, len: u64) -> Lock {
    lock(LockKind::Exclusive, start, len)
}

fn unlocked(start: u64, len: u64) -> Lock {
    lock(LockKind::Unlocked, start, len)
}

#[test]
fn a_process_is_kept_out_until_the_other_closes_any_descriptor() {
    let fs = without_locks();
    let (one, two) = (process(&fs, 1), process(&fs, 2));
    let (mine, theirs) = (open(&one), open(&two));
    mine.set_lock(PROCESS, &exclusive(0, 10), false).unwrap();
    assert_eq!(theirs.set_lock(PROCESS, &exclusive(9, 1), false), Err(Errno::AGAIN));
    let found = theirs.get_lock(PROCESS, &lock(LockKind::Shared, 0, 0)).unwrap();
    assert_eq!(found, Some(Lock { pid: 1, ..exclusive(0, 10) }));
    assert_eq!(mine.get_lock(PROCESS, &exclusive(0, 0)), Ok(None), "one's own are in nobody's way");
    // Closes a descriptor that never had a lock.
    drop(open(&one));
    theirs.set_lock(PROCESS, &exclusive(9, 1), false).unwrap();
}

#[test]
fn locks_of_an_open_file_end_with_it_and_name_no_process() {
    let fs = without_locks();
    let (mine, theirs) = (open(&fs), open(&fs));
    mine.set_lock(OPEN_FILE, &exclusive(5, 0), false).unwrap();
    mine.flock(LockKind::Exclusive, false).unwrap();
    assert_eq!(theirs.get_lock(OPEN_FILE, &exclusive(0, 0)), Ok(Some(Lock { pid: u32::MAX, ..exclusive(5, 0) })));
    assert_eq!(theirs.flock(LockKind::Shared, false), Err(Errno::AGAIN));
    drop(open(&fs));
    assert_eq!(theirs.set_lock(PROCESS, &exclusive(7, 1), false), Err(Errno::AGAIN), "another file's end ends nothing");
    drop(mine);
    theirs.set_lock(OPEN_FILE, &exclusive(0, 0), false).unwrap();
    theirs.flock(LockKind::Exclusive, false).unwrap();
}

#[test]
fn a_lock_needs_a_file_that_is_open_for_it_and_a_range_that_there_is() {
    let fs = without_locks();
    let reader = fs.open_read("f").unwrap();
    assert_eq!(reader.set_lock(PROCESS, &exclusive(0, 1), false), Err(Errno::BADF));
    reader.set_lock(PROCESS, &lock(LockKind::Shared, 0, 1), false).unwrap();
    assert_eq!(reader.set_lock(PROCESS, &lock(LockKind::Shared, u64::MAX, 2), false), Err(Errno::OVERFLOW));
    assert_eq!(reader.get_lock(PROCESS, &unlocked(0, 1)), Err(Errno::INVAL));
}

#[test]
fn a_waiter_gets_the_lock_when_it_ends_and_not_before() {
    let fs = without_locks();
    let mine = open(&process(&fs, 1));
    mine.set_lock(PROCESS, &exclusive(0, 10), false).unwrap();
    let is_free = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let theirs = open(&process(&fs, 2));
            theirs.set_lock(PROCESS, &exclusive(0, 10), true).unwrap();
            assert!(is_free.load(Ordering::SeqCst), "granted before");
        });
        is_free.store(true, Ordering::SeqCst);
        mine.set_lock(PROCESS, &unlocked(0, 5), false).unwrap();
        mine.set_lock(PROCESS, &unlocked(5, 5), false).unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn eight_threads_count_under_one_lock_and_lose_nothing() {
    let fs = without_locks();
    // Updated without atomicity: read, then written.
    let count = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..8 {
            let (fs, count) = (process(&fs, number), &count);
            scope.spawn(move || {
                let file = open(&fs);
                for turn in 0..50 {
                    if turn % 2 == 0 {
                        file.set_lock(PROCESS, &exclusive(3, 1), true).unwrap();
                        file.flock(LockKind::Exclusive, true).unwrap();
                    } else {
                        file.set_lock(PROCESS, &exclusive(0, 0), true).unwrap();
                        file.flock(LockKind::Exclusive, true).unwrap();
                    }
                    let before = count.load(Ordering::Relaxed);
                    thread::yield_now();
                    count.store(before + 1, Ordering::Relaxed);
                    file.flock(LockKind::Unlocked, false).unwrap();
                    file.set_lock(PROCESS, &unlocked(0, 0), false).unwrap();
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 400);
}

#[test]
fn an_interrupted_wait_ends_with_eintr_and_leaves_no_lock() {
    let fs = without_locks();
    let mine = open(&process(&fs, 1));
    mine.set_lock(PROCESS, &exclusive(0, 10), false).unwrap();
    let interrupt = fs.volume().session().interrupt();
    let is_reached = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let (file, caller) = (open(&fs), Caller { interrupt: Some(&interrupt), ..Caller::default() });
            loop {
                let wanted = (LockOwner::Process(2), exclusive(0, 10));
                let result = file.as_open_file().set_lock(&caller, wanted.0, &wanted.1, true);
                // Raised before the wait began.
                if result != Err(Errno::INTR) || is_reached.load(Ordering::SeqCst) {
                    return result;
                }
            }
        });
        while !interrupt.raise().unwrap() {
            interrupt.clear();
            thread::yield_now();
        }
        is_reached.store(true, Ordering::SeqCst);
        assert_eq!(waiter.join().unwrap(), Err(Errno::INTR));
    });
    interrupt.clear();
    mine.set_lock(PROCESS, &unlocked(0, 0), false).unwrap();
    open(&process(&fs, 3)).set_lock(PROCESS, &exclusive(0, 0), false).unwrap();
}

#[test]
fn two_who_would_wait_for_each_other_are_told() {
    let fs = without_locks();
    let (one, two, three) = (open(&process(&fs, 1)), open(&process(&fs, 2)), open(&process(&fs, 3)));
    for (file, at) in [(&one, 1), (&two, 2), (&three, 3)] {
        file.set_lock(PROCESS, &exclusive(at, 1), false).unwrap();
    }
    // Each waits for the next one; the one that would close the circle is refused and releases its lock, and the others
    // succeed.
    let refused = AtomicU32::new(0);
    thread::scope(|scope| {
        for (file, own, wanted) in [(&one, 1, 2), (&two, 2, 3), (&three, 3, 1)] {
            let refused = &refused;
            scope.spawn(move || {
                match file.set_lock(PROCESS, &exclusive(wanted, 1), true) {
                    Err(Errno::DEADLK) => _ = refused.fetch_add(1, Ordering::SeqCst),
                    other => other.unwrap(),
                }
                file.set_lock(PROCESS, &unlocked(own, 1), false).unwrap();
                file.set_lock(PROCESS, &unlocked(wanted, 1), false).unwrap();
            });
        }
    });
    assert_eq!(refused.into_inner(), 1);
}

#[test]
fn a_flock_that_is_converted_ends_first() {
    let fs = without_locks();
    let (one, two) = (open(&fs), open(&fs));
    one.flock(LockKind::Shared, false).unwrap();
    two.flock(LockKind::Shared, false).unwrap();
    assert_eq!(one.flock(LockKind::Exclusive, false), Err(Errno::AGAIN));
    two.flock(LockKind::Exclusive, false).unwrap();
    assert_eq!(one.flock(LockKind::Shared, false), Err(Errno::AGAIN));
}

#[test]
fn locks_that_nobody_ended_go_with_the_file() {
    let fs = without_locks();
    let file = open(&fs);
    let inode = Arc::clone(file.inode());
    let caller = Caller::default();
    // A kernel that opens through the volume and omits the flush.
    let kept = fs.volume().open(&caller, &inode, 2).unwrap();
    let owner = LockOwner::Process(77);
    kept.set_lock(&caller, owner, &exclusive(0, 1), false).unwrap();
    drop((kept, inode, file));
    fs.volume().drop_names();
    open(&fs).set_lock(PROCESS, &exclusive(0, 0), false).unwrap();
}

#[test]
fn a_server_that_agreed_to_locks_and_knows_none_is_asked_once() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let (_script, session) = session_with(InitFlags::all(), move |header, _| {
        let is_lock = matches!(header.opcode.get(), 31..=33);
        counted.fetch_add(u32::from(is_lock), Ordering::SeqCst);
        match header.opcode.get() {
            // OPEN has no handle of its own; FLUSH and everything else succeed.
            14 => reply(header, 0, &[0; 16]),
            31..=33 => reply(header, -38, &[]),
            _ => reply(header, 0, &[]),
        }
    });
    let volume = Volume::new(session, CacheOptions::default());
    let caller = Caller::default();
    let (one, two) = (volume.open(&caller, volume.root(), 0).unwrap(), volume.open(&caller, volume.root(), 0).unwrap());
    one.flock(&caller, LockKind::Exclusive, true).unwrap();
    assert_eq!(two.flock(&caller, LockKind::Shared, false), Err(Errno::AGAIN));
    let shared = lock(LockKind::Shared, 0, 0);
    one.set_lock(&caller, LockOwner::OpenFile, &shared, false).unwrap();
    two.set_lock(&caller, LockOwner::OpenFile, &shared, false).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2, "once for each kind of lock");
}
