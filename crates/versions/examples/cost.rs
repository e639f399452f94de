//! Prints what the version table costs: a stamp, a stamp of the four inodes of a rename, and a look.
//!
//! `cargo run --release -p transom-versions --example cost`

use std::{hint::black_box, time::Instant};

use transom_versions::{AtomicU64, Keys, Writer, layout};

const TIMES: u64 = 1_000_000;

fn main() {
    let words: Box<[AtomicU64]> =
        (0..layout::len_bytes(layout::SLOTS_LOG2) / size_of::<u64>()).map(|_| AtomicU64::new(0)).collect();
    let table = Writer::format(words, layout::SLOTS_LOG2, Keys(1, 2)).expect("memory for the table");
    let stamp = |inos: &[u64]| {
        let stamp = table.next_stamp();
        for &ino in inos {
            table.raise(table.reader().slot(ino), stamp);
        }
    };
    report("stamp of one inode", |at| stamp(&[at]));
    report("stamp of the four inodes of a rename", |at| stamp(&[at, at + 1, at + 2, at + 3]));
    let now = table.reader().now();
    report("look at one inode", |at| {
        black_box(table.reader().is_valid(at, now));
    });
}

/// Prints the mean time of one call of `run`.
fn report(what: &str, run: impl Fn(u64)) {
    let begin = Instant::now();
    (0..TIMES).for_each(|at| run(black_box(at)));
    println!("{what}: {:.1} ns", begin.elapsed().as_nanos() as f64 / TIMES as f64);
}
