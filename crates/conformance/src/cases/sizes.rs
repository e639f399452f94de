//! The size of a file and its blocks: truncate, holes, fallocate.

use super::prelude::*;
use crate::client::FallocateFlags;
use crate::fs::File;

pub(super) const CASES: &[Definition] = &[
    case("sizes/truncate-down-cuts-and-up-fills-with-zeros", truncate),
    case("sizes/truncate-within-a-page-leaves-no-old-bytes", truncate_page),
    case("sizes/truncate-refuses-directories-missing-names-and-symlinks-to-nothing", truncate_errors),
    case("sizes/truncate-of-a-fifo-is-einval", truncate_special),
    case("sizes/another-handle-sees-a-truncation-at-once", truncate_other_handle),
    case("sizes/a-file-of-6-gib-with-data-at-both-ends", sparse),
    case("sizes/a-file-of-a-tebibyte-is-a-hole", tebibyte),
    case("holes/data-and-holes-are-found-by-seek", seek_data),
    case("holes/seek-beyond-the-end-is-enxio", seek_data_end),
    case("holes/blocks-count-what-is-allocated", blocks),
    case("fallocate/plain-grows-with-zeros-and-keeps-data", allocate),
    case("fallocate/keep-size-allocates-beyond-the-end", keep_size),
    case("fallocate/punch-hole-reads-as-zeros-and-keeps-the-size", punch),
    case("fallocate/zero-range-zeroes-and-grows-unless-kept", zero_range),
    case("fallocate/collapse-takes-a-range-out", collapse),
    case("fallocate/insert-puts-a-hole-in", insert),
    case("fallocate/wrong-arguments-are-refused", errors),
    case("fallocate/moves-mtime-and-ctime", times),
];

const BLOCK: u64 = 4096;
/// Large enough that every file system allocates and frees in smaller units.
const CHUNK: u64 = 65_536;

fn truncate(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    t.step("down, up, by name and by handle");
    t.truncate("f", 4)?;
    same_data("down", &t.get("f")?, b"0123")?;
    t.truncate("f", 8)?;
    same_data("up", &t.get("f")?, b"0123\0\0\0\0")?;
    let file = t.open("f", OFlags::RDWR)?;
    file.truncate(2)?;
    file.truncate(5)?;
    same_data("by handle", &file.read_all()?, b"01\0\0\0")?;
    t.step("to what it is");
    file.truncate(5)?;
    equal("size", t.stat("f")?.size, 5)
}

fn truncate_page(t: &Case<'_>) -> Outcome {
    t.put("f", vec![b'x'; 10_000])?;
    let file = t.open("f", OFlags::RDWR)?;
    for (down, up) in [(5000, 10_000), (4096, 8192), (4095, 4097), (1, 5000)] {
        t.step(&format!("down to {down} and up to {up}"));
        file.truncate(down)?;
        file.truncate(up)?;
        let data = t.get("f")?;
        equal("size", data.len() as u64, up)?;
        holds("zeros behind the cut", data[down as usize..].iter().all(|byte| *byte == 0), down)?;
        holds("data before it", data[..down as usize].iter().all(|byte| *byte == b'x'), down)?;
    }
    Ok(())
}

fn truncate_errors(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.symlink("nowhere", "l")?;
    t.step("each with its error");
    refused(t.truncate("d", 0), Errno::ISDIR)?;
    refused(t.truncate("missing", 0), Errno::NOENT)?;
    refused(t.truncate("l", 0), Errno::NOENT)?;
    refused(t.open("d", OFlags::RDONLY)?.truncate(0), Errno::INVAL)
}

fn truncate_special(t: &Case<'_>) -> Outcome {
    t.mknod("p", FileType::Fifo, 0o600, (0, 0))?;
    refused(t.truncate("p", 0), Errno::INVAL)
}

fn truncate_other_handle(t: &Case<'_>) -> Outcome {
    t.put("f", vec![b'x'; 10_000])?;
    let reader = t.open("f", OFlags::RDONLY)?;
    equal("read", reader.read_all()?.len(), 10_000)?;
    t.step("by another process");
    t.other_process(|t| Ok(t.truncate("f", 100)?))?;
    equal("size", reader.stat()?.size, 100)?;
    equal("read", reader.read_all()?.len(), 100)
}

fn sparse(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    let far = 6u64 << 30;
    t.step("data at both ends");
    file.write_at("start", 0)?;
    file.write_at("end", far)?;
    equal("size", file.stat()?.size, far + 3)?;
    same_data("start", &file.read_at(7, 0)?, b"start\0\0")?;
    same_data("middle", &file.read_at(8, 5 << 30)?, &[0; 8])?;
    same_data("around 4 GiB", &file.read_at(8, (4 << 30) - 4)?, &[0; 8])?;
    same_data("end", &file.read_at(100, far - 2)?, b"\0\0end")?;
    holds("few blocks", file.stat()?.blocks < 4096, file.stat()?.blocks)?;
    t.step("a write across 4 GiB");
    file.write_at("across the line", (4 << 30) - 7)?;
    same_data("there", &t.open("f", OFlags::RDONLY)?.read_at(15, (4 << 30) - 7)?, b"across the line")
}

fn tebibyte(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("grown by truncate");
    file.truncate(1 << 40)?;
    equal("size", t.stat("f")?.size, 1 << 40)?;
    holds("few blocks", file.stat()?.blocks < 1024, file.stat()?.blocks)?;
    same_data("its last bytes", &file.read_at(100, (1 << 40) - 10)?, &[0; 10])?;
    equal("end", file.seek(SeekFrom::End(0))?, 1 << 40)
}

fn seek_data(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("data at 1 MiB and at 3 MiB, 4 MiB in all");
    let mib = 1u64 << 20;
    file.write_all_at(vec![1; CHUNK as usize], mib)?;
    file.write_all_at(vec![2; CHUNK as usize], 3 * mib)?;
    file.truncate(4 * mib)?;
    file.sync()?;
    let first = file.seek(SeekFrom::Data(0))?;
    t.observe("first-data", first);
    if first == 0 {
        t.observe("holes", "none");
        return equal("hole", file.seek(SeekFrom::Hole(0))?, 4 * mib);
    }
    holds("data does not begin late", first <= mib, first)?;
    equal("a hole at the start", file.seek(SeekFrom::Hole(0))?, 0)?;
    let hole = file.seek(SeekFrom::Hole(mib))?;
    holds("the hole after the data", hole >= mib + CHUNK && hole < 3 * mib, hole)?;
    let second = file.seek(SeekFrom::Data(hole))?;
    holds("the second data", second > hole && second <= 3 * mib, second)?;
    equal("within data, data is here", file.seek(SeekFrom::Data(mib + 10))?, mib + 10)?;
    refused(file.seek(SeekFrom::Data(3 * mib + 2 * CHUNK)), Errno::NXIO)
}

fn seek_data_end(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDONLY)?;
    t.step("the end is a hole");
    equal("hole", file.seek(SeekFrom::Hole(0))?, 4)?;
    refused(file.seek(SeekFrom::Data(4)), Errno::NXIO)?;
    refused(file.seek(SeekFrom::Hole(4)), Errno::NXIO)?;
    refused(file.seek(SeekFrom::Data(1 << 40)), Errno::NXIO)?;
    t.step("an empty file");
    let empty = t.create("empty")?;
    refused(empty.seek(SeekFrom::Data(0)), Errno::NXIO)?;
    refused(empty.seek(SeekFrom::Hole(0)), Errno::NXIO)
}

fn blocks(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("a hole");
    file.truncate(10 << 20)?;
    file.sync()?;
    let hole = file.stat()?.blocks;
    holds("nearly none", hole <= 16, hole)?;
    t.step("a MiB of data in it");
    file.write_all_at(vec![1; 1 << 20], 1 << 20)?;
    file.sync()?;
    let full = file.stat()?.blocks;
    holds("a MiB of blocks", (2048..4096).contains(&full), full)?;
    t.step("cut away");
    file.truncate(0)?;
    file.sync()?;
    holds("nearly none", file.stat()?.blocks <= 16, file.stat()?.blocks)
}

/// A file of three chunks: a, b, c; and what it holds.
fn chunks<'c>(t: &Case<'c>) -> Result<(File<'c>, Vec<u8>), Errno> {
    let data = [vec![b'a'; CHUNK as usize], vec![b'b'; CHUNK as usize], vec![b'c'; CHUNK as usize]].concat();
    let file = t.create("f")?;
    file.write_all_at(&data, 0)?;
    file.sync()?;
    Ok((file, data))
}

/// Runs fallocate and records whether the file system has the mode.
fn try_mode(t: &Case<'_>, file: &File<'_>, mode: FallocateFlags, offset: u64, len: u64) -> Result<bool, Stop> {
    let result = file.fallocate(mode, offset, len);
    t.observe_result("mode", &result);
    match result {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn allocate(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDWR)?;
    t.step("a MiB");
    if !try_mode(t, &file, FallocateFlags::empty(), 0, 1 << 20)? {
        return equal("size", file.stat()?.size, 4);
    }
    equal("size", t.stat("f")?.size, 1 << 20)?;
    holds("blocks", file.stat()?.blocks >= 2048, file.stat()?.blocks)?;
    let data = t.get("f")?;
    same_data("data", &data[..4], b"data")?;
    holds("zeros", data[4..].iter().all(|byte| *byte == 0), data.len())?;
    t.step("a part of it: nothing changes");
    file.fallocate(FallocateFlags::empty(), 100, 100)?;
    equal("size", t.stat("f")?.size, 1 << 20)
}

fn keep_size(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDWR)?;
    t.step("a MiB beyond the end");
    if try_mode(t, &file, FallocateFlags::KEEP_SIZE, 0, 1 << 20)? {
        holds("blocks", file.stat()?.blocks >= 2048, file.stat()?.blocks)?;
    }
    equal("size", t.stat("f")?.size, 4)?;
    same_data("data", &t.get("f")?, b"data")
}

fn punch(t: &Case<'_>) -> Outcome {
    let (file, mut data) = chunks(t)?;
    let before = file.stat()?.blocks;
    t.step("the middle");
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if !try_mode(t, &file, mode, CHUNK, CHUNK)? {
        return Ok(());
    }
    data[CHUNK as usize..2 * CHUNK as usize].fill(0);
    same_data("data", &file.read_all()?, &data)?;
    holds("fewer blocks", file.stat()?.blocks < before, file.stat()?.blocks)?;
    t.step("an odd range, through another handle's eyes");
    let reader = t.open("f", OFlags::RDONLY)?;
    reader.read_all()?;
    file.fallocate(mode, 100, 5000)?;
    data[100..5100].fill(0);
    same_data("data", &reader.read_all()?, &data)?;
    t.step("beyond the end");
    file.fallocate(mode, 10 * CHUNK, CHUNK)?;
    equal("size", file.stat()?.size, 3 * CHUNK)?;
    refused_any(file.fallocate(FallocateFlags::PUNCH_HOLE, 0, 1), &[Errno::OPNOTSUPP, Errno::INVAL])
}

fn zero_range(t: &Case<'_>) -> Outcome {
    let (file, mut data) = chunks(t)?;
    t.step("an odd range");
    if !try_mode(t, &file, FallocateFlags::ZERO_RANGE, 1000, 70_000)? {
        return same_data("data", &file.read_all()?, &data);
    }
    data[1000..71_000].fill(0);
    same_data("data", &file.read_all()?, &data)?;
    t.step("across the end, keeping the size, then growing");
    let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    file.fallocate(mode, 3 * CHUNK - 10, CHUNK)?;
    equal("size", file.stat()?.size, 3 * CHUNK)?;
    file.fallocate(FallocateFlags::ZERO_RANGE, 3 * CHUNK - 10, CHUNK)?;
    equal("size", file.stat()?.size, 4 * CHUNK - 10)
}

fn collapse(t: &Case<'_>) -> Outcome {
    let (file, data) = chunks(t)?;
    t.step("the middle");
    if !try_mode(t, &file, FallocateFlags::COLLAPSE_RANGE, CHUNK, CHUNK)? {
        return same_data("data", &file.read_all()?, &data);
    }
    let rest = [&data[..CHUNK as usize], &data[2 * CHUNK as usize..]].concat();
    same_data("data", &t.get("f")?, &rest)?;
    equal("size", file.stat()?.size, 2 * CHUNK)?;
    t.step("up to the end, and at an odd place");
    refused(file.fallocate(FallocateFlags::COLLAPSE_RANGE, CHUNK, CHUNK), Errno::INVAL)?;
    refused(file.fallocate(FallocateFlags::COLLAPSE_RANGE, 100, BLOCK), Errno::INVAL)
}

fn insert(t: &Case<'_>) -> Outcome {
    let (file, data) = chunks(t)?;
    t.step("after the first chunk");
    if !try_mode(t, &file, FallocateFlags::INSERT_RANGE, CHUNK, CHUNK)? {
        return same_data("data", &file.read_all()?, &data);
    }
    let grown = [&data[..CHUNK as usize], &vec![0; CHUNK as usize], &data[CHUNK as usize..]].concat();
    same_data("data", &t.get("f")?, &grown)?;
    equal("size", file.stat()?.size, 4 * CHUNK)?;
    t.step("at the end");
    refused(file.fallocate(FallocateFlags::INSERT_RANGE, 4 * CHUNK, CHUNK), Errno::INVAL)
}

fn errors(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDWR)?;
    t.step("no length, a handle for reading, a length beyond all");
    refused(file.fallocate(FallocateFlags::empty(), 0, 0), Errno::INVAL)?;
    let reader = t.open("f", OFlags::RDONLY)?;
    refused(reader.fallocate(FallocateFlags::empty(), 0, 10), Errno::BADF)?;
    refused(file.fallocate(FallocateFlags::empty(), i64::MAX as u64 - 5, 100), Errno::FBIG)?;
    t.step("a bit that nobody knows, a directory");
    refused(file.fallocate(FallocateFlags::from_bits_retain(1 << 20), 0, 10), Errno::OPNOTSUPP)?;
    let directory = t.open(".", OFlags::RDONLY)?;
    refused_any(directory.fallocate(FallocateFlags::empty(), 0, 10), &[Errno::BADF, Errno::ISDIR])?;
    equal("size", file.stat()?.size, 4)
}

fn times(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDWR)?;
    let before = file.stat()?;
    t.wait_past(before.ctime)?;
    t.step("growing by fallocate");
    if try_mode(t, &file, FallocateFlags::empty(), 0, 100_000)? {
        let after = t.stat("f")?;
        t.observe("mtime-moves", after.mtime > before.mtime);
        holds("ctime moves", after.ctime > before.ctime, after)?;
    }
    Ok(())
}
