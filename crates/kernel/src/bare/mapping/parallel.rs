//! Mapped files on two processors: what one takes from the page tables, the other one must not go on to use.

use alloc::{format, string::String, sync::Arc, vec, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};

use transom_guest::{
    Errno,
    dax::{RANGE_LEN, entry::Order},
    fs::{File, Fs, OpenOptions},
    platform::Event as _,
};

use super::{Mapping, Sharing, copy};
use crate::bare::{
    jobs,
    platform::{Bare, Event, PAGE_LEN, PAGE_SIZE},
    scenario::{self, Step, StepError, expect},
};

const PAGE: usize = PAGE_LEN as usize;
const HUGE: usize = RANGE_LEN as usize;
/// Bytes read at once: more than a word, so that a page that is exchanged meanwhile can be seen.
const READ_LEN: usize = 256;
/// Length of the files: each as long as the window of the test.
const LEN: usize = 8 << 20;
const FILES: [&str; 2] = ["left", "right"];

/// Times that a mapping is replaced by another one, each of them seen by the other processor.
const REPLACEMENTS: usize = 200;
/// Random reads of each processor while they take each other's ranges.
const READS: usize = 300;
/// Times that a file is cut to one page and grows again.
const CUTS: usize = 100;
/// Flushes, each after a store of the other processor.
const FLUSHES: usize = 100;

/// Runs all steps on a share with a window.
pub(in crate::bare) fn run_on_both(fs: &Fs<Bare>) -> Result<(), StepError> {
    let steps: [(&str, Step); 6] = [
        ("prepare two files", prepare),
        ("replace a mapping that the other processor reads", replace),
        ("flush what the other processor stores", flush),
        ("take ranges that the other processor reads", reclaim),
        ("cut a file that the other processor reads", cut),
        ("remove the files", remove),
    ];
    scenario::run_steps(fs, &steps)
}

/// Returns what each byte of a page is: the file in the two upper bits, and the page in the others.
fn byte_of(file: usize, page: usize) -> u8 {
    ((file + 1) << 6 | page & 63) as u8
}

fn prepare(fs: &Fs<Bare>) -> Result<String, Errno> {
    for (number, name) in FILES.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..LEN).map(|at| byte_of(number, at / PAGE)).collect();
        let file = fs.create(name)?;
        file.write_all(&bytes)?;
        file.close()?;
    }
    Ok(format!("{} MiB each", LEN >> 20))
}

fn open(fs: &Fs<Bare>, file: usize) -> Result<File<Bare>, Errno> {
    fs.open(FILES[file], &OpenOptions::new().read(true).write(true))
}

/// Returns numbers below a limit.
fn random(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    }
}

/// Waits for the other processor to advance `step` to `wanted`.
fn await_step(step: &AtomicUsize, wanted: usize) {
    Event.wait(&mut || step.load(Ordering::SeqCst) >= wanted, None);
}

fn advance(step: &AtomicUsize) {
    step.fetch_add(1, Ordering::SeqCst);
    Event.wake_all();
}

/// One processor unmaps one file and maps the other one at the same addresses, by turns. The other processor reads
/// there all the time, and sees what is mapped while it reads.
fn replace(fs: &Fs<Bare>) -> Result<String, Errno> {
    let files = [open(fs, 0)?, open(fs, 1)?];
    // Even while a mapping is there, that of file `state / 2 % 2`.
    let state = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(AtomicUsize::new(0));
    let order_of = |number: usize| [Order::Small, Order::Huge][number / 2 % 2];
    let map = |number: usize| Mapping::new(&files[number % 2], HUGE, Sharing::Shared, order_of(number));
    let mut mapping = Some(map(0)?);
    let start = mapping.as_ref().map_or(Err(Errno::IO), |mapping| mapping.at(0, HUGE))?;
    let (their_state, their_seen) = (Arc::clone(&state), Arc::clone(&seen));
    let ours = || {
        for number in 1..=REPLACEMENTS {
            // Only then has the other processor a translation to forget.
            await_step(&seen, number);
            advance(&state);
            drop(mapping.take());
            let other = mapping.insert(map(number)?);
            expect(other.at(0, HUGE) == Ok(start))?;
            advance(&state);
        }
        Ok(())
    };
    let theirs = move || {
        let (state, seen) = (their_state, their_seen);
        let mut random = random(28);
        while state.load(Ordering::SeqCst) < 2 * REPLACEMENTS {
            // The first page each time, so that its translation is there, and another one.
            for page in [0, random(HUGE / PAGE)] {
                let before = state.load(Ordering::SeqCst);
                let mut bytes = [0; READ_LEN];
                let read = copy::load(start + page * PAGE, &mut bytes);
                if before % 2 == 1 || state.load(Ordering::SeqCst) != before {
                    continue;
                }
                read?;
                let file = before / 2 % 2;
                expect(bytes.iter().all(|&byte| byte == byte_of(file, page)))?;
                if seen.load(Ordering::SeqCst) == before / 2 {
                    advance(&seen);
                }
            }
        }
        Ok(())
    };
    jobs::on_both(ours, theirs);
    Ok(format!("{REPLACEMENTS} times, and it has seen each"))
}

/// One processor stores to a page, the other one flushes. Each flush takes the right to store, so that the next one
/// finds the next store.
fn flush(fs: &Fs<Bare>) -> Result<String, Errno> {
    const STORED: usize = 5;
    let file = open(fs, 0)?;
    let mapping = Arc::new(Mapping::new(&file, HUGE, Sharing::Shared, Order::Small)?);
    mapping.sync()?;
    let (stored, flushed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ours = {
        let (mapping, stored, flushed) = (Arc::clone(&mapping), Arc::clone(&stored), Arc::clone(&flushed));
        move || {
            for number in 1..=FLUSHES {
                await_step(&stored, number);
                expect(mapping.sync()? == [Order::Small.pages(STORED as u64, PAGE_SIZE)])?;
                advance(&flushed);
            }
            Ok(())
        }
    };
    let theirs = move || {
        for number in 0..FLUSHES {
            await_step(&flushed, number);
            mapping.store(STORED * PAGE, &[byte_of(0, STORED)])?;
            advance(&stored);
        }
        Ok(())
    };
    jobs::on_both(ours, theirs);
    Ok(format!("{FLUSHES} stores, each found"))
}

/// Each processor reads a file of its own that fills the window, so that they take each other's ranges.
fn reclaim(fs: &Fs<Bare>) -> Result<String, Errno> {
    let reader = |number: usize| -> Result<_, Errno> {
        let file = open(fs, number)?;
        let order = if number == 0 { Order::Huge } else { Order::Small };
        let mapping = Mapping::new(&file, LEN, Sharing::Shared, order)?;
        Ok(move || {
            let mut random = random(number as u64);
            let mut bytes = vec![0; READ_LEN];
            for _ in 0..READS {
                let page = random(LEN / PAGE);
                mapping.load(page * PAGE, &mut bytes)?;
                expect(bytes.iter().all(|&byte| byte == byte_of(number, page)))?;
            }
            Ok(())
        })
    };
    jobs::on_both(reader(0)?, reader(1)?);
    Ok(format!("{READS} reads each"))
}

/// One processor cuts a file, lets it grow again, and writes a page of it. The other processor reads that page, and
/// another file that takes the ranges: it sees the page, zeros, or that there is no page.
fn cut(fs: &Fs<Bare>) -> Result<String, Errno> {
    const CUT: usize = HUGE / PAGE + 3;
    let (file, other) = (open(fs, 0)?, open(fs, 1)?);
    let mapping = Mapping::new(&file, LEN, Sharing::Shared, Order::Huge)?;
    let others = Mapping::new(&other, LEN, Sharing::Shared, Order::Huge)?;
    let cuts = Arc::new(AtomicUsize::new(0));
    let theirs_cuts = Arc::clone(&cuts);
    let ours = move || {
        let page = vec![byte_of(0, CUT); PAGE];
        for _ in 0..CUTS {
            file.set_len(PAGE as u64)?;
            file.set_len(LEN as u64)?;
            expect(file.write_at((CUT * PAGE) as u64, &page)? == PAGE)?;
            advance(&cuts);
        }
        Ok(())
    };
    let theirs = move || {
        let mut random = random(19);
        let mut bytes = vec![0; READ_LEN];
        while theirs_cuts.load(Ordering::SeqCst) < CUTS {
            match mapping.load(CUT * PAGE, &mut bytes) {
                Ok(()) => expect(bytes.iter().all(|&byte| byte == byte_of(0, CUT) || byte == 0))?,
                Err(error) => expect(error == Errno::FAULT)?,
            }
            let page = random(LEN / PAGE);
            others.load(page * PAGE, &mut bytes)?;
            expect(bytes.iter().all(|&byte| byte == byte_of(1, page)))?;
        }
        mapping.load(CUT * PAGE, &mut bytes)?;
        expect(bytes.iter().all(|&byte| byte == byte_of(0, CUT)))
    };
    jobs::on_both(ours, theirs);
    Ok(format!("{CUTS} times, and it has seen nothing else"))
}

fn remove(fs: &Fs<Bare>) -> Result<String, Errno> {
    FILES.into_iter().try_for_each(|name| fs.remove_file(name))?;
    Ok(String::from("nothing is left"))
}
