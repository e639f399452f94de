//! Many threads at once.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    thread,
};

use super::locks_test::{ONE, descriptors_of, file, open, owner, range, wanted};
use super::{waiters::WAITERS_MAX, *};

/// Owners take, wait for, interrupt and release exclusive locks; a plain counter is the oracle of exclusion.
#[test]
fn under_stress_locks_exclude_and_nothing_is_left() {
    const ROUNDS: u64 = 300;
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let inside = AtomicI64::new(0);
    let through = LockingFile::default();
    thread::scope(|scope| {
        for lane in 0..4u64 {
            let (locks, path, inside, through) = (&locks, &path, &inside, &through);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let unique = Unique(lane * ROUNDS + round);
                    let owner = owner(lane);
                    let wanted = wanted(ONE, lane, range(0, 7), LockKind::Exclusive);
                    let outcome = locks.set_waiting(unique, &wanted, through, || open(path));
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

/// Threads of the same owners lock, wait for and unlock the same bytes: the record stays equal to the kernel's.
#[test]
fn under_stress_the_record_agrees_with_the_kernel() {
    const BYTES: u64 = 6;
    const LANES: u64 = 6;
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let through = LockingFile::default();
    let running = AtomicI64::new(LANES as i64);
    thread::scope(|scope| {
        for lane in 0..LANES {
            let (locks, path, through, running) = (&locks, &path, &through, &running);
            scope.spawn(move || {
                let mut random = random_numbers(lane);
                for _ in 0..500 {
                    let (number, start) = (1 + lane % 2, random() % BYTES);
                    let bytes = range(start, (start + random() % 3).min(BYTES - 1));
                    let kind = if random().is_multiple_of(2) { LockKind::Shared } else { LockKind::Exclusive };
                    let want = wanted(ONE, number, bytes, kind);
                    match random() % 3 {
                        0 => drop(locks.set(&want, through, || open(path))),
                        1 => drop(locks.set_waiting(Unique(lane), &want, through, || open(path))),
                        _ => locks.unset(ONE, owner(number), bytes).unwrap(),
                    }
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        // An owner whose program has ended may hold what another one waits for.
        while running.load(Ordering::SeqCst) > 0 {
            locks.interrupt_all();
            thread::yield_now();
        }
    });
    let handle = open(&path).unwrap();
    for byte in (0..BYTES).map(|byte| range(byte, byte)) {
        let stranger = wanted(ONE, 9, byte, LockKind::Exclusive);
        let found = locks.get(&stranger, &handle).unwrap();
        let is_recorded = |kind| locks.owners.holder_of(&stranger, byte, kind).is_some();
        let is_recorded = is_recorded(LockKind::Shared) || is_recorded(LockKind::Exclusive);
        assert_eq!(
            (found.is_some(), found.is_some_and(|found| found.pid != 0)),
            (is_recorded, is_recorded),
            "{byte:?}"
        );
    }
}

/// Returns pseudo-random numbers, the same each time.
fn random_numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 33
    }
}

/// Nearly as many owners as may wait, each for the next one: the last one is refused, and all others are served.
#[test]
fn a_circle_of_many_owners_is_seen_and_a_crowd_is_served() {
    const OWNERS: u64 = WAITERS_MAX as u64 - 1;
    let (_dir, path) = file();
    let locks = Locks::new(Limits::default()).unwrap();
    let through = LockingFile::default();
    let byte = |number, at| wanted(ONE, number, range(at, at), LockKind::Exclusive);
    (0..OWNERS).for_each(|number| locks.set(&byte(number, number), &through, || open(&path)).unwrap());
    let wait = |number| {
        let wanted = byte(number, (number + 1) % OWNERS);
        locks.set_waiting(Unique(number), &wanted, &through, || open(&path))
    };
    thread::scope(|scope| {
        let wait = &wait;
        let waiters: Vec<_> = (1..OWNERS).map(|number| scope.spawn(move || (wait(number), number))).collect();
        while locks.waiting() < waiters.len() {
            thread::yield_now();
        }
        assert_eq!(wait(0), Err(Errno::DEADLK));
        // 1. The chain resolves from its end.
        locks.release_owner(ONE, owner(0));
        for waiter in waiters.into_iter().rev() {
            let (outcome, number) = waiter.join().unwrap();
            assert_eq!(outcome, Ok(()), "{number}");
            locks.release_owner(ONE, owner(number));
        }
        // 2. All wait for one.
        locks.set(&byte(0, 0), &through, || open(&path)).unwrap();
        let crowd: Vec<_> = (1..=OWNERS)
            .map(|number| {
                let (locks, path, through, wanted) = (&locks, &path, &through, byte(number, 0));
                scope.spawn(move || {
                    let outcome = locks.set_waiting(Unique(number), &wanted, through, || open(path));
                    locks.release_owner(ONE, wanted.owner);
                    outcome
                })
            })
            .collect();
        while locks.waiting() < crowd.len() {
            thread::yield_now();
        }
        locks.release_owner(ONE, owner(0));
        crowd.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), Ok(())));
    });
    assert_eq!((locks.descriptors(), descriptors_of(&path)), (0, 0));
}
