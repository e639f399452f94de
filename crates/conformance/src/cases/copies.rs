//! Copies within the file system: `copy_file_range`.

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("copies/across-files-byte-for-byte", across),
    case("copies/within-a-file-without-overlap", within),
    case("copies/overlap-within-a-file-is-einval", overlap),
    case("copies/stop-at-the-source's-end-and-beyond-it-copy-nothing", end),
    case("copies/beyond-the-target's-end-leave-zeros-between", beyond_target),
    case("copies/across-holes-read-as-zeros", holes),
    case("copies/wrong-handles-are-refused", errors),
    case("copies/move-the-target's-mtime-and-not-the-source's", times),
    case("copies/follow-what-was-just-written", fresh),
];

fn data() -> Vec<u8> {
    (0..100_000u32).map(|index| (index * 7 % 253) as u8).collect()
}

/// Copies all of `len`, as many calls as it takes.
fn copy_all(
    from: &crate::fs::File<'_>,
    offset: u64,
    to: &crate::fs::File<'_>,
    to_offset: u64,
    len: usize,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < len {
        let step = from.copy_range(offset + done as u64, to, to_offset + done as u64, len - done)?;
        if step == 0 {
            break;
        }
        done += step;
    }
    Ok(done)
}

fn across(t: &Case<'_>) -> Outcome {
    t.put("a", data())?;
    let (from, to) = (t.open("a", OFlags::RDONLY)?, t.create("b")?);
    t.step("all of it, then an odd part");
    equal("copied", copy_all(&from, 0, &to, 0, 100_000)?, 100_000)?;
    same_data("all", &t.get("b")?, &data())?;
    equal("copied", copy_all(&from, 123, &to, 50_001, 7777)?, 7777)?;
    let mut model = data();
    model[50_001..57_778].copy_from_slice(&data()[123..7900]);
    same_data("a part", &t.get("b")?, &model)
}

fn within(t: &Case<'_>) -> Outcome {
    t.put("a", data())?;
    let file = t.open("a", OFlags::RDWR)?;
    t.step("from the start to the end, and beyond it");
    equal("copied", copy_all(&file, 0, &file, 100_000, 10_000)?, 10_000)?;
    same_data("data", &t.get("a")?, &[&data()[..], &data()[..10_000]].concat())
}

fn overlap(t: &Case<'_>) -> Outcome {
    t.put("a", data())?;
    let file = t.open("a", OFlags::RDWR)?;
    t.step("forwards, backwards, onto itself");
    refused(file.copy_range(0, &file, 1000, 5000), Errno::INVAL)?;
    refused(file.copy_range(1000, &file, 0, 5000), Errno::INVAL)?;
    refused(file.copy_range(0, &file, 0, 5000), Errno::INVAL)?;
    same_data("data", &t.get("a")?, &data())
}

fn end(t: &Case<'_>) -> Outcome {
    t.put("a", "0123456789")?;
    let (from, to) = (t.open("a", OFlags::RDONLY)?, t.create("b")?);
    t.step("across the end, at it, beyond it");
    equal("across", copy_all(&from, 4, &to, 0, 100)?, 6)?;
    same_data("data", &t.get("b")?, b"456789")?;
    equal("at", from.copy_range(10, &to, 0, 100)?, 0)?;
    equal("beyond", from.copy_range(1 << 40, &to, 0, 100)?, 0)?;
    equal("nothing", from.copy_range(0, &to, 0, 0)?, 0)?;
    same_data("data", &t.get("b")?, b"456789")
}

fn beyond_target(t: &Case<'_>) -> Outcome {
    t.put("a", "data")?;
    let (from, to) = (t.open("a", OFlags::RDONLY)?, t.create("b")?);
    t.step("to offset 10");
    equal("copied", copy_all(&from, 0, &to, 10, 4)?, 4)?;
    same_data("data", &t.get("b")?, b"\0\0\0\0\0\0\0\0\0\0data")
}

fn holes(t: &Case<'_>) -> Outcome {
    let from = t.create("a")?;
    from.write_at("start", 0)?;
    from.write_at("end", 1 << 20)?;
    let to = t.create("b")?;
    t.step("a file that is mostly a hole");
    equal("copied", copy_all(&from, 0, &to, 0, 2 << 20)?, (1 << 20) + 3)?;
    same_data("data", &t.get("b")?, &t.get("a")?)
}

fn errors(t: &Case<'_>) -> Outcome {
    t.put("a", "data")?;
    t.put("b", "")?;
    let (a, b) = (t.open("a", OFlags::RDONLY)?, t.open("b", OFlags::RDONLY)?);
    let directory = t.open(".", OFlags::RDONLY)?;
    t.step("a target for reading, a source for writing, one that appends, a directory");
    refused(a.copy_range(0, &b, 0, 4), Errno::BADF)?;
    refused(t.open("a", OFlags::WRONLY)?.copy_range(0, &t.open("b", OFlags::WRONLY)?, 0, 4), Errno::BADF)?;
    refused(a.copy_range(0, &t.open("b", OFlags::WRONLY | OFlags::APPEND)?, 0, 4), Errno::BADF)?;
    refused(directory.copy_range(0, &t.open("b", OFlags::WRONLY)?, 0, 4), Errno::ISDIR)?;
    equal("size", t.stat("b")?.size, 0)
}

fn times(t: &Case<'_>) -> Outcome {
    t.put("a", "data")?;
    t.put("b", "")?;
    let before = (t.stat("a")?, t.stat("b")?);
    t.wait_past(before.1.ctime)?;
    t.step("a copy");
    let (from, to) = (t.open("a", OFlags::RDONLY)?, t.open("b", OFlags::WRONLY)?);
    equal("copied", copy_all(&from, 0, &to, 0, 4)?, 4)?;
    let after = (t.stat("a")?, t.stat("b")?);
    equal("mtime of the source", after.0.mtime, before.0.mtime)?;
    holds("times of the target", after.1.mtime > before.1.mtime && after.1.ctime > before.1.ctime, after.1)
}

fn fresh(t: &Case<'_>) -> Outcome {
    let (from, to) = (t.create("a")?, t.create("b")?);
    let reader = t.open("b", OFlags::RDONLY)?;
    t.step("write, copy, read, with nothing between");
    for round in 0..20 {
        let text = format!("round {round:04}");
        from.write_at(&text, 0)?;
        equal("copied", copy_all(&from, 0, &to, 0, 10)?, 10)?;
        same_data("data", &reader.read_at(100, 0)?, text.as_bytes())?;
    }
    Ok(())
}
