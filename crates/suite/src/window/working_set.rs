//! Uses more data than the window holds: every byte must be right, in any order, read and written. The times are only
//! reported.

use std::{fs::File, os::unix::fs::FileExt as _, path::Path, time::Instant};

use transom_conformance::tools;

use crate::{Verdict, guest::Virtual};

const MIB: u64 = 1 << 20;
const FILE: &str = "/share/file";

pub(super) fn run(machine: &Virtual, share: &Path, len: u64) -> anyhow::Result<Verdict> {
    let file = share.join("file");
    File::create(&file)?.set_len(len)?;
    tools::fill(&file, 0, len, 1)?;
    let figures = machine.inside(vec![machine.share(share, "/share")], &["working-set", &len.to_string()])?;
    tools::verify(&file, 0, len, 2)?;
    Ok(Verdict::passed(Some(figures.trim().to_owned())))
}

pub(super) fn inside(len: u64) -> anyhow::Result<()> {
    let path = Path::new(FILE);
    let file = File::options().read(true).write(true).open(path)?;
    let mut buffer = vec![0; MIB as usize];
    // A prime number of MiB apart, so that all are visited and none after its neighbour.
    let spread = (0..len / MIB).map(|number| number * 37 % (len / MIB) * MIB);
    let ordered = timed(|| (0..len).step_by(MIB as usize).try_for_each(|at| Ok(file.read_exact_at(&mut buffer, at)?)))?;
    let jumping = timed(|| spread.clone().try_for_each(|at| Ok(file.read_exact_at(&mut buffer, at)?)))?;
    let written = timed(|| spread.clone().try_for_each(|at| Ok(file.write_all_at(&vec![1; MIB as usize], at)?)))?;
    spread.clone().try_for_each(|at| tools::fill(path, at, MIB, 1))?;
    tools::verify(path, 0, len, 1)?;
    spread.clone().try_for_each(|at| tools::fill(path, at, MIB, 2))?;
    file.sync_all()?;
    let rate = |milliseconds| len / MIB * 1000 / milliseconds;
    println!(
        "{} MiB by the MiB: {} MiB/s read in order, {} MiB/s read jumping, {} MiB/s written jumping",
        len / MIB,
        rate(ordered),
        rate(jumping),
        rate(written)
    );
    Ok(())
}

/// Milliseconds, at least one.
fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<u64> {
    let begun = Instant::now();
    work()?;
    Ok(u64::try_from(begun.elapsed().as_millis())?.max(1))
}
