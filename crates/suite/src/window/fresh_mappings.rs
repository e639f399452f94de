//! Reads right after the window was mapped for them. If a front end acknowledges a mapping before the guest sees it,
//! and the daemon does not wait for more, such a read finds the earlier contents: zeros, or another file. The guest
//! sees the reply early if it polls the ring for other replies at that moment, because another thread sends requests.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use anyhow::ensure;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory as _};

use crate::{Verdict, guest::Virtual};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;
/// Several times the window, so that most reads need a mapping.
const FILE_LEN: u64 = 128 * MIB;
const THREADS: u64 = 2;

/// Without the barrier there has to be a wrong read, or the test could not have failed.
pub(super) fn run(machine: &Virtual, share: &Path, reads: u64, has_barrier: bool) -> anyhow::Result<Verdict> {
    let file = File::create(share.join("file"))?;
    for offset in (0..FILE_LEN).step_by(MIB as usize) {
        let words = (offset..offset + MIB).step_by(8).flat_map(|position| word_at(position).to_le_bytes());
        file.write_all_at(&words.collect::<Vec<_>>(), offset)?;
    }
    let text = machine.inside(vec![machine.share(share, "/share")], &["fresh-mappings", &reads.to_string()])?;
    let text = text.trim();
    let is_right = text.is_empty();
    ensure!(is_right || !has_barrier, "{text}");
    ensure!(!is_right || has_barrier, "none of {reads} reads was wrong without the barrier");
    Ok(Verdict::passed(Some(if is_right { format!("{reads} reads of a MiB were right") } else { text.to_owned() })))
}

/// Prints nothing, or what was wrong, which ends the reading.
pub(super) fn inside(reads: u64) -> anyhow::Result<()> {
    let is_over = AtomicBool::new(false);
    let results: Vec<anyhow::Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let is_over = &is_over;
                scope.spawn(move || read(number, reads / THREADS, is_over))
            })
            .collect();
        // An answer that came by interrupt alone would come after the mapping: the front end's thread does both.
        let stirrer = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let _ = std::fs::metadata("/share/file");
            }
        });
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
            .collect();
        is_over.store(true, Relaxed);
        drop(stirrer.join());
        results
    });
    results.into_iter().collect()
}

/// Reads a word of each page of so many MiB, through a mapping: a read call would spend its time on copying.
fn read(seed: u64, times: u64, is_over: &AtomicBool) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).open("/share/file")?;
    let mapping: MmapRegion = MmapRegion::from_file(FileOffset::new(file, 0), FILE_LEN as usize)?;
    let mut state = seed + 1;
    for number in 0..times {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 33) % (FILE_LEN / MIB) * MIB;
        for position in (offset..offset + MIB).step_by(PAGE) {
            let word: &AtomicU64 = mapping.get_atomic_ref(position as usize)?;
            let (found, expected) = (word.load(Relaxed), word_at(position));
            if found != expected {
                is_over.store(true, Relaxed);
                println!("read {number} of thread {seed}: at {position} is {found:#x} and should be {expected:#x}");
                return Ok(());
            }
        }
        if is_over.load(Relaxed) {
            return Ok(());
        }
    }
    Ok(())
}

/// The file's content: every word differs from all others and from zero.
fn word_at(position: u64) -> u64 {
    position | 1 << 63
}
