//! What the kernel does with mapped files. The host checks `table` afterwards.

use alloc::{format, string::String, vec, vec::Vec};

use transom_guest::{
    Errno,
    dax::{entry::Order, fault::HOST_PAGE_LEN},
    fs::{File, Fs, OpenOptions},
};

use super::{Holes, Mapping, Sharing, page};
use crate::bare::{
    platform::{Bare, PAGE_LEN, PAGE_SIZE},
    scenario::{self, Step, StepError, expect},
};

const PAGE: usize = PAGE_LEN as usize;
const HUGE: usize = 2 << 20;
/// Pages of 2 MiB.
const PER_HUGE: usize = HUGE / PAGE;
/// More than twice the window of the test.
const TABLE_LEN: usize = 20 << 20;
/// Random accesses.
const ACCESSES: usize = 1000;

/// Runs all steps on a share with a window.
pub(in crate::bare) fn run(fs: &Fs<Bare>) -> Result<(), StepError> {
    let steps: [(&str, Step); 7] = [
        ("map with large entries", large),
        ("map with small entries", small),
        ("flush what was stored", flush),
        ("private copies", private),
        ("truncate a mapped file", truncate),
        ("holes are zeros", holes),
        ("the window is smaller than the file", random),
    ];
    scenario::run_steps(fs, &steps)
}

/// Returns the bytes of `table` in the beginning.
fn table_bytes() -> Vec<u8> {
    (0..TABLE_LEN).map(byte_at).collect()
}

fn byte_at(offset: usize) -> u8 {
    (offset ^ (offset >> 8) ^ ((offset >> 12) * 7)) as u8
}

fn open(fs: &Fs<Bare>, path: &str) -> Result<File<Bare>, Errno> {
    fs.open(path, &OpenOptions::new().read(true).write(true))
}

fn check(mapping: &Mapping, offset: usize, wanted: &[u8]) -> Result<(), Errno> {
    let mut bytes = vec![0; wanted.len()];
    mapping.load(offset, &mut bytes)?;
    expect(bytes == wanted)
}

/// One fault and one entry for 2 MiB; at the end of the file, one for each page of which the host has all.
fn large(fs: &Fs<Bare>) -> Result<String, Errno> {
    let bytes = table_bytes();
    let file = fs.create("table")?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    file.close()?;

    let file = open(fs, "table")?;
    let mapping = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Huge)?;
    check(&mapping, 0, &bytes)?;
    let faults = mapping.take_served();
    expect(faults == (TABLE_LEN / HUGE) as u64)?;
    expect(mapping.entry(TABLE_LEN - 1).is_some_and(|entry| entry.order == Order::Huge))?;

    let input = fs.open_read("input")?;
    let len = input.metadata()?.len() as usize;
    let mut read = vec![0; len.next_multiple_of(PAGE)];
    expect(input.read_at(0, &mut read)? == len)?;
    let end = Mapping::new(&input, len, Sharing::Shared, Order::Huge)?;
    // The host has memory up to the end of its own last page.
    let whole = len.next_multiple_of(HOST_PAGE_LEN as usize) / PAGE * PAGE;
    check(&end, 0, &read[..whole])?;
    // The last 2 MiB are not all within the file.
    let pages = (whole - HUGE) / PAGE;
    expect(end.take_served() == 1 + pages as u64)?;
    expect(end.load(whole, &mut [0]) == Err(Errno::FAULT))?;
    if whole < read.len() {
        let private = Mapping::new(&input, len, Sharing::Private, Order::Huge)?;
        check(&private, whole - 1, &read[whole - 1..])?;
        expect(private.entry(whole).is_some_and(|entry| entry.is_copy))?;
    }
    let part = if whole < read.len() { ", and a copy of one of which the host has a part" } else { "" };
    Ok(format!("{faults} faults for {} MiB, and {pages} pages at the end of a file{part}", TABLE_LEN >> 20))
}

fn small(fs: &Fs<Bare>) -> Result<String, Errno> {
    let file = open(fs, "table")?;
    let mapping = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Small)?;
    let wanted: Vec<u8> = (HUGE - PAGE..HUGE + 2 * PAGE).map(byte_at).collect();
    check(&mapping, HUGE - PAGE, &wanted)?;
    expect(mapping.take_served() == 3)?;
    expect(mapping.entry(HUGE).is_some_and(|entry| entry.order == Order::Small && !entry.is_writable))?;
    expect(mapping.entry(HUGE + 2 * PAGE).is_none())?;
    // A store needs a right that the load did not ask for.
    mapping.store(HUGE, b"small")?;
    let mut read = [0; 5];
    expect(file.read_at(HUGE as u64, &mut read)? == 5 && &read == b"small")?;
    mapping.store(HUGE, &wanted[PAGE..PAGE + 5])?;
    expect(mapping.take_served() == 1)?;
    Ok(String::from("each page faults once for loads, and once for stores"))
}

/// A store marks its entry; a flush finds it, and takes the right to store away.
fn flush(fs: &Fs<Bare>) -> Result<String, Errno> {
    let file = open(fs, "table")?;
    let mapping = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Small)?;
    // The step before has stored there, and its mapping is gone.
    expect(mapping.sync()? == [Order::Small.pages(PER_HUGE as u64, PAGE_SIZE)])?;
    let stored = [5, PER_HUGE + 7];
    for _ in 0..2 {
        for page in stored {
            let at = page * PAGE;
            mapping.store(at, &[byte_at(at)])?;
            let entry = mapping.entry(at).ok_or(Errno::IO)?;
            expect(entry.is_writable && entry.is_dirty)?;
        }
        // In the second round, because the flush has taken the right away, and the processor knows. There may be more
        // faults: a range that was not used for a second can lose its place.
        expect(mapping.take_served() >= 2)?;
        expect(mapping.sync()? == stored.map(|page| Order::Small.pages(page as u64, PAGE_SIZE)))?;
        expect(mapping.sync()?.is_empty())?;
        expect(mapping.entry(5 * PAGE).is_none_or(|entry| !entry.is_writable && !entry.is_dirty))?;
    }
    let huge = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Huge)?;
    // Not the first page: an entry of 2 MiB may be several, of which only the one stored through is marked.
    let stored = 4 * HUGE + 3 * PAGE;
    huge.store(stored, &[byte_at(stored)])?;
    expect(huge.entry(4 * HUGE).is_some_and(|entry| entry.order == Order::Huge && entry.is_dirty))?;
    expect(huge.sync()? == [Order::Huge.pages(4 * PER_HUGE as u64, PAGE_SIZE)])?;
    expect(huge.entry(4 * HUGE).is_some_and(|entry| !entry.is_writable && !entry.is_dirty))?;
    Ok(String::from("what was stored to, once each"))
}

fn private(fs: &Fs<Bare>) -> Result<String, Errno> {
    let file = open(fs, "table")?;
    let shared = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Huge)?;
    let private = Mapping::new(&file, TABLE_LEN, Sharing::Private, Order::Huge)?;
    let before = [0, 1, 2].map(|at| byte_at(PAGE + at));
    check(&private, PAGE, &before)?;
    private.store(PAGE + 1, b"x")?;
    check(&private, PAGE, &[before[0], b'x', before[2]])?;
    check(&shared, PAGE, &before)?;
    expect(private.entry(PAGE).is_some_and(|entry| entry.is_copy))?;
    // What is not copied shows the stores of others.
    shared.store(2 * PAGE, b"seen")?;
    check(&private, 2 * PAGE, b"seen")?;
    let back: Vec<u8> = (2 * PAGE..2 * PAGE + 4).map(byte_at).collect();
    shared.store(2 * PAGE, &back)?;
    // A copy stays when the range goes, and goes when the file is cut.
    drop(shared);
    check(&private, PAGE, &[before[0], b'x', before[2]])?;
    Ok(String::from("seen by nobody else"))
}

fn truncate(fs: &Fs<Bare>) -> Result<String, Errno> {
    let file = fs.open("cut", &OpenOptions::new().read(true).write(true).create_new(true))?;
    file.write_all(&vec![7; 2 * HUGE])?;
    let mapping = Mapping::new(&file, 2 * HUGE, Sharing::Shared, Order::Huge)?;
    let private = Mapping::new(&file, 2 * HUGE, Sharing::Private, Order::Huge)?;
    mapping.store(HUGE, b"gone")?;
    private.store(HUGE, b"gone too")?;
    check(&mapping, 0, &[7; 9])?;
    file.set_len(PAGE as u64)?;
    expect(mapping.load(HUGE, &mut [0]) == Err(Errno::FAULT))?;
    expect(mapping.store(PAGE, b"x") == Err(Errno::FAULT))?;
    expect(private.load(HUGE, &mut [0]) == Err(Errno::FAULT))?;
    check(&mapping, 0, &[7; PAGE])?;
    expect(mapping.sync()?.iter().all(|pages| pages.end <= 1))?;
    file.set_len(2 * HUGE as u64)?;
    check(&mapping, HUGE, &[0; 9])?;
    check(&private, HUGE, &[0; 9])?;
    drop((mapping, private));
    file.close()?;
    fs.remove_file("cut")?;
    Ok(String::from("what is cut off is gone, and grows again as zeros"))
}

/// A load in a hole maps zeros that all holes share, 2 MiB by one entry, and takes nothing of the window. A store to a
/// page splits the entry, or replaces it.
fn holes(fs: &Fs<Bare>) -> Result<String, Errno> {
    const RANGES: usize = 8;
    let file = fs.open("holes", &OpenOptions::new().read(true).write(true).create_new(true))?;
    file.set_len((RANGES * HUGE) as u64)?;
    let map = |sharing, order| Mapping::with_holes(&file, RANGES * HUGE, sharing, order, Holes::Zeros);
    let (huge, small) = (map(Sharing::Shared, Order::Huge)?, map(Sharing::Shared, Order::Small)?);
    let private = map(Sharing::Private, Order::Huge)?;
    let mapped = || fs.volume().window().map_or(0, |window| window.counts().mapped);
    let before = mapped();
    let physical = |mapping: &Mapping, at: usize| mapping.entry(at).map(|entry| (entry.order, entry.physical as usize));
    let zeros = page::zeros().ok_or(Errno::NOMEM)?;
    for range in 0..RANGES {
        check(&huge, range * HUGE, &vec![0; HUGE])?;
        expect(physical(&huge, range * HUGE) == Some((Order::Huge, zeros)))?;
    }
    expect(huge.take_served() == RANGES as u64 && mapped() == before)?;
    // The entry is split for the page that is stored to: the mapping with large entries loses it, and maps each page
    // for itself from then on.
    small.store(3 * PAGE, b"split")?;
    expect(mapped() == before + 1)?;
    expect(physical(&huge, 0).is_none() && small.entry(3 * PAGE).is_some_and(|entry| entry.is_writable))?;
    check(&huge, 3 * PAGE, b"split\0")?;
    check(&huge, 2 * PAGE, &[0; PAGE])?;
    expect(huge.entry(3 * PAGE).is_some_and(|entry| entry.order == Order::Small))?;
    // A store by a large entry replaces that of zeros.
    huge.store(HUGE, b"replaced")?;
    expect(physical(&huge, HUGE).is_some_and(|(order, at)| order == Order::Huge && at != zeros))?;
    check(&small, HUGE, b"replaced\0")?;
    // A private copy of zeros is of this mapping only, and fills no hole.
    private.store(2 * HUGE + PAGE, b"own")?;
    check(&huge, 2 * HUGE, &vec![0; HUGE])?;
    check(&private, 2 * HUGE + PAGE, b"own\0")?;
    expect(mapped() == before + 2)?;
    let stored = huge.sync()?;
    expect(stored == [3..4, PER_HUGE as u64..2 * PER_HUGE as u64])?;
    let mut read = vec![1; RANGES * HUGE];
    expect(file.read_at(0, &mut read)? == read.len())?;
    let mut wanted = vec![0; RANGES * HUGE];
    wanted[3 * PAGE..3 * PAGE + 5].copy_from_slice(b"split");
    wanted[HUGE..HUGE + 8].copy_from_slice(b"replaced");
    expect(read == wanted)?;
    drop((huge, small, private));
    file.close()?;
    fs.remove_file("holes")?;
    Ok(format!("{RANGES} entries of 2 MiB for none of the window, one of them split"))
}

/// Random loads and stores through two mappings of the file, compared with memory.
fn random(fs: &Fs<Bare>) -> Result<String, Errno> {
    let file = open(fs, "table")?;
    let huge = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Huge)?;
    let small = Mapping::new(&file, TABLE_LEN, Sharing::Shared, Order::Small)?;
    let mut model = table_bytes();
    let mut seed = 19u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for access in 0..ACCESSES {
        let len = 1 + next(300);
        let at = next(TABLE_LEN - len);
        let mapping = if next(2) == 0 { &huge } else { &small };
        if next(3) == 0 {
            let bytes = vec![access as u8; len];
            mapping.store(at, &bytes)?;
            model[at..at + len].copy_from_slice(&bytes);
        }
        check(mapping, at, &model[at..at + len])?;
    }
    let mut read = vec![0; TABLE_LEN];
    expect(file.read_at(0, &mut read)? == TABLE_LEN && read == model)?;
    // The host checks this.
    model = (0..TABLE_LEN).map(|at| !byte_at(at)).collect();
    huge.store(0, &model)?;
    check(&small, 0, &model)?;
    huge.sync()?;
    Ok(format!("{ACCESSES} accesses, {} and {} faults", huge.take_served(), small.take_served()))
}
