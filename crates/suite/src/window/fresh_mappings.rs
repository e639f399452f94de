//! Reads right after the window was mapped for them. Where a front end acknowledges a mapping before the guest sees it,
//! and the daemon does not wait for more than that, such a read finds what was there before: zeros, or another file.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use anyhow::ensure;

use crate::{Verdict, guest::Machine};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;
/// Several times the window, so that most reads need a mapping.
const FILE_LEN: u64 = 128 * MIB;
const THREADS: u64 = 2;

/// Without the barrier there have to be wrong reads, or the test could not have failed.
pub(super) fn run(machine: &Machine, share: &Path, reads: u64, has_barrier: bool) -> anyhow::Result<Verdict> {
    let file = File::create(share.join("file"))?;
    for offset in (0..FILE_LEN).step_by(MIB as usize) {
        let words = (offset..offset + MIB).step_by(8).flat_map(|position| word_at(position).to_le_bytes());
        file.write_all_at(&words.collect::<Vec<_>>(), offset)?;
    }
    let text = machine.inside(vec![machine.share(share, "/share")], &["fresh-mappings", &reads.to_string()])?;
    let wrong: u64 = text.trim().parse()?;
    ensure!(wrong == 0 || !has_barrier, "{wrong} of {reads} reads were wrong");
    ensure!(wrong > 0 || has_barrier, "none of {reads} reads was wrong without the barrier");
    Ok(Verdict::passed(Some(format!("{wrong} of {reads} reads of a MiB were wrong"))))
}

pub(super) fn inside(reads: u64) -> anyhow::Result<()> {
    let wrong = AtomicU64::new(0);
    let results: Vec<anyhow::Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let wrong = &wrong;
                    move || read(number, reads / THREADS, wrong)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"))).collect()
    });
    results.into_iter().collect::<anyhow::Result<()>>()?;
    println!("{}", wrong.load(Relaxed));
    Ok(())
}

fn read(seed: u64, times: u64, wrong: &AtomicU64) -> anyhow::Result<()> {
    let file = File::open("/share/file")?;
    let mut buffer = vec![0; MIB as usize];
    let mut state = seed + 1;
    for _ in 0..times {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (state >> 33) % (FILE_LEN / MIB) * MIB;
        file.read_exact_at(&mut buffer, offset)?;
        let is_right = (0..buffer.len()).step_by(PAGE).all(|at| {
            let word: Option<&[u8; 8]> = buffer[at..].first_chunk();
            word.is_some_and(|word| u64::from_le_bytes(*word) == word_at(offset + at as u64))
        });
        wrong.fetch_add(u64::from(!is_right), Relaxed);
    }
    Ok(())
}

/// The file's content: every word differs from all others and from zero.
fn word_at(position: u64) -> u64 {
    position | 1 << 63
}
