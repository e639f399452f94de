use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use super::*;

/// Returns a system call that ends only with a signal: it reads a pipe that nobody writes.
fn block_forever() -> impl FnMut() -> Result<(), Errno> {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    move || {
        let _open = &writer;
        rustix::io::read(&reader, &mut [0; 1]).map(drop)
    }
}

#[test]
fn an_interrupt_reaches_its_request_and_no_other() {
    let waiters = Waiters::new().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for unique in [1, 2, 3] {
            let (waiters, sender) = (&waiters, sender.clone());
            scope.spawn(move || sender.send((unique, waiters.wait(Unique(unique), block_forever()))).unwrap());
        }
        for unique in [2, 3, 1] {
            waiters.interrupt(Unique(unique));
            assert_eq!(receiver.recv().unwrap(), (unique, Err(Errno::INTR)));
        }
    });
    assert_eq!(waiters.count(), 0);
}

#[test]
fn an_interrupt_that_comes_before_its_request_counts_once() {
    let waiters = Waiters::new().unwrap();
    waiters.interrupt(Unique(7));
    assert_eq!(waiters.wait(Unique(7), || panic!("does not begin")), Err(Errno::INTR));
    assert_eq!(waiters.wait(Unique(7), || Ok(())), Ok(()));
    // Early interrupts are bounded, and a new session begins without them.
    (0..10 * EARLY_MAX as u64).for_each(|unique| waiters.interrupt(Unique(unique)));
    assert_eq!(waiters.shared.lock().early.len(), EARLY_MAX);
    waiters.interrupt_all();
    assert_eq!(waiters.wait(Unique(10 * EARLY_MAX as u64 - 1), || Ok(())), Ok(()));
}

#[test]
fn a_foreign_signal_does_not_end_the_waiting() {
    let waiters = Waiters::new().unwrap();
    let mut turns = 0;
    let outcome = waiters.wait(Unique(1), || {
        turns += 1;
        if turns < 5 { Err(Errno::INTR) } else { Ok(()) }
    });
    assert_eq!((outcome, turns), (Ok(()), 5));
}

#[test]
fn beyond_the_bound_waiting_is_refused_and_places_come_back() {
    let waiters = Waiters::new().unwrap();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for unique in 0..WAITERS_MAX as u64 {
            let (waiters, done) = (&waiters, &done);
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(scope, move || {
                    assert_eq!(waiters.wait(Unique(unique), block_forever()), Err(Errno::INTR));
                    done.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
        }
        while waiters.count() < WAITERS_MAX {
            thread::yield_now();
        }
        assert_eq!(waiters.wait(Unique(9999), || Ok(())), Err(Errno::NOLCK));
        waiters.interrupt_all();
    });
    assert_eq!((done.into_inner(), waiters.count()), (WAITERS_MAX, 0));
    assert_eq!(waiters.wait(Unique(1), || Ok(())), Ok(()));
}

/// Threads that constantly begin and end waiting, against interrupts at every moment: nobody is left waiting, since
/// each wait ends only by its interrupt. No lane is so far ahead of its waiter that early interrupts are dropped.
#[test]
fn no_interrupt_is_lost_at_any_moment() {
    const ROUNDS: u64 = 500;
    const LANES: u64 = 4;
    const AHEAD_MAX: usize = 16;
    const { assert!((AHEAD_MAX + 2) * LANES as usize <= EARLY_MAX) };
    let waiters = Waiters::new().unwrap();
    thread::scope(|scope| {
        for lane in 0..LANES {
            let waiters = &waiters;
            let (begin, begun) = mpsc::sync_channel(AHEAD_MAX);
            scope.spawn(move || {
                for unique in begun {
                    assert_eq!(waiters.wait(unique, block_forever()), Err(Errno::INTR));
                }
            });
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let unique = Unique(lane * ROUNDS + round);
                    begin.send(unique).unwrap();
                    (0..round % 50).for_each(|_| thread::yield_now());
                    waiters.interrupt(unique);
                }
            });
        }
    });
    assert_eq!(waiters.count(), 0);
}

#[test]
fn a_thread_that_blocks_all_signals_is_interrupted_and_keeps_its_mask() {
    let blocked = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
    };
    let waiters = Waiters::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            block_all_signals();
            let before = blocked();
            assert_eq!(waiters.wait(Unique(1), block_forever()), Err(Errno::INTR));
            assert_eq!(blocked(), before);
        });
        while waiters.count() == 0 {
            thread::yield_now();
        }
        waiters.interrupt(Unique(1));
    });
}

#[expect(unsafe_code, reason = "signal masks are neither in std nor in rustix")]
fn block_all_signals() {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the first call writes all of `set`, which the second one reads.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}
