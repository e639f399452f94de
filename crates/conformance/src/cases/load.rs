//! Many at once: open files, threads in one directory, appends, renames.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::prelude::*;
use crate::fs::Fs;

pub(super) const CASES: &[Definition] = &[
    case("load/a-thousand-open-files-keep-their-own-data", many_handles),
    case("load/four-threads-create-in-one-directory", concurrent_creates),
    case("load/four-threads-race-for-each-exclusive-name-and-one-wins", exclusive_race),
    case("load/four-threads-append-whole-records", concurrent_appends),
    case("load/four-threads-write-their-own-ranges-of-one-file", concurrent_ranges),
    case("load/renames-over-one-name-never-leave-it-missing", rename_storm),
    case("load/mkdir-and-rmdir-of-one-name-by-four-threads", mkdir_storm),
    case("load/links-and-unlinks-by-four-threads-leave-the-count-right", link_storm),
    case("load/a-tree-of-a-thousand-files-is-made-walked-and-removed", tree),
    case("load/open-write-close-two-thousand-times", churn),
    case("load/a-reader-sees-whole-replacements-only", atomic_replace),
];

const THREADS: usize = 4;

/// Runs `body` on four threads of this process; the first failure wins.
fn on_threads(t: &Case<'_>, body: impl Fn(&Fs<'_>, usize) -> Outcome + Sync) -> Outcome {
    let fs: &Fs<'_> = t;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                scope.spawn({
                    let body = &body;
                    move || body(fs, index)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(Stop::fail("a panic"))));
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

fn many_handles(t: &Case<'_>) -> Outcome {
    t.step("a thousand handles");
    let mut files = Vec::new();
    for index in 0..1000u32 {
        let file = match t.create(format!("f{index}")) {
            Err(Errno::MFILE) => return Err(Stop::skip("fewer than 1000 descriptors are allowed")),
            other => other?,
        };
        file.write_at(index.to_le_bytes(), u64::from(index))?;
        files.push(file);
    }
    t.step("each is read and told apart");
    let inodes: BTreeSet<_> = files.iter().map(|file| file.stat().map(|attr| attr.ino)).collect::<Result<_, _>>()?;
    equal("inodes", inodes.len(), 1000)?;
    for (index, file) in (0..1000u32).zip(&files) {
        same_data("data", &file.read_at(4, u64::from(index))?, &index.to_le_bytes())?;
    }
    Ok(())
}

fn concurrent_creates(t: &Case<'_>) -> Outcome {
    t.step("250 files each");
    on_threads(t, |t, thread| {
        for index in 0..250 {
            t.put(format!("t{thread}-{index}"), format!("{thread} {index}"))?;
        }
        Ok(())
    })?;
    equal("names", t.names(".")?.len(), 1000)?;
    same_data("data", &t.get("t3-249")?, b"3 249")
}

fn exclusive_race(t: &Case<'_>) -> Outcome {
    use std::sync::atomic::AtomicUsize;
    let wins = AtomicUsize::new(0);
    t.step("200 names, four threads each");
    on_threads(t, |t, _| {
        for index in 0..200 {
            match t.create(format!("n{index}")) {
                Ok(_) => drop(wins.fetch_add(1, Ordering::Relaxed)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    })?;
    equal("winners", wins.load(Ordering::Relaxed), 200)?;
    equal("names", t.names(".")?.len(), 200)
}

fn concurrent_appends(t: &Case<'_>) -> Outcome {
    t.create("log")?;
    t.step("100 records of 100 bytes each, by four threads with their own handles");
    on_threads(t, |t, thread| {
        let file = t.open("log", OFlags::WRONLY | OFlags::APPEND)?;
        for _ in 0..100 {
            equal("written", file.write([b'0' + thread as u8; 100])?, 100)?;
        }
        Ok(())
    })?;
    let data = t.get("log")?;
    equal("size", data.len(), 40_000)?;
    let torn = data.chunks(100).filter(|record| record.iter().any(|byte| *byte != record[0])).count();
    equal("torn records", torn, 0)
}

fn concurrent_ranges(t: &Case<'_>) -> Outcome {
    t.create("f")?;
    t.step("interleaved blocks of 1000 bytes");
    on_threads(t, |t, thread| {
        let file = t.open("f", OFlags::WRONLY)?;
        for block in (thread..200).step_by(THREADS) {
            file.write_all_at([b'0' + thread as u8; 1000], block as u64 * 1000)?;
        }
        Ok(())
    })?;
    let data = t.get("f")?;
    equal("size", data.len(), 200_000)?;
    let wrong = data.iter().enumerate().filter(|(at, byte)| **byte != b'0' + (at / 1000 % THREADS) as u8).count();
    equal("wrong bytes", wrong, 0)
}

fn rename_storm(t: &Case<'_>) -> Outcome {
    t.put("target", "start")?;
    let is_over = AtomicBool::new(false);
    t.step("three threads rename over it, one looks");
    on_threads(t, |t, thread| {
        if thread == 0 {
            while !is_over.load(Ordering::Relaxed) {
                holds("it is there", t.exists("target")?, "it is missing")?;
            }
            return Ok(());
        }
        let outcome = (0..150).try_for_each(|index| -> Outcome {
            let name = format!("new-{thread}-{index}");
            t.put(&name, &name)?;
            Ok(t.rename(&name, "target")?)
        });
        if thread == 1 {
            is_over.store(true, Ordering::Relaxed);
        }
        outcome
    })?;
    equal("names", t.names(".")?, vec!["target".to_owned()])?;
    equal("links", t.stat("target")?.nlink, 1)
}

fn mkdir_storm(t: &Case<'_>) -> Outcome {
    t.step("200 rounds each");
    on_threads(t, |t, _| {
        for _ in 0..200 {
            match t.mkdir("d") {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            match t.rmdir("d") {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    })?;
    equal("names", t.names(".")?.len(), 0)
}

fn link_storm(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("links come and go");
    on_threads(t, |t, thread| {
        for index in 0..100 {
            t.link("f", format!("l{thread}-{index}"))?;
            if index % 2 == 0 {
                t.unlink(format!("l{thread}-{index}"))?;
            }
        }
        Ok(())
    })?;
    equal("links", t.stat("f")?.nlink, 1 + 4 * 50)?;
    equal("names", t.names(".")?.len(), 1 + 4 * 50)
}

fn tree(t: &Case<'_>) -> Outcome {
    t.step("10 times 10 directories of 10 files");
    for outer in 0..10 {
        t.mkdir(format!("{outer}"))?;
        for inner in 0..10 {
            t.mkdir(format!("{outer}/{inner}"))?;
            for leaf in 0..10 {
                t.put(format!("{outer}/{inner}/{leaf}"), format!("{outer}{inner}{leaf}"))?;
            }
        }
    }
    t.step("walked and removed from the leaves");
    let mut files = 0;
    for outer in t.names(".")? {
        for inner in t.names(&outer)? {
            for leaf in t.names(format!("{outer}/{inner}"))? {
                let path = format!("{outer}/{inner}/{leaf}");
                same_data("data", &t.get(&path)?, format!("{outer}{inner}{leaf}").as_bytes())?;
                t.unlink(&path)?;
                files += 1;
            }
            t.rmdir(format!("{outer}/{inner}"))?;
        }
        t.rmdir(&outer)?;
    }
    equal("files", files, 1000)?;
    equal("names", t.names(".")?.len(), 0)
}

fn churn(t: &Case<'_>) -> Outcome {
    t.create("f")?;
    t.step("2000 rounds");
    for round in 0..2000u32 {
        t.open("f", OFlags::WRONLY)?.write_at(round.to_le_bytes(), 0)?;
    }
    same_data("data", &t.get("f")?, &1999u32.to_le_bytes())
}

fn atomic_replace(t: &Case<'_>) -> Outcome {
    t.put("f", [b'0'; 5000])?;
    let is_over = AtomicBool::new(false);
    t.step("one thread replaces, the others read");
    on_threads(t, |t, thread| {
        if thread == 0 {
            let outcome = (0..200u32).try_for_each(|round| -> Outcome {
                t.put("new", [b'0' + (round % 10) as u8; 5000])?;
                Ok(t.rename("new", "f")?)
            });
            is_over.store(true, Ordering::Relaxed);
            return outcome;
        }
        while !is_over.load(Ordering::Relaxed) {
            let data = t.get("f")?;
            equal("size", data.len(), 5000)?;
            holds("all of one kind", data.iter().all(|byte| *byte == data[0]), data[0])?;
        }
        Ok(())
    })
}
