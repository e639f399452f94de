//! Data that a guest reads through the window takes no memory of the guest: its page cache does not grow.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use anyhow::{Context as _, ensure};
use transom_conformance::tools;

use crate::{Verdict, guest::Virtual};

const FILE_LEN: u64 = 64 << 20;
/// What a guest's page cache grows by without a file's data: programs, directories.
const NOISE_LEN: u64 = FILE_LEN / 8;

pub(super) fn run(machine: &Virtual, share: &Path) -> anyhow::Result<Verdict> {
    let file = share.join("file");
    File::create(&file)?.set_len(FILE_LEN)?;
    tools::fill(&file, 0, FILE_LEN, 1)?;
    let shares = vec![machine.share(share, "/share"), machine.plain_share(share, "/plain")];
    Ok(Verdict::passed(Some(machine.inside(shares, &["one-copy"])?.trim().to_owned())))
}

pub(super) fn inside() -> anyhow::Result<()> {
    let mapped = grown_by_reading(Path::new("/share/file"))?;
    let copied = grown_by_reading(Path::new("/plain/file"))?;
    ensure!(mapped < NOISE_LEN, "the page cache grew by {mapped} bytes while {FILE_LEN} were read through the window");
    ensure!(copied > FILE_LEN - NOISE_LEN, "without a window it grew by {copied} bytes only: this test sees nothing");
    println!("page cache of the guest, after {FILE_LEN} bytes: {mapped} with the window, {copied} without");
    Ok(())
}

/// Reads a file, by calls and through a mapping; returns the growth of the page cache, bytes.
fn grown_by_reading(path: &Path) -> anyhow::Result<u64> {
    let before = cached()?;
    let mut buffer = vec![0; 1 << 20];
    let mut file = File::open(path)?;
    while file.read(&mut buffer)? > 0 {}
    tools::verify(path, 0, FILE_LEN, 1)?;
    Ok(cached()?.saturating_sub(before))
}

/// Bytes of the page cache.
fn cached() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:")).context("no page cache in /proc/meminfo")?;
    let number: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(number << 10)
}
