//! Two guests, each with its own daemon, and the host: one file, three shared mappings.
//!
//! All add to the same number at the same time, and no addition may be lost. Then each stores its own data and must
//! find the others' data where they stored it.

use std::{path::Path, thread, time::Duration};

use anyhow::{Context as _, ensure};
use transom_conformance::tools;

use crate::{Verdict, guest::Virtual};

const PARTIES: u64 = 3;
/// Additions by each.
const TIMES: u64 = 200_000;
/// Bytes that each stores: more than a range, and not at its border.
const DATA_LEN: u64 = 3_000_001;
/// Where the numbers lie: who has come, who has counted, who has stored, who has found all; and the sum.
const COME: u64 = 0;
const COUNTED: u64 = 8;
const STORED: u64 = 16;
const FOUND: u64 = 24;
const SUM: u64 = 4096;
/// The others may still be booting.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn run(machine: &Virtual, share: &Path) -> anyhow::Result<Verdict> {
    let file = share.join("file");
    std::fs::File::create(&file)?.set_len(data_of(PARTIES))?;
    let guest =
        |number: &'static str| move || machine.inside(vec![machine.share(share, "/share")], &["coherence", number]);
    let (first, second, host) = thread::scope(|scope| {
        let guests = (scope.spawn(guest("1")), scope.spawn(guest("2")));
        let host = take_part(&file, 0);
        (guests.0.join(), guests.1.join(), host)
    });
    host.context("the host")?;
    first.map_err(|_| anyhow::anyhow!("a thread panicked"))?.context("the first guest")?;
    second.map_err(|_| anyhow::anyhow!("a thread panicked"))?.context("the second guest")?;
    let sum = tools::watch(&file, SUM, 0, Duration::ZERO)?;
    ensure!(sum == PARTIES * TIMES, "{PARTIES} parties added {TIMES} times each, and the sum is {sum}");
    (0..PARTIES).try_for_each(|party| tools::verify(&file, data_of(party), DATA_LEN, party + 1))?;
    Ok(Verdict::passed(None))
}

pub(super) fn inside(number: u64) -> anyhow::Result<()> {
    take_part(Path::new("/share/file"), number)
}

fn take_part(file: &Path, number: u64) -> anyhow::Result<()> {
    together(file, COME)?;
    tools::count(file, SUM, TIMES)?;
    together(file, COUNTED)?;
    tools::fill(file, data_of(number), DATA_LEN, number + 1)?;
    together(file, STORED)?;
    for other in 0..PARTIES {
        tools::verify(file, data_of(other), DATA_LEN, other + 1)
            .with_context(|| format!("what party {other} stored"))?;
    }
    together(file, FOUND)
}

/// Waits until every party is there.
fn together(file: &Path, offset: u64) -> anyhow::Result<()> {
    tools::count(file, offset, 1)?;
    tools::watch(file, offset, PARTIES, PATIENCE).map(drop)
}

/// Where a party's data begins.
fn data_of(party: u64) -> u64 {
    8192 + party * DATA_LEN
}
