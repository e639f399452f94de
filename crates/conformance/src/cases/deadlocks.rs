//! Processes that wait for each other's locks: only the one whose request completes the cycle is refused.

use std::sync::{Barrier, Mutex, mpsc};
use std::time::Duration;

use super::prelude::*;
use crate::client::{LockKind, LockOwner};
use crate::fs::Fs;
use crate::syscalls::signals;

pub(super) const CASES: &[Definition] = &[
    case("lock-waits/two-processes-in-a-circle-one-is-refused", two),
    case("lock-waits/three-processes-in-a-circle-one-is-refused", three),
    case("lock-waits/six-processes-and-two-files-in-a-circle-one-is-refused", two_files),
    case("lock-waits/readers-that-both-want-to-write-one-is-refused", upgrade),
    case("lock-waits/a-circle-through-one-of-many-ranges-is-seen", ranges),
    case("lock-waits/a-circle-that-a-third-process-delays-is-seen", delayed),
    case("lock-waits/a-chain-without-a-circle-is-waited-for", chain),
    case("lock-waits/who-has-let-go-is-in-no-circle", let_go),
];

use LockKind::{None as Unlock, Read, Write};
use LockOwner::Process;

/// A circle that nobody was refused for by then never will be: the waiters are interrupted.
const UNSEEN: Duration = Duration::from_secs(60);
/// How long a lock is held so that a waiter most likely waits; no result depends on it.
const HELD: Duration = Duration::from_millis(20);

/// A lock: of which file, its kind, its first byte and how many.
type Lock = (&'static str, LockKind, u64, u64);

fn two(t: &Case<'_>) -> Outcome {
    t.step("each holds a byte and waits for the other's");
    one_is_refused(t, &[(("f", Write, 0, 1), ("f", Write, 1, 1)), (("f", Write, 1, 1), ("f", Read, 0, 1))])
}

fn three(t: &Case<'_>) -> Outcome {
    t.step("each waits for the next one");
    one_is_refused(
        t,
        &[
            (("f", Write, 0, 1), ("f", Write, 1, 1)),
            (("f", Write, 1, 1), ("f", Write, 2, 1)),
            (("f", Write, 2, 1), ("f", Write, 0, 1)),
        ],
    )
}

fn two_files(t: &Case<'_>) -> Outcome {
    t.step("each waits for the next one, in the other file");
    let lock = |at: u64| -> Lock { (if at.is_multiple_of(2) { "f" } else { "g" }, Write, at, 1) };
    // Linux follows a chain of no more than ten waiters.
    let parts: Vec<_> = (0..6).map(|at| (lock(at), lock((at + 1) % 6))).collect();
    one_is_refused(t, &parts)
}

fn upgrade(t: &Case<'_>) -> Outcome {
    t.step("both have a read lock, and want a write lock in its place");
    let part = (("f", Read, 0, 10), ("f", Write, 0, 10));
    one_is_refused(t, &[part, part])
}

fn ranges(t: &Case<'_>) -> Outcome {
    t.step("what is waited for begins before the lock in the way and ends after it");
    one_is_refused(t, &[(("f", Write, 10, 1), ("f", Write, 15, 0)), (("f", Read, 20, 5), ("f", Write, 5, 10))])
}

/// As by POSIX and on every Linux, whichever of the two it is and whenever it is seen.
fn delayed(t: &Case<'_>) -> Outcome {
    t.step("one waits for two, of whom the first lets go and the second waits for it");
    let outcomes = run(
        t,
        &[
            (("f", Write, 2, 5), None),
            (("f", Write, 9, 5), Some(("f", Write, 17, 5))),
            (("f", Write, 17, 5), Some(("f", Write, 2, 14))),
        ],
    )?;
    equal("the first", outcomes[0], Ok(()))?;
    equal("refusals", refusals(&outcomes), 1)?;
    equal("locks", outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2)
}

fn chain(t: &Case<'_>) -> Outcome {
    t.step("each waits for the one before; the first waits for nobody");
    let outcomes = run(
        t,
        &[
            (("f", Write, 0, 1), None),
            (("f", Write, 1, 1), Some(("f", Write, 0, 1))),
            (("f", Write, 2, 1), Some(("f", Read, 1, 1))),
            (("f", Write, 3, 1), Some(("f", Write, 0, 3))),
        ],
    )?;
    equal("all are served", outcomes, vec![Ok(()); 4])
}

fn let_go(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 1)?;
    t.step("the other holds 1 and waits for 0, which is let go; then 1 is waited for");
    let (about_to_wait, is_waiting) = mpsc::channel();
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            fs.other_process(move |t| {
                let theirs = t.open("f", OFlags::RDWR)?;
                theirs.lock(Process, Write, 1, 1)?;
                let _ = about_to_wait.send(());
                theirs.lock_waiting(Process, Write, 0, 1)?;
                std::thread::sleep(HELD);
                Ok(theirs.lock(Process, Unlock, 0, 0)?)
            })
        });
        let _ = is_waiting.recv();
        std::thread::sleep(HELD);
        let let_go = file.lock(Process, Unlock, 0, 1);
        let mine = file.lock_waiting(Process, Write, 1, 1);
        let theirs = other.join().unwrap_or_else(|_| Err(Stop::fail("the other panicked")));
        let_go?;
        equal("mine", mine, Ok(()))?;
        theirs
    })
}

fn one_is_refused(t: &Case<'_>, parts: &[(Lock, Lock)]) -> Outcome {
    let parts: Vec<_> = parts.iter().map(|&(holds, wants)| (holds, Some(wants))).collect();
    let outcomes = run(t, &parts)?;
    equal("refusals", refusals(&outcomes), 1)?;
    equal("locks", outcomes.iter().filter(|outcome| outcome.is_ok()).count(), parts.len() - 1)
}

fn refusals(outcomes: &[Result<(), Errno>]) -> usize {
    outcomes.iter().filter(|outcome| **outcome == Err(Errno::DEADLK)).count()
}

/// Each part is a process, which takes its first lock and, when all have theirs, waits for the second, if it has one;
/// then it gives everything back. Returns what the waits answered.
fn run(t: &Case<'_>, parts: &[(Lock, Option<Lock>)]) -> Result<Vec<Result<(), Errno>>, Stop> {
    t.put("f", "x")?;
    t.put("g", "x")?;
    let all_hold = Barrier::new(parts.len());
    let threads = Mutex::new(Vec::new());
    let (ended, has_ended) = mpsc::channel::<()>();
    let fs: &Fs<'_> = t;
    let part = |holds: Lock, wants: Option<Lock>| {
        fs.other_process(|t| {
            let hold = |(name, kind, start, len): Lock| {
                let file = t.open(name, OFlags::RDWR)?;
                file.lock(Process, kind, start, len)?;
                Ok(file)
            };
            let held: Result<_, Errno> = hold(holds);
            if t.kernel().is_ok() {
                threads.lock().expect("no holder of this lock panics").push(signals::Thread::current());
            }
            all_hold.wait();
            let held = held?;
            let outcome = match wants {
                Some((name, kind, start, len)) if name == holds.0 => held.lock_waiting(Process, kind, start, len),
                Some((name, kind, start, len)) => t.open(name, OFlags::RDWR)?.lock_waiting(Process, kind, start, len),
                None => {
                    std::thread::sleep(HELD);
                    Ok(())
                }
            };
            held.lock(Process, Unlock, 0, 0)?;
            Ok(outcome)
        })
    };
    std::thread::scope(|scope| {
        let processes: Vec<_> = parts.iter().map(|&(holds, wants)| scope.spawn(move || part(holds, wants))).collect();
        // A file system that does not detect the cycle would block the processes forever.
        let threads = &threads;
        scope.spawn(move || {
            while has_ended.recv_timeout(UNSEEN) == Err(mpsc::RecvTimeoutError::Timeout) {
                threads.lock().expect("no holder of this lock panics").iter().for_each(|thread| thread.interrupt());
            }
        });
        let joined = processes.into_iter().map(|process| process.join());
        let outcomes: Vec<_> =
            joined.map(|process| process.unwrap_or_else(|_| Err(Stop::fail("a process panicked")))).collect();
        let _ = ended.send(());
        outcomes.into_iter().collect()
    })
}
