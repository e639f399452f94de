//! Reading and writing: offsets, the end of the file, append, several handles, direct transfers.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::ReadWriteFlags;

use super::prelude::*;
use crate::syscalls::child::{self, Ending};

pub(super) const CASES: &[Definition] = &[
    case("data/what-is-written-is-read-at-any-alignment", alignments),
    case("data/reads-stop-at-the-end-and-beyond-it-give-nothing", end_of_file),
    case("data/a-write-beyond-the-end-leaves-zeros-between", gap),
    case("data/transfers-of-no-bytes-succeed-and-change-nothing", zero_length),
    case("data/the-offset-moves-by-what-was-transferred", offset),
    case("data/seek-from-start-current-and-end", seek),
    case("data/seek-before-the-start-is-einval", seek_errors),
    case("data/two-handles-see-each-other's-writes-at-once", two_handles),
    case("data/append-writes-at-the-end-whatever-the-offset", append),
    case("data/two-appending-handles-never-overwrite", two_appenders),
    case("data/append-grows-after-another-handle-truncates", append_after_truncate),
    case("data/vectors-scatter-and-gather", vectors),
    case("data/append-flag-of-a-single-write", append_flag),
    case("data/a-large-transfer-of-several-megabytes-is-whole", large),
    case("data/direct-transfers-agree-with-buffered-ones", direct),
    case("data/synchronous-handles-write-as-others-do", synchronous),
    case("data/fsync-fdatasync-and-syncfs-succeed-on-each-kind-of-handle", sync),
    case("data/a-child-shares-the-offset-of-its-parent", shared_offset),
    case("data/a-duplicate-through-proc-has-its-own-offset-and-mode", proc_reopen),
    case("data/another-process-reads-what-was-just-written", other_process),
    case("data/the-largest-offset-is-kept-to", largest_offset),
];

/// Bytes that differ from place to place.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| ((index + seed) * 31 % 251) as u8).collect()
}

fn alignments(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    let mut model = Vec::new();
    t.step("writes at odd places, the whole compared after each");
    for (offset, len) in [(0, 1), (1, 4095), (4095, 2), (4000, 10_000), (3, 8190), (65_535, 65_537), (4096, 4096)] {
        let data = pattern(len, offset);
        file.write_all_at(&data, offset as u64)?;
        model.resize(model.len().max(offset + len), 0);
        model[offset..offset + len].copy_from_slice(&data);
        same_data("through the handle", &file.read_all()?, &model)?;
    }
    t.step("read at odd places, through a new handle");
    let reader = t.open("f", OFlags::RDONLY)?;
    for (offset, len) in [(0, 1), (1, 1), (4095, 2), (4097, 9999), (65_000, 1000), (131_000, 72)] {
        same_data("part", &reader.read_at(len, offset as u64)?, &model[offset..offset + len])?;
    }
    equal("size", reader.stat()?.size, model.len() as u64)
}

fn end_of_file(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    let file = t.open("f", OFlags::RDONLY)?;
    t.step("across the end, at it, beyond it, far beyond it");
    same_data("across", &file.read_at(100, 4)?, b"456789")?;
    same_data("at", &file.read_at(100, 10)?, b"")?;
    same_data("beyond", &file.read_at(100, 11)?, b"")?;
    same_data("far beyond", &file.read_at(100, 1 << 40)?, b"")?;
    t.step("of an empty file");
    t.put("empty", "")?;
    same_data("empty", &t.get("empty")?, b"")
}

fn gap(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    file.write_at("start", 0)?;
    t.step("a write 10,000 bytes further on");
    file.write_at("end", 10_000)?;
    let mut model = b"start".to_vec();
    model.resize(10_000, 0);
    model.extend(b"end");
    same_data("data", &file.read_all()?, &model)?;
    equal("size", file.stat()?.size, 10_003)
}

fn zero_length(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDWR)?;
    t.step("read and write nothing, also beyond the end");
    equal("read", file.read_at(0, 0)?.len(), 0)?;
    equal("written", file.write_at("", 0)?, 0)?;
    equal("written", file.write_at("", 100)?, 0)?;
    equal("size", file.stat()?.size, 4)
}

fn offset(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("writes");
    equal("written", file.write("hello ")?, 6)?;
    equal("written", file.write("world")?, 5)?;
    equal("offset", file.seek(SeekFrom::Current(0))?, 11)?;
    t.step("reads; those at a place leave the offset");
    file.seek(SeekFrom::Start(0))?;
    same_data("first", &file.read(6)?, b"hello ")?;
    same_data("at a place", &file.read_at(4, 1)?, b"ello")?;
    same_data("second", &file.read(100)?, b"world")?;
    same_data("at the end", &file.read(100)?, b"")
}

fn seek(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    let file = t.open("f", OFlags::RDWR)?;
    t.step("to places within and beyond");
    equal("start", file.seek(SeekFrom::Start(3))?, 3)?;
    equal("current", file.seek(SeekFrom::Current(4))?, 7)?;
    equal("back", file.seek(SeekFrom::Current(-7))?, 0)?;
    equal("end", file.seek(SeekFrom::End(0))?, 10)?;
    equal("before the end", file.seek(SeekFrom::End(-4))?, 6)?;
    equal("beyond the end", file.seek(SeekFrom::End(100))?, 110)?;
    t.step("the end is where another handle has moved it");
    t.open("f", OFlags::WRONLY)?.write_at("x", 1000)?;
    equal("end", file.seek(SeekFrom::End(0))?, 1001)
}

fn seek_errors(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    let file = t.open("f", OFlags::RDONLY)?;
    file.seek(SeekFrom::Start(5))?;
    t.step("before the start");
    refused(file.seek(SeekFrom::Current(-6)), Errno::INVAL)?;
    refused(file.seek(SeekFrom::End(-11)), Errno::INVAL)?;
    equal("offset", file.seek(SeekFrom::Current(0))?, 5)
}

fn two_handles(t: &Case<'_>) -> Outcome {
    let writer = t.create("f")?;
    let reader = t.open("f", OFlags::RDONLY)?;
    t.step("write by one, read by the other");
    for round in 0..20u64 {
        let data = pattern(3000, round as usize);
        writer.write_all_at(&data, round * 1000)?;
        same_data("data", &reader.read_at(3000, round * 1000)?, &data)?;
        equal("size", reader.stat()?.size, round * 1000 + 3000)?;
    }
    Ok(())
}

fn append(t: &Case<'_>) -> Outcome {
    t.put("f", "start")?;
    let file = t.open("f", OFlags::RDWR | OFlags::APPEND)?;
    t.step("the offset is elsewhere");
    file.seek(SeekFrom::Start(0))?;
    file.write(" more")?;
    equal("offset", file.seek(SeekFrom::Current(0))?, 10)?;
    t.step("Linux appends with pwrite too");
    file.write_at(" and more", 0)?;
    same_data("data", &t.get("f")?, b"start more and more")
}

fn two_appenders(t: &Case<'_>) -> Outcome {
    t.create("f")?;
    let flags = OFlags::WRONLY | OFlags::APPEND;
    let (one, two) = (t.open("f", flags)?, t.open("f", flags)?);
    t.step("in turns");
    for _ in 0..50 {
        one.write("1")?;
        two.write("22")?;
    }
    same_data("data", &t.get("f")?, "122".repeat(50).as_bytes())
}

fn append_after_truncate(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    let appender = t.open("f", OFlags::WRONLY | OFlags::APPEND)?;
    appender.write("a")?;
    t.step("truncated by another handle, then by another process");
    t.truncate("f", 3)?;
    appender.write("b")?;
    same_data("data", &t.get("f")?, b"012b")?;
    t.other_process(|t| Ok(t.truncate("f", 1)?))?;
    appender.write("c")?;
    same_data("data", &t.get("f")?, b"0c")
}

fn vectors(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    let fd = file.descriptor()?;
    t.step("three parts, one of them empty");
    let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two three")];
    equal("written", rustix::io::pwritev(fd, &parts, 2)?, 12)?;
    let (mut a, mut b, mut c) = ([0; 4], [0; 6], [0; 100]);
    let read = {
        let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        rustix::io::preadv(fd, &mut parts, 0)?
    };
    equal("read", read, 14)?;
    same_data("data", &[&a[..], &b[..], &c[..4]].concat(), b"\0\0onetwo three")
}

fn append_flag(t: &Case<'_>) -> Outcome {
    t.put("f", "start")?;
    let file = t.open("f", OFlags::RDWR)?;
    t.step("pwritev2 with RWF_APPEND");
    let data = [IoSlice::new(b"+end")];
    let result = rustix::io::pwritev2(file.descriptor()?, &data, 0, ReadWriteFlags::APPEND);
    t.observe_result("append", &result);
    if result.is_ok() {
        same_data("data", &t.get("f")?, b"start+end")?;
    }
    Ok(())
}

fn large(t: &Case<'_>) -> Outcome {
    let data = pattern(5 << 20, 3);
    let file = t.create("f")?;
    t.step("five MiB in one call, as far as it goes");
    file.write_all_at(&data, 1)?;
    file.sync()?;
    equal("size", file.stat()?.size, (5 << 20) + 1)?;
    same_data("data", &t.open("f", OFlags::RDONLY)?.read_all()?[1..], &data)
}

fn direct(t: &Case<'_>) -> Outcome {
    t.put("f", pattern(16_384, 0))?;
    t.step("a handle for direct transfers");
    let file = t.open("f", OFlags::RDWR | OFlags::DIRECT);
    t.observe_result("open", &file.as_ref().map(drop).map_err(|errno| *errno));
    let Ok(file) = file else { return Ok(()) };
    let mut memory = vec![0u8; 3 * 4096];
    let shift = memory.as_ptr().align_offset(4096);
    let aligned = &mut memory[shift..shift + 8192];
    let read = rustix::io::pread(file.descriptor()?, &mut *aligned, 4096)?;
    equal("read", read, 8192)?;
    same_data("what buffered writes left", aligned, &pattern(16_384, 0)[4096..12_288])?;
    t.step("a direct write is seen by a buffered handle");
    let reader = t.open("f", OFlags::RDONLY)?;
    same_data("before", &reader.read_at(4, 8192)?, &pattern(16_384, 0)[8192..8196])?;
    aligned.fill(b'D');
    equal("written", rustix::io::pwrite(file.descriptor()?, aligned, 4096)?, 8192)?;
    same_data("after", &reader.read_at(8192, 4096)?, &[b'D'; 8192])?;
    equal("size", reader.stat()?.size, 16_384)
}

fn synchronous(t: &Case<'_>) -> Outcome {
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        t.step(name);
        let file = t.open(name, OFlags::RDWR | OFlags::CREATE | flag)?;
        file.write_all_at(pattern(10_000, 1), 5)?;
        same_data("data", &t.get(name)?[5..], &pattern(10_000, 1))?;
    }
    Ok(())
}

fn sync(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("read-only, write-only, both, after the unlink");
    for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let file = t.open("f", flags)?;
        file.sync()?;
        file.sync_data()?;
        file.sync_fs()?;
    }
    let file = t.open("f", OFlags::RDWR)?;
    t.unlink("f")?;
    file.write_at("y", 0)?;
    file.sync()?;
    Ok(file.sync_data()?)
}

fn shared_offset(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    let file = t.open("f", OFlags::RDONLY)?;
    let fd = file.descriptor()?;
    same_data("parent", &file.read(2)?, b"01")?;
    t.step("a child reads three bytes");
    equal("child", child::read_inherited(fd, 3), Ending::Exit(3))?;
    same_data("parent", &file.read(2)?, b"56")
}

fn proc_reopen(t: &Case<'_>) -> Outcome {
    use std::os::fd::AsRawFd;
    t.put("f", "0123456789")?;
    let file = t.open("f", OFlags::RDONLY)?;
    let path = format!("/proc/thread-self/fd/{}", file.descriptor()?.as_raw_fd());
    file.read(5)?;
    t.step("opened for writing through /proc, also after the name is gone");
    t.unlink("f")?;
    let again = match t.open(&path, OFlags::RDWR) {
        Err(Errno::NOENT) if !t.exists("/proc/thread-self")? => return Err(Stop::skip("/proc is not mounted")),
        other => other?,
    };
    again.write("AB")?;
    same_data("its own offset", &again.read(3)?, b"234")?;
    same_data("the first one's", &file.read(3)?, b"567")?;
    same_data("data", &file.read_at(4, 0)?, b"AB23")
}

fn other_process(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("write here, read there, in turns");
    for round in 0..10 {
        file.write_at(format!("round {round}"), 0)?;
        let there = t.other_process(|t| Ok(t.get("f")?))?;
        same_data("there", &there, format!("round {round}").as_bytes())?;
        t.other_process(|t| Ok(t.open("f", OFlags::WRONLY)?.write_at("R", 0).map(drop)?))?;
        same_data("here", &file.read_at(1, 0)?, b"R")?;
    }
    Ok(())
}

fn largest_offset(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("at the largest offset of all there is no room for a byte");
    refused_any(file.write_at("x", i64::MAX as u64), &[Errno::FBIG, Errno::INVAL])?;
    refused(file.truncate(u64::MAX), Errno::INVAL)?;
    refused(file.read_at(1, u64::MAX), Errno::INVAL)?;
    equal("size", file.stat()?.size, 0)
}
