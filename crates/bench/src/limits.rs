//! Limits of the machine, measured in the same run: no daemon can be faster.

use std::{
    fs::{self, File},
    hint::{self, black_box},
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Instant,
};

use rustix::event::{EventfdFlags, eventfd};

use crate::{
    process::{Placement, on_core},
    report::Limit,
};

const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;
/// Larger than a core's caches, small enough for any machine.
const FILE_BYTES: usize = 64 << 20;
/// Each limit is the best of this many attempts: disturbances only make it worse.
const TRIES: u32 = 5;

/// Measures all limits. `dir` is on the shared file system.
pub fn measure(dir: &Path) -> anyhow::Result<Vec<Limit>> {
    let mut limits = Vec::new();
    for placement in [Placement::SameCore, Placement::OtherCore] {
        limits.push(Limit {
            name: format!("eventfd round trip, blocking, {}, µs", placement.as_str()),
            value: best(f64::min, || eventfd_round_trip_us(placement))?,
        });
    }
    if thread::available_parallelism()?.get() > 1 {
        // On one core, each thread would poll until its time slice ends.
        let name = format!("polled round trip, {}, µs", Placement::OtherCore.as_str());
        limits.push(Limit { name, value: best(f64::min, polled_round_trip_us)? });
    }
    for (block, name) in [(SMALL, "4 KiB"), (LARGE, "1 MiB")] {
        limits.push(Limit {
            name: format!("memcpy {name}, MiB/s"),
            value: best(f64::max, || Ok(memcpy_mib_per_s(block)))?,
        });
    }
    let path = dir.join("limit");
    fs::write(&path, vec![0x11; FILE_BYTES])?;
    let file = File::options().read(true).write(true).open(&path)?;
    for (block, name) in [(SMALL, "4 KiB"), (LARGE, "1 MiB")] {
        limits.push(Limit {
            name: format!("pread {name} of the shared file system, MiB/s"),
            value: best(f64::max, || file_mib_per_s(block, |buffer, at| file.read_exact_at(buffer, at)))?,
        });
        limits.push(Limit {
            name: format!("pwrite {name} of the shared file system, MiB/s"),
            value: best(f64::max, || file_mib_per_s(block, |buffer, at| file.write_all_at(buffer, at)))?,
        });
    }
    fs::remove_file(&path)?;
    Ok(limits)
}

fn best(better: fn(f64, f64) -> f64, mut measure: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let mut best = measure()?;
    for _ in 1..TRIES {
        best = better(best, measure()?);
    }
    Ok(best)
}

fn eventfd_round_trip_us(placement: Placement) -> anyhow::Result<f64> {
    const ROUNDS: u32 = 5000;
    let (to, back) = (eventfd(0, EventfdFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?);
    let mut count = [0; 8];
    let one = 1u64.to_ne_bytes();
    thread::scope(|scope| {
        let echo = || -> rustix::io::Result<()> {
            let mut count = [0; 8];
            for _ in 0..ROUNDS {
                rustix::io::read(&to, &mut count)?;
                rustix::io::write(&back, &one)?;
            }
            Ok(())
        };
        let other = scope.spawn(move || on_core(placement.daemon_core(), echo));
        let elapsed = on_core(placement.guest_core(), || -> rustix::io::Result<_> {
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                rustix::io::write(&to, &one)?;
                rustix::io::read(&back, &mut count)?;
            }
            Ok(begun.elapsed())
        })??;
        other.join().expect("the echo does not panic")??;
        Ok(elapsed.as_secs_f64() * 1e6 / f64::from(ROUNDS))
    })
}

/// A cache line and its neighbour, which is prefetched with it.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU32);

/// Measures two threads that poll for each other's word: two transfers of a cache line.
fn polled_round_trip_us() -> anyhow::Result<f64> {
    const ROUNDS: u32 = 20_000;
    let (to, back) = (Line::default(), Line::default());
    let wait_for = |line: &Line, round: u32| {
        while line.0.load(Ordering::Acquire) != round {
            hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        let echo = || {
            for round in 1..=ROUNDS {
                wait_for(&to, round);
                back.0.store(round, Ordering::Release);
            }
        };
        let other = scope.spawn(move || on_core(Placement::OtherCore.daemon_core(), echo));
        let elapsed = on_core(Placement::OtherCore.guest_core(), || {
            let begun = Instant::now();
            for round in 1..=ROUNDS {
                to.0.store(round, Ordering::Release);
                wait_for(&back, round);
            }
            begun.elapsed()
        })?;
        other.join().expect("the echo does not panic")?;
        Ok(elapsed.as_secs_f64() * 1e6 / f64::from(ROUNDS))
    })
}

fn memcpy_mib_per_s(block: usize) -> f64 {
    let source = vec![0x22; FILE_BYTES];
    let mut target = vec![0; block];
    let begun = Instant::now();
    for chunk in source.chunks_exact(block) {
        target.copy_from_slice(black_box(chunk));
        black_box(&mut target);
    }
    mib_per_s(begun)
}

fn file_mib_per_s(
    block: usize,
    mut transfer: impl FnMut(&mut [u8], u64) -> std::io::Result<()>,
) -> anyhow::Result<f64> {
    let mut buffer = vec![0; block];
    let begun = Instant::now();
    for at in (0..FILE_BYTES).step_by(block) {
        transfer(&mut buffer, at as u64)?;
    }
    Ok(mib_per_s(begun))
}

/// Returns the rate of processing [`FILE_BYTES`] since `begun`.
fn mib_per_s(begun: Instant) -> f64 {
    FILE_BYTES as f64 / (1 << 20) as f64 / begun.elapsed().as_secs_f64()
}
