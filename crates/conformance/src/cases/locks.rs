//! Locks on ranges of bytes: by process (POSIX) and by open file description (OFD).

use std::sync::mpsc;

use super::prelude::*;
use crate::client::{Lock, LockKind, LockOwner};
use crate::fs::{File, Fs};

pub(super) const CASES: &[Definition] = &[
    case("locks/process-write-lock-keeps-another-process-out", write_excludes),
    case("locks/process-read-locks-are-shared", read_shared),
    case("locks/process-ranges-that-do-not-touch-do-not-conflict", ranges),
    case("locks/process-length-zero-reaches-beyond-any-end", to_the_end),
    case("locks/process-query-names-the-first-lock-in-the-way", query),
    case("locks/process-own-locks-are-never-in-the-way", own),
    case("locks/process-unlock-in-the-middle-splits-a-lock", split),
    case("locks/process-upgrade-and-downgrade", upgrade),
    case("locks/process-any-close-drops-the-locks-of-the-process", close_drops),
    case("locks/process-end-drops-its-locks", exit_drops),
    case("locks/process-lock-outlives-a-handle-that-it-closed-and-a-child-has", outlives_closed),
    case("locks/process-locks-are-not-inherited", not_inherited),
    case("locks/process-lock-needs-a-handle-of-its-kind", needs_mode),
    case("locks/process-locks-at-large-offsets", large_offsets),
    case("locks/process-hundred-ranges-are-held-and-let-go", many_ranges),
    case("locks/process-lock-keeps-nobody-from-reading-or-writing", advisory),
    case("locks/description-conflicts-within-one-process", description_conflicts),
    case("locks/description-survives-the-close-of-another-handle", description_survives),
    case("locks/description-is-inherited-and-shared", description_inherited),
    case("locks/description-lock-ends-with-the-last-handle-wherever-that-is", description_last),
    case("locks/description-and-process-locks-conflict", mixed),
    case("locks/of-a-directory-are-refused-for-writing", directory),
];

use LockKind::{None as Unlock, Read, Write};
use LockOwner::{Description, Process};

fn shared_file<'c>(t: &Case<'c>) -> Result<File<'c>, Errno> {
    t.put("f", "0123456789")?;
    t.open("f", OFlags::RDWR)
}

/// What another process is told when it asks for a lock.
fn other_asks(t: &Case<'_>, owner: LockOwner, kind: LockKind, start: u64, len: u64) -> Result<Result<(), Errno>, Stop> {
    t.other_process(|t| Ok(t.open("f", OFlags::RDWR)?.lock(owner, kind, start, len)))
}

/// POSIX leaves the choice of the two.
fn conflict(result: Result<(), Errno>) -> Outcome {
    refused_any(result, &[Errno::AGAIN, Errno::ACCESS])
}

fn write_excludes(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("a write lock");
    file.lock(Process, Write, 0, 10)?;
    conflict(other_asks(t, Process, Write, 0, 10)?)?;
    conflict(other_asks(t, Process, Read, 5, 1)?)?;
    conflict(other_asks(t, Process, Write, 9, 100)?)?;
    t.step("gone");
    file.lock(Process, Unlock, 0, 10)?;
    Ok(other_asks(t, Process, Write, 0, 10)??)
}

fn read_shared(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("two readers, no writer");
    file.lock(Process, Read, 0, 10)?;
    other_asks(t, Process, Read, 0, 10)??;
    conflict(other_asks(t, Process, Write, 0, 1)?)
}

fn ranges(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 10, 10)?;
    t.step("before, behind, one byte into it");
    other_asks(t, Process, Write, 0, 10)??;
    other_asks(t, Process, Write, 20, 0)??;
    conflict(other_asks(t, Process, Write, 0, 11)?)?;
    conflict(other_asks(t, Process, Write, 19, 1)?)
}

fn to_the_end(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 5, 0)?;
    t.step("far past the end of the file");
    conflict(other_asks(t, Process, Read, 1 << 40, 1)?)?;
    other_asks(t, Process, Write, 0, 5)??;
    t.step("and after the file has grown");
    file.write_at("more", 100)?;
    conflict(other_asks(t, Process, Write, 103, 1)?)
}

fn query(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 5, 5)?;
    file.lock(Process, Read, 20, 5)?;
    t.step("another process asks");
    let (first, pid, second, free) = t.other_process(|t| {
        let file = t.open("f", OFlags::RDWR)?;
        let (first, pid) = file.query_lock(Process, Write, 0, 100)?;
        let (second, _) = file.query_lock(Process, Write, 12, 100)?;
        let (free, _) = file.query_lock(Process, Read, 12, 100)?;
        Ok((first, pid, second, free))
    })?;
    equal("first", first, Lock { kind: Write, start: 5, len: 5 })?;
    equal("second", second, Lock { kind: Read, start: 20, len: 5 })?;
    equal("for a reader", free.kind, Unlock)?;
    t.step("who it is");
    t.observe("pid-is-the-holder's", pid == std::process::id() as i32);
    Ok(())
}

fn own(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("two handles of one process");
    let second = t.open("f", OFlags::RDWR)?;
    file.lock(Process, Write, 0, 10)?;
    equal("query", second.query_lock(Process, Write, 0, 10)?.0.kind, Unlock)?;
    Ok(second.lock(Process, Write, 5, 10)?)
}

fn split(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("a hole in the middle");
    file.lock(Process, Write, 0, 30)?;
    file.lock(Process, Unlock, 10, 10)?;
    other_asks(t, Process, Write, 10, 10)??;
    conflict(other_asks(t, Process, Write, 9, 1)?)?;
    conflict(other_asks(t, Process, Write, 20, 1)?)?;
    t.step("closed again");
    file.lock(Process, Write, 5, 20)?;
    conflict(other_asks(t, Process, Write, 15, 1)?)
}

fn upgrade(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("read to write and back, on a part");
    file.lock(Process, Read, 0, 30)?;
    file.lock(Process, Write, 10, 10)?;
    conflict(other_asks(t, Process, Read, 10, 10)?)?;
    other_asks(t, Process, Read, 0, 10)??;
    file.lock(Process, Read, 10, 10)?;
    other_asks(t, Process, Read, 0, 30)??;
    t.step("no upgrade while another reads");
    t.other_process(|other| {
        let theirs = other.open("f", OFlags::RDWR)?;
        theirs.lock(Process, Read, 0, 30)?;
        Ok(())
    })?;
    Ok(file.lock(Process, Write, 0, 30)?)
}

fn close_drops(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("another handle of the same file is closed");
    t.open("f", OFlags::RDONLY)?.close()?;
    Ok(other_asks(t, Process, Write, 0, 10)??)
}

fn exit_drops(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("a process locks and ends");
    t.other_process(|t| {
        let theirs = t.open("f", OFlags::RDWR)?;
        theirs.lock(Process, Write, 0, 10)?;
        // The handle is left open: the end of the process closes it.
        std::mem::forget(theirs);
        Ok(())
    })?;
    Ok(file.lock(Process, Write, 0, 10)?)
}

/// Runs `body` while another process has inherited `file`, which ends with that process before `after` begins.
fn while_inherited<'c>(
    t: &Case<'c>,
    file: File<'c>,
    body: impl FnOnce(File<'c>) -> Outcome,
    after: impl FnOnce() -> Outcome,
) -> Outcome {
    let (began, has_begun) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let child = scope.spawn(move || {
            fs.other_process(move |_| {
                let _ = began.send(());
                let _ = may_end.recv();
                Ok(())
            })
        });
        has_begun.recv().map_err(|_| Stop::fail("the child did not start"))?;
        let outcome = body(file);
        drop(end);
        child.join().unwrap_or_else(|_| Err(Stop::fail("the child panicked")))?;
        outcome
    })?;
    after()
}

fn outlives_closed(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("a child inherits the handle; here it is closed, the file is opened and locked again, and the child ends");
    let mut again = None;
    let lock_again = |file: File<'_>| {
        file.close()?;
        other_asks(t, Process, Write, 0, 10)??;
        again.insert(t.open("f", OFlags::RDWR)?).lock(Process, Write, 0, 10)?;
        Ok(())
    };
    while_inherited(t, file, lock_again, || conflict(other_asks(t, Process, Write, 0, 10)?))?;
    t.step("the close of the second handle drops it");
    again.into_iter().try_for_each(File::close)?;
    Ok(other_asks(t, Process, Write, 0, 10)??)
}

fn not_inherited(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 0, 10)?;
    t.step("the same handle in a child");
    let theirs = t.other_process(|t| Ok(t.inherited(&file).lock(Process, Write, 0, 10)))?;
    conflict(theirs)
}

fn needs_mode(t: &Case<'_>) -> Outcome {
    shared_file(t)?;
    t.step("a write lock through a handle for reading, and the reverse");
    refused(t.open("f", OFlags::RDONLY)?.lock(Process, Write, 0, 1), Errno::BADF)?;
    refused(t.open("f", OFlags::WRONLY)?.lock(Process, Read, 0, 1), Errno::BADF)?;
    refused(t.open("f", OFlags::RDONLY)?.lock(Description, Write, 0, 1), Errno::BADF)
}

fn large_offsets(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    let far = (1 << 62) + 12_345;
    t.step("beyond 4 EiB, and up to the last byte");
    file.lock(Process, Write, far, 1)?;
    conflict(other_asks(t, Process, Write, far, 1)?)?;
    other_asks(t, Process, Write, far - 1, 1)??;
    file.lock(Process, Write, i64::MAX as u64, 1)?;
    conflict(other_asks(t, Process, Read, i64::MAX as u64, 0)?)
}

fn many_ranges(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    t.step("every second byte");
    for start in (0..200).step_by(2) {
        file.lock(Process, Write, start, 1)?;
    }
    let (taken, free) = t.other_process(|t| {
        let theirs = t.open("f", OFlags::RDWR)?;
        let ask = |start| theirs.lock(Process, Write, start, 1).is_ok();
        Ok(((0..200).step_by(2).filter(|start| !ask(*start)).count(), (1..200).step_by(2).filter(|s| ask(*s)).count()))
    })?;
    equal("taken and free", (taken, free), (100, 100))?;
    t.step("all at once");
    file.lock(Process, Unlock, 0, 0)?;
    Ok(other_asks(t, Process, Write, 0, 0)??)
}

fn advisory(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Process, Write, 0, 0)?;
    t.step("another process does as it likes");
    t.other_process(|t| {
        let theirs = t.open("f", OFlags::RDWR)?;
        same_data("data", &theirs.read_at(3, 0)?, b"012")?;
        theirs.write_at("ABC", 0)?;
        theirs.truncate(5)?;
        Ok(t.unlink("f")?)
    })?;
    same_data("data", &file.read_all()?, b"ABC34")
}

fn description_conflicts(t: &Case<'_>) -> Outcome {
    let one = shared_file(t)?;
    let two = t.open("f", OFlags::RDWR)?;
    t.step("two handles of one process");
    one.lock(Description, Write, 0, 10)?;
    conflict(two.lock(Description, Write, 5, 1))?;
    two.lock(Description, Write, 10, 1)?;
    t.step("the query's answer names no process");
    let (lock, pid) = two.query_lock(Description, Read, 0, 5)?;
    equal("lock", lock, Lock { kind: Write, start: 0, len: 10 })?;
    equal("pid", pid, -1)
}

fn description_survives(t: &Case<'_>) -> Outcome {
    let one = shared_file(t)?;
    let two = t.open("f", OFlags::RDWR)?;
    one.lock(Description, Write, 0, 10)?;
    t.step("another handle is closed");
    t.open("f", OFlags::RDONLY)?.close()?;
    conflict(two.lock(Description, Write, 0, 10))?;
    t.step("its own");
    one.close()?;
    Ok(two.lock(Description, Write, 0, 10)?)
}

fn description_inherited(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Description, Write, 0, 10)?;
    t.step("a child may use it, and its end drops nothing");
    t.other_process(|t| Ok(t.inherited(&file).lock(Description, Write, 0, 10)?))?;
    conflict(other_asks(t, Description, Write, 0, 10)?)?;
    t.step("a child lets it go");
    t.other_process(|t| Ok(t.inherited(&file).lock(Description, Unlock, 0, 10)?))?;
    Ok(other_asks(t, Description, Write, 0, 10)??)
}

fn description_last(t: &Case<'_>) -> Outcome {
    let file = shared_file(t)?;
    file.lock(Description, Write, 0, 10)?;
    t.step("closed here, and a child still has it");
    let close = |file: File<'_>| {
        file.close()?;
        conflict(other_asks(t, Description, Write, 0, 10)?)
    };
    let free = || {
        t.step("the child has ended");
        Ok(t.open("f", OFlags::RDWR)?.lock_waiting(Description, Write, 0, 10)?)
    };
    while_inherited(t, file, close, free)
}

fn mixed(t: &Case<'_>) -> Outcome {
    let one = shared_file(t)?;
    let two = t.open("f", OFlags::RDWR)?;
    t.step("a process's lock against a description's, in one process");
    one.lock(Process, Write, 0, 10)?;
    conflict(two.lock(Description, Read, 0, 10))?;
    one.lock(Process, Unlock, 0, 10)?;
    two.lock(Description, Read, 0, 10)?;
    conflict(one.lock(Process, Write, 0, 10))
}

fn directory(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    let dir = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.step("a handle of a directory is for reading");
    refused(dir.lock(Process, Write, 0, 0), Errno::BADF)?;
    t.observe_result("read-lock", &dir.lock(Process, Read, 0, 0));
    Ok(())
}
