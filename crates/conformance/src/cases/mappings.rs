//! Files mapped into memory.

use super::prelude::*;
use crate::client::{MapMode, Mapping};
use crate::fs::File;

pub(super) const CASES: &[Definition] = &[
    case("mappings/private-reads-the-file-and-its-stores-stay-private", private),
    case("mappings/shared-store-is-read-by-every-handle", shared_store),
    case("mappings/shared-load-sees-a-write", shared_load),
    case("mappings/two-shared-mappings-are-one-memory", two_mappings),
    case("mappings/another-process-sees-stores-at-once", other_process),
    case("mappings/zeros-behind-the-end-in-the-last-page", last_page),
    case("mappings/touching-a-page-behind-the-end-is-a-bus-error", behind_the_end),
    case("mappings/truncation-takes-pages-away-and-growth-gives-zeros", truncation),
    case("mappings/a-file-that-grows-is-seen-through-the-old-mapping", growth),
    case("mappings/stores-never-grow-the-file", no_growth),
    case("mappings/msync-and-unmap-leave-the-data-in-the-file", durable),
    case("mappings/a-load-moves-no-mtime-and-a-store-may", times),
    case("mappings/need-a-handle-of-their-kind", needs_mode),
    case("mappings/of-a-hole-read-as-zeros-and-take-stores", hole),
    case("mappings/at-an-offset-beyond-4-gib", far),
    case("mappings/of-16-mib-agree-with-reads-at-random-places", random),
];

const PRIVATE: MapMode = MapMode { is_writable: true, is_shared: false };
const SHARED: MapMode = MapMode { is_writable: true, is_shared: true };
const PAGE: usize = 4096;

fn map(file: &File<'_>, offset: u64, len: usize, mode: MapMode) -> Result<Box<dyn Mapping>, Stop> {
    match file.map(offset, len, mode) {
        Err(Errno::NODEV | Errno::NOSYS) => Err(Stop::skip("no such mappings on this file system")),
        other => Ok(other?),
    }
}

fn loaded(mapping: &dyn Mapping, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mapping.load(offset, &mut bytes);
    bytes
}

/// A file of pages, each filled with its letter.
fn pages<'c>(t: &Case<'c>, letters: &[u8]) -> Result<File<'c>, Errno> {
    let file = t.create("f")?;
    let data: Vec<u8> = letters.iter().flat_map(|letter| [*letter; PAGE]).collect();
    file.write_all_at(data, 0)?;
    Ok(file)
}

fn private(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"ab")?;
    let mapping = map(&file, 0, 2 * PAGE, PRIVATE)?;
    t.step("it shows the file");
    same_data("loaded", &loaded(&*mapping, PAGE - 2, 4), b"aabb")?;
    t.step("a store stays here");
    mapping.store(PAGE, b"private");
    same_data("loaded", &loaded(&*mapping, PAGE, 8), b"privateb")?;
    same_data("in the file", &file.read_at(8, PAGE as u64)?, b"bbbbbbbb")
}

fn shared_store(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"ab")?;
    let reader = t.open("f", OFlags::RDONLY)?;
    reader.read_all()?;
    let mapping = map(&file, 0, 2 * PAGE, SHARED)?;
    t.step("a store across the pages");
    mapping.store(PAGE - 3, b"shared");
    same_data("by its own handle", &file.read_at(8, PAGE as u64 - 4)?, b"asharedb")?;
    same_data("by another", &reader.read_at(8, PAGE as u64 - 4)?, b"asharedb")
}

fn shared_load(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"ab")?;
    let mapping = map(&file, 0, 2 * PAGE, SHARED)?;
    same_data("before", &loaded(&*mapping, 10, 3), b"aaa")?;
    t.step("a write by another handle");
    for round in 0..20 {
        let text = format!("{round:03}");
        t.open("f", OFlags::WRONLY)?.write_at(&text, 10)?;
        same_data("loaded", &loaded(&*mapping, 10, 3), text.as_bytes())?;
    }
    Ok(())
}

fn two_mappings(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"abc")?;
    let one = map(&file, 0, 3 * PAGE, SHARED)?;
    let two = map(&t.open("f", OFlags::RDWR)?, PAGE as u64, PAGE, SHARED)?;
    t.step("store in one, load in the other, both ways");
    one.store(PAGE + 5, b"one");
    same_data("in two", &loaded(&*two, 4, 5), b"boneb")?;
    two.store(PAGE - 3, b"two");
    same_data("in one", &loaded(&*one, 2 * PAGE - 4, 5), b"btwoc")
}

fn other_process(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"a")?;
    let mapping = map(&file, 0, PAGE, SHARED)?;
    t.step("in turns");
    for round in 0..10 {
        let text = format!("round {round}");
        mapping.store(0, text.as_bytes());
        let there = t.other_process(|t| Ok(t.open("f", OFlags::RDONLY)?.read_at(text.len(), 0)?))?;
        same_data("there", &there, text.as_bytes())?;
        t.other_process(|t| {
            let theirs = map(&t.open("f", OFlags::RDWR)?, 0, PAGE, SHARED)?;
            theirs.store(100, b"from there");
            Ok(())
        })?;
        same_data("here", &loaded(&*mapping, 100, 10), b"from there")?;
        mapping.store(100, b"----------");
    }
    Ok(())
}

fn last_page(t: &Case<'_>) -> Outcome {
    t.put("f", "short")?;
    let file = t.open("f", OFlags::RDWR)?;
    let mapping = map(&file, 0, PAGE, SHARED)?;
    t.step("zeros");
    same_data("loaded", &loaded(&*mapping, 3, 5), b"rt\0\0\0")?;
    holds("zeros to the end of the page", loaded(&*mapping, 5, PAGE - 5).iter().all(|byte| *byte == 0), "other bytes")
}

fn behind_the_end(t: &Case<'_>) -> Outcome {
    t.put("f", "short")?;
    let file = t.open("f", OFlags::RDWR)?;
    let mapping = map(&file, 0, 2 * PAGE, SHARED)?;
    t.step("the first page is there, the second is not");
    equal("first", mapping.is_bus_error(0), false)?;
    equal("second", mapping.is_bus_error(PAGE), true)
}

fn truncation(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"abcd")?;
    let mapping = map(&file, 0, 4 * PAGE, SHARED)?;
    same_data("before", &loaded(&*mapping, 3 * PAGE, 2), b"dd")?;
    t.step("down to one page and a half");
    file.truncate(PAGE as u64 * 3 / 2)?;
    equal("page 1", mapping.is_bus_error(PAGE), false)?;
    equal("page 2", mapping.is_bus_error(2 * PAGE), true)?;
    same_data("behind the cut", &loaded(&*mapping, PAGE * 3 / 2 - 2, 4), b"bb\0\0")?;
    t.step("up again, by another handle");
    t.truncate("f", 4 * PAGE as u64)?;
    equal("page 3", mapping.is_bus_error(3 * PAGE), false)?;
    same_data("grown", &loaded(&*mapping, 3 * PAGE, 2), b"\0\0")?;
    same_data("kept", &loaded(&*mapping, PAGE, 2), b"bb")
}

fn growth(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"a")?;
    let mapping = map(&file, 0, 4 * PAGE, SHARED)?;
    equal("page 2 before", mapping.is_bus_error(2 * PAGE), true)?;
    t.step("a write grows the file");
    file.write_all_at([b'z'; PAGE], 2 * PAGE as u64)?;
    same_data("new", &loaded(&*mapping, 2 * PAGE, 2), b"zz")?;
    same_data("between", &loaded(&*mapping, PAGE, 2), b"\0\0")
}

fn no_growth(t: &Case<'_>) -> Outcome {
    t.put("f", "short")?;
    let file = t.open("f", OFlags::RDWR)?;
    let mapping = map(&file, 0, PAGE, SHARED)?;
    t.step("stores past the end");
    mapping.store(3, b"longer than before");
    mapping.sync()?;
    drop(mapping);
    file.sync()?;
    equal("size", file.stat()?.size, 5)?;
    same_data("data", &t.get("f")?, b"sholo")?;
    t.step("growth: zeros, or on some file systems what was stored there");
    file.truncate(20)?;
    let data = t.get("f")?;
    same_data("data before the old end", &data[..5], b"sholo")?;
    t.observe("zeros-behind-the-old-end", data[5..].iter().all(|byte| *byte == 0));
    equal("size", data.len(), 20)
}

fn durable(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"ab")?;
    let mapping = map(&file, 0, 2 * PAGE, SHARED)?;
    mapping.store(0, b"first");
    t.step("msync");
    mapping.sync()?;
    mapping.store(PAGE, b"second");
    t.step("unmap and close, without msync");
    drop(mapping);
    file.close()?;
    let data = t.get("f")?;
    same_data("first", &data[..6], b"firsta")?;
    same_data("second", &data[PAGE..PAGE + 7], b"secondb")
}

fn times(t: &Case<'_>) -> Outcome {
    let file = pages(t, b"a")?;
    file.sync()?;
    let before = file.stat()?;
    t.wait_past(before.ctime)?;
    let mapping = map(&file, 0, PAGE, SHARED)?;
    t.step("mapped and loaded: nothing moves");
    loaded(&*mapping, 0, 10);
    equal("mtime", file.stat()?.mtime, before.mtime)?;
    t.step("stored and synced");
    mapping.store(0, b"x");
    mapping.sync()?;
    let after = t.stat("f")?;
    t.observe("mtime-moves", after.mtime > before.mtime);
    t.observe("ctime-moves", after.ctime > before.ctime);
    Ok(())
}

fn needs_mode(t: &Case<'_>) -> Outcome {
    drop(pages(t, b"a")?);
    let (reader, writer) = (t.open("f", OFlags::RDONLY)?, t.open("f", OFlags::WRONLY)?);
    t.step("for reading: no shared writing, but private writing");
    refused(reader.map(0, PAGE, SHARED).map(drop), Errno::ACCESS)?;
    map(&reader, 0, PAGE, PRIVATE)?.store(0, b"x");
    map(&reader, 0, PAGE, MapMode { is_writable: false, is_shared: true })?;
    t.step("for writing alone: none");
    refused(writer.map(0, PAGE, SHARED).map(drop), Errno::ACCESS)?;
    refused(reader.map(1, PAGE, PRIVATE).map(drop), Errno::INVAL)
}

fn hole(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    file.truncate(64 * PAGE as u64)?;
    let mapping = map(&file, 0, 64 * PAGE, SHARED)?;
    t.step("zeros, then a store in the middle");
    same_data("loaded", &loaded(&*mapping, 32 * PAGE, 4), &[0; 4])?;
    mapping.store(32 * PAGE, b"data");
    same_data("in the file", &file.read_at(6, 32 * PAGE as u64 - 1)?, b"\0data\0")?;
    mapping.sync()?;
    equal("size", file.stat()?.size, 64 * PAGE as u64)
}

fn far(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    let far = 5u64 << 30;
    file.write_at("far", far)?;
    t.step("a page there");
    let mapping = map(&file, far, PAGE, SHARED)?;
    same_data("loaded", &loaded(&*mapping, 0, 4), b"far\0")?;
    mapping.store(0, b"FAR");
    same_data("in the file", &file.read_at(3, far)?, b"FAR")
}

fn random(t: &Case<'_>) -> Outcome {
    let len = 16 << 20;
    let data: Vec<u8> = (0..len as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = t.create("f")?;
    file.write_all_at(&data, 0)?;
    let mapping = map(&file, 0, len, SHARED)?;
    t.step("300 places that a generator with a fixed seed chooses");
    let mut seed = 1u64;
    for _ in 0..300 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % (len - 100);
        same_data("loaded", &loaded(&*mapping, at, 100), &data[at..at + 100])?;
        mapping.store(at, &[seed as u8; 10]);
        same_data("read", &file.read_at(10, at as u64)?, &[seed as u8; 10])?;
        file.write_at(&data[at..at + 10], at as u64)?;
    }
    Ok(())
}
