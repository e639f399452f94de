//! Whole-file locks (flock), and waiting for locks of every kind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::prelude::*;
use crate::client::{LockKind, LockOwner};
use crate::fs::{File, Fs};
use crate::syscalls::signals;

pub(super) const CASES: &[Definition] = &[
    case("flock/exclusive-keeps-out-and-shared-is-shared", flock),
    case("flock/belongs-to-the-open-file-and-not-to-the-process", flock_owner),
    case("flock/is-inherited-and-ends-with-the-last-close", flock_inherited),
    case("flock/converts-between-shared-and-exclusive", flock_converts),
    case("flock/works-through-a-handle-of-any-mode-and-on-directories", flock_modes),
    case("flock/and-range-locks-do-not-see-each-other", flock_and_ranges),
    case("lock-waits/process-lock-is-granted-when-its-holder-lets-go", process_granted),
    case("lock-waits/process-lock-is-granted-when-its-holder-ends", process_end),
    case("lock-waits/description-lock-is-granted-when-its-holder-closes", description_granted),
    case("lock-waits/flock-is-granted-when-its-holder-lets-go", flock_granted),
    case("lock-waits/process-lock-is-interrupted-by-a-signal", process_interrupted),
    case("lock-waits/flock-is-interrupted-by-a-signal", flock_interrupted),
    case("lock-waits/an-interrupted-wait-leaves-no-lock-behind", nothing_left),
    case("lock-waits/eight-waiters-are-all-granted-in-turn", many_waiters),
    case("lock-waits/other-operations-go-on-while-a-lock-waits", others_go_on),
];

use LockKind::{None as Unlock, Read, Write};
use LockOwner::{Description, Process};

/// How long a lock is held so that a waiter most likely waits; no result depends on it.
const HELD: Duration = Duration::from_millis(20);

fn flock(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let (one, two) = (t.open("f", OFlags::RDWR)?, t.open("f", OFlags::RDWR)?);
    t.step("exclusive");
    one.flock(Write)?;
    refused(two.flock(Write), Errno::AGAIN)?;
    refused(two.flock(Read), Errno::AGAIN)?;
    t.step("shared");
    one.flock(Unlock)?;
    one.flock(Read)?;
    two.flock(Read)?;
    refused(two.flock(Write), Errno::AGAIN)?;
    t.step("another process");
    let theirs = t.other_process(|t| Ok(t.open("f", OFlags::RDWR)?.flock(Write)))?;
    refused(theirs, Errno::AGAIN)
}

fn flock_owner(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let one = t.open("f", OFlags::RDWR)?;
    one.flock(Write)?;
    t.step("a second handle is opened and closed: the lock stays");
    t.open("f", OFlags::RDWR)?.close()?;
    refused(t.open("f", OFlags::RDWR)?.flock(Read), Errno::AGAIN)?;
    t.step("its own handle is closed: it goes");
    one.close()?;
    Ok(t.open("f", OFlags::RDWR)?.flock(Write)?)
}

fn flock_inherited(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.flock(Write)?;
    t.step("a child with the handle ends: the lock stays");
    t.other_process(|t| Ok(t.inherited(&file).flock(Write)?))?;
    refused(t.open("f", OFlags::RDWR)?.flock(Read), Errno::AGAIN)?;
    t.step("a child lets go for both");
    t.other_process(|t| Ok(t.inherited(&file).flock(Unlock)?))?;
    Ok(t.open("f", OFlags::RDWR)?.flock(Write)?)
}

fn flock_converts(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let (one, two) = (t.open("f", OFlags::RDWR)?, t.open("f", OFlags::RDWR)?);
    t.step("up and down");
    one.flock(Read)?;
    one.flock(Write)?;
    refused(two.flock(Read), Errno::AGAIN)?;
    one.flock(Read)?;
    two.flock(Read)?;
    t.step("no way up while another shares");
    refused(one.flock(Write), Errno::AGAIN)
}

fn flock_modes(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.mkdir("d")?;
    t.step("read-only and write-only handles");
    t.open("f", OFlags::RDONLY)?.flock(Write)?;
    t.open("f", OFlags::WRONLY)?.flock(Read)?;
    t.step("a directory");
    let dir = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let result = dir.flock(Write);
    t.observe_result("directory", &result);
    if result.is_ok() {
        let second = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?.flock(Read);
        refused(second, Errno::AGAIN)?;
    }
    Ok(())
}

fn flock_and_ranges(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let one = t.open("f", OFlags::RDWR)?;
    one.flock(Write)?;
    t.step("a range lock on a file under flock");
    let ranges = t.other_process(|t| Ok(t.open("f", OFlags::RDWR)?.lock(Process, Write, 0, 0)))?;
    equal("range lock", ranges, Ok(()))
}

/// The waiter asks for a lock that is held; it must get it, and not before it was let go.
fn granted(
    t: &Case<'_>,
    wait: impl Fn(&File<'_>) -> Result<(), Errno> + Sync,
    hold_and_let_go: impl FnOnce(&AtomicBool, &mpsc::Receiver<()>) -> Outcome,
) -> Outcome {
    let is_free = AtomicBool::new(false);
    let (about_to_wait, is_waiting) = mpsc::channel();
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            fs.other_process(|t| {
                let file = t.open("f", OFlags::RDWR)?;
                about_to_wait.send(()).map_err(|_| Stop::fail("the holder is gone"))?;
                wait(&file)?;
                holds("granted after it was let go", is_free.load(Ordering::SeqCst), "granted before")
            })
        });
        let held = hold_and_let_go(&is_free, &is_waiting);
        is_free.store(true, Ordering::SeqCst);
        let waited = waiter.join().unwrap_or_else(|_| Err(Stop::fail("the waiter panicked")));
        held.and(waited)
    })
}

fn process_granted(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("a waiter, and the lock let go");
    granted(
        t,
        |theirs| theirs.lock_waiting(Process, Write, 5, 1),
        |is_free, waiting| {
            let _ = waiting.recv();
            std::thread::sleep(HELD);
            is_free.store(true, Ordering::SeqCst);
            Ok(file.lock(Process, Unlock, 0, 10)?)
        },
    )
}

fn process_end(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("the holder is a process that ends");
    let (locked, is_locked) = mpsc::channel();
    let (end, is_end) = mpsc::channel::<()>();
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let holder = scope.spawn(move || {
            fs.other_process(move |t| {
                let file = t.open("f", OFlags::RDWR)?;
                file.lock(Process, Write, 0, 10)?;
                let _ = locked.send(());
                let _ = is_end.recv();
                std::mem::forget(file);
                Ok(())
            })
        });
        is_locked.recv().map_err(|_| Stop::fail("the holder got no lock"))?;
        let outcome = granted(
            t,
            |theirs| theirs.lock_waiting(Process, Read, 0, 0),
            |is_free, waiting| {
                let _ = waiting.recv();
                std::thread::sleep(HELD);
                is_free.store(true, Ordering::SeqCst);
                let _ = end.send(());
                Ok(())
            },
        );
        holder.join().unwrap_or_else(|_| Err(Stop::fail("the holder panicked"))).and(outcome)
    })
}

fn description_granted(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Description, Write, 0, 10)?;
    t.step("a waiter, and the last close");
    // The waiter's process inherits the handle; it must be closed there for the lock to go.
    let (about_to_wait, is_waiting) = mpsc::channel();
    let is_free = AtomicBool::new(false);
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let (is_free, inherited) = (&is_free, fs.inherited(&file));
        let waiter = scope.spawn(move || {
            fs.other_process(move |t| {
                t.inherited(&inherited).close()?;
                let theirs = t.open("f", OFlags::RDWR)?;
                let _ = about_to_wait.send(());
                theirs.lock_waiting(Description, Write, 0, 1)?;
                holds("granted after the close", is_free.load(Ordering::SeqCst), "granted before")
            })
        });
        let _ = is_waiting.recv();
        std::thread::sleep(HELD);
        is_free.store(true, Ordering::SeqCst);
        let closed = file.close();
        let waited = waiter.join().unwrap_or_else(|_| Err(Stop::fail("the waiter panicked")));
        closed?;
        waited
    })
}

fn flock_granted(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.flock(Write)?;
    t.step("a waiter, and the lock let go");
    granted(
        t,
        |theirs| theirs.flock_waiting(Read),
        |is_free, waiting| {
            let _ = waiting.recv();
            std::thread::sleep(HELD);
            is_free.store(true, Ordering::SeqCst);
            Ok(file.flock(Unlock)?)
        },
    )
}

/// A waiter that is sent signals until its wait has ended; the answer of the wait.
fn interrupted(t: &Case<'_>, wait: impl Fn(&File<'_>) -> Result<(), Errno> + Sync) -> Result<Result<(), Errno>, Stop> {
    t.kernel()?;
    let (ready, is_ready) = mpsc::channel();
    let has_ended = AtomicBool::new(false);
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let outcome = fs.other_process(|t| {
                let file = t.open("f", OFlags::RDWR)?;
                let _ = ready.send(signals::Thread::current());
                Ok(wait(&file))
            });
            has_ended.store(true, Ordering::SeqCst);
            outcome
        });
        let thread = is_ready.recv().map_err(|_| Stop::fail("the waiter did not start"))?;
        while !has_ended.load(Ordering::SeqCst) {
            thread.interrupt();
            std::thread::sleep(Duration::from_millis(1));
        }
        waiter.join().unwrap_or_else(|_| Err(Stop::fail("the waiter panicked")))
    })
}

fn process_interrupted(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("a waiter gets a signal");
    refused(interrupted(t, |theirs| theirs.lock_waiting(Process, Write, 0, 10))?, Errno::INTR)?;
    refused(interrupted(t, |theirs| theirs.lock_waiting(Description, Read, 0, 10))?, Errno::INTR)
}

fn flock_interrupted(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.flock(Write)?;
    t.step("a waiter gets a signal");
    refused(interrupted(t, |theirs| theirs.flock_waiting(Write))?, Errno::INTR)
}

fn nothing_left(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("twenty waits are interrupted");
    for _ in 0..20 {
        refused(interrupted(t, |theirs| theirs.lock_waiting(Process, Write, 0, 10))?, Errno::INTR)?;
    }
    t.step("the lock goes, and nobody has it");
    file.lock(Process, Unlock, 0, 10)?;
    t.other_process(|t| {
        let theirs = t.open("f", OFlags::RDWR)?;
        equal("in the way", theirs.query_lock(Process, Write, 0, 0)?.0.kind, Unlock)?;
        Ok(theirs.lock(Process, Write, 0, 10)?)
    })
}

fn many_waiters(t: &Case<'_>) -> Outcome {
    t.put("f", "0")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 0)?;
    t.step("eight processes count under the lock");
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let count = || {
            fs.other_process(|t| {
                let theirs = t.open("f", OFlags::RDWR)?;
                for _ in 0..10 {
                    theirs.lock_waiting(Process, Write, 0, 0)?;
                    let number: u32 = String::from_utf8_lossy(&theirs.read_all()?).parse().unwrap_or_default();
                    theirs.write_at((number + 1).to_string(), 0)?;
                    theirs.lock(Process, Unlock, 0, 0)?;
                }
                Ok(())
            })
        };
        let waiters: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
        let free = file.lock(Process, Unlock, 0, 0);
        for waiter in waiters {
            waiter.join().unwrap_or_else(|_| Err(Stop::fail("a waiter panicked")))?;
        }
        Ok::<_, Stop>(free?)
    })?;
    same_data("count", &file.read_all()?, b"80")
}

fn others_go_on(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("while a waiter waits, files are created, written, listed and removed");
    granted(
        t,
        |theirs| theirs.lock_waiting(Process, Write, 0, 10),
        |is_free, waiting| {
            let _ = waiting.recv();
            for index in 0..50 {
                let name = format!("g{index}");
                t.put(&name, "data")?;
                same_data("data", &t.get(&name)?, b"data")?;
                t.names(".")?;
                t.unlink(&name)?;
            }
            is_free.store(true, Ordering::SeqCst);
            Ok(file.lock(Process, Unlock, 0, 10)?)
        },
    )
}
