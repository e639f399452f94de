//! Directory streams: each entry once, while entries are added and removed, and positions that can be restored.

use std::collections::{BTreeMap, BTreeSet};

use super::prelude::*;
use crate::client::Entry;
use crate::fs::File;

pub(super) const CASES: &[Definition] = &[
    case("streams/2200-entries-come-exactly-once", large),
    case("streams/small-buffers-give-the-same-entries-as-large-ones", small_buffers),
    case("streams/a-buffer-too-small-for-one-entry-is-einval", tiny_buffer),
    case("streams/types-and-inode-numbers-agree-with-lstat", types),
    case("streams/entries-that-stay-are-told-once-while-others-are-removed", removal),
    case("streams/entries-that-stay-are-told-once-while-others-are-created", creation),
    case("streams/removing-each-entry-as-it-is-read-empties-the-directory", remove_while_reading),
    case("streams/seek-to-a-cookie-goes-on-after-that-entry", seek),
    case("streams/rewind-shows-what-was-created-since", rewind),
    case("streams/two-streams-of-one-directory-are-independent", two_streams),
    case("streams/the-end-stays-the-end", at_end),
    case("streams/of-a-file-is-enotdir", not_a_directory),
    case("streams/renamed-entries-show-one-of-their-names", renamed),
    case("streams/reading-may-move-atime-and-never-mtime", times),
];

fn fill(t: &Case<'_>, dir: &str, count: usize) -> Outcome {
    t.mkdir(dir)?;
    for index in 0..count {
        t.create(format!("{dir}/file-{index:05}"))?;
    }
    Ok(())
}

/// How often each name comes.
fn tally(entries: &[Entry]) -> BTreeMap<Vec<u8>, usize> {
    let mut tally = BTreeMap::new();
    for entry in entries {
        *tally.entry(entry.name.clone()).or_default() += 1;
    }
    tally
}

fn each_once(entries: &[Entry], count: usize) -> Outcome {
    let tally = tally(entries);
    equal("different names, '.' and '..' among them", tally.len(), count + 2)?;
    let twice: Vec<_> = tally.iter().filter(|(_, times)| **times != 1).take(3).collect();
    holds("every name once", twice.is_empty(), twice)
}

fn open<'c>(t: &Case<'c>, dir: &str) -> Result<File<'c>, Errno> {
    t.open(dir, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn large(t: &Case<'_>) -> Outcome {
    // More than twice 32 KiB of entries, so that a batch of that size has one before it and one after it.
    const COUNT: usize = 2200;
    fill(t, "d", COUNT)?;
    t.step("one pass");
    each_once(&open(t, "d")?.entries()?, COUNT)
}

fn small_buffers(t: &Case<'_>) -> Outcome {
    fill(t, "d", 300)?;
    let expected = tally(&open(t, "d")?.entries()?);
    for buf_len in [300, 1000, 5000] {
        t.step(&format!("a buffer of {buf_len} bytes"));
        let dir = open(t, "d")?;
        let mut all = Vec::new();
        loop {
            let more = dir.read_dir(buf_len)?;
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        equal("entries", tally(&all), expected.clone())?;
    }
    Ok(())
}

fn tiny_buffer(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.create(format!("d/{}", "n".repeat(200)))?;
    t.step("24 bytes hold no entry with a long name");
    let dir = open(t, "d")?;
    let mut answer = Ok(());
    for _ in 0..4 {
        answer = dir.read_dir(24).map(drop);
        if answer.is_err() {
            break;
        }
    }
    refused(answer, Errno::INVAL)
}

fn types(t: &Case<'_>) -> Outcome {
    t.step("one of each type");
    t.mkdir("d")?;
    t.create("d/file")?;
    t.mkdir("d/dir")?;
    t.symlink("file", "d/symlink")?;
    t.mknod("d/fifo", FileType::Fifo, 0o600, (0, 0))?;
    t.mknod("d/socket", FileType::Socket, 0o600, (0, 0))?;
    t.step("the stream agrees with lstat");
    for entry in t.entries("d")? {
        let name = [b"d/", entry.name.as_slice()].concat();
        let attr = t.lstat(&name)?;
        equal("inode", entry.ino, attr.ino)?;
        holds("the type", entry.kind == attr.kind() || entry.kind == FileType::Unknown, entry)?;
    }
    Ok(())
}

fn removal(t: &Case<'_>) -> Outcome {
    fill(t, "d", 600)?;
    t.step("after the first part, every second entry goes");
    let dir = open(t, "d")?;
    let mut seen = dir.read_dir(1024)?;
    for index in (0..600).step_by(2) {
        t.unlink(format!("d/file-{index:05}"))?;
    }
    seen.extend(dir.entries()?);
    t.step("those that stayed came once");
    let tally = tally(&seen);
    for index in (1..600).step_by(2) {
        equal("times", tally.get(format!("file-{index:05}").as_bytes()), Some(&1))?;
    }
    each_at_most_once(&seen)
}

fn creation(t: &Case<'_>) -> Outcome {
    fill(t, "d", 600)?;
    t.step("after the first part, as many are created");
    let dir = open(t, "d")?;
    let mut seen = dir.read_dir(1024)?;
    for index in 0..600 {
        t.create(format!("d/new-{index:05}"))?;
    }
    seen.extend(dir.entries()?);
    t.step("those that were there came once");
    let tally = tally(&seen);
    for index in 0..600 {
        equal("times", tally.get(format!("file-{index:05}").as_bytes()), Some(&1))?;
    }
    each_at_most_once(&seen)
}

fn each_at_most_once(entries: &[Entry]) -> Outcome {
    let tally = tally(entries);
    let twice: Vec<_> = tally.iter().filter(|(_, times)| **times > 1).take(3).collect();
    holds("no name twice", twice.is_empty(), twice)
}

fn remove_while_reading(t: &Case<'_>) -> Outcome {
    fill(t, "d", 1000)?;
    t.step("as `rm -r` does");
    let dir = open(t, "d")?;
    loop {
        let part = dir.read_dir(2048)?;
        if part.is_empty() {
            break;
        }
        for entry in part.iter().filter(|entry| entry.name.starts_with(b"file-")) {
            t.unlink([b"d/", entry.name.as_slice()].concat())?;
        }
    }
    equal("names left", t.names("d")?.len(), 0)?;
    Ok(t.rmdir("d")?)
}

fn seek(t: &Case<'_>) -> Outcome {
    fill(t, "d", 200)?;
    let dir = open(t, "d")?;
    let all = dir.entries()?;
    t.step("from each tenth cookie, the rest comes as before");
    for place in (0..all.len()).step_by(10) {
        dir.seek(SeekFrom::Start(all[place].cookie))?;
        let rest: Vec<_> = dir.entries()?.into_iter().map(|entry| entry.name).collect();
        let expected: Vec<_> = all[place + 1..].iter().map(|entry| entry.name.clone()).collect();
        holds("the rest after the cookie", rest == expected, (place, rest.len(), expected.len()))?;
    }
    t.step("also backwards, in another stream");
    let other = open(t, "d")?;
    other.seek(SeekFrom::Start(all[100].cookie))?;
    let next = other.read_dir(4096)?.into_iter().next().map(|entry| entry.name);
    equal("next entry", next, Some(all[101].name.clone()))
}

fn rewind(t: &Case<'_>) -> Outcome {
    fill(t, "d", 10)?;
    let dir = open(t, "d")?;
    each_once(&dir.entries()?, 10)?;
    t.step("a change, and back to the start");
    t.create("d/late")?;
    t.unlink("d/file-00003")?;
    dir.seek(SeekFrom::Start(0))?;
    let names: BTreeSet<_> = dir.entries()?.into_iter().map(|entry| entry.name).collect();
    holds("the new name is there", names.contains(b"late".as_slice()), names.len())?;
    holds("the removed one is not", !names.contains(b"file-00003".as_slice()), names.len())
}

fn two_streams(t: &Case<'_>) -> Outcome {
    fill(t, "d", 300)?;
    let (one, two) = (open(t, "d")?, open(t, "d")?);
    t.step("read in turns");
    let (mut first, mut second) = (one.read_dir(1000)?, two.read_dir(3000)?);
    first.extend(one.read_dir(2000)?);
    second.extend(two.entries()?);
    first.extend(one.entries()?);
    each_once(&first, 300)?;
    each_once(&second, 300)
}

fn at_end(t: &Case<'_>) -> Outcome {
    fill(t, "d", 3)?;
    let dir = open(t, "d")?;
    dir.entries()?;
    t.step("twice more");
    equal("entries", dir.read_dir(4096)?.len(), 0)?;
    equal("entries", dir.read_dir(4096)?.len(), 0)
}

fn not_a_directory(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    refused(t.open("f", OFlags::RDONLY)?.read_dir(4096), Errno::NOTDIR)
}

fn renamed(t: &Case<'_>) -> Outcome {
    fill(t, "d", 300)?;
    let dir = open(t, "d")?;
    let mut seen = dir.read_dir(1024)?;
    t.step("some are renamed while the stream is open");
    for index in 0..20 {
        t.rename(format!("d/file-{index:05}"), format!("d/moved-{index:05}"))?;
    }
    seen.extend(dir.entries()?);
    t.step("those that stayed came once");
    let tally = tally(&seen);
    for index in 20..300 {
        equal("times", tally.get(format!("file-{index:05}").as_bytes()), Some(&1))?;
    }
    each_at_most_once(&seen)
}

fn times(t: &Case<'_>) -> Outcome {
    fill(t, "d", 3)?;
    let long_ago = SetTime::At(Time { sec: 1_000_000_000, nsec: 0 });
    t.utimens("d", long_ago, long_ago)?;
    let before = t.stat("d")?;
    t.step("a pass over the stream");
    open(t, "d")?.entries()?;
    let after = t.stat("d")?;
    equal("mtime", after.mtime, before.mtime)?;
    equal("ctime", after.ctime, before.ctime)?;
    t.observe("atime-moves", after.atime > before.atime);
    Ok(())
}
