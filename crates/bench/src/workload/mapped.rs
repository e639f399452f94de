//! Reads through a private mapping: how programs and libraries are loaded.

use std::{
    fs::{self, File},
    io,
};

use super::{aligned::PAGE_BYTES, blocks::fill, mapping::Mapping, stage::Stage};

pub(super) const COUNT: usize = 2;

pub(super) fn run<W: io::Write>(stage: &mut Stage<W>) -> io::Result<()> {
    let path = stage.path("mapped");
    let len_bytes = (stage.params.blocks_mib as usize) << 20;
    let pages = len_bytes / PAGE_BYTES;
    fill(&path, len_bytes as u64)?;

    let touched = pages.min(stage.params.block_ops as usize);
    let mut random = stage.random(2);
    let scattered: Vec<usize> = (0..touched).map(|_| random.usize(0..pages)).collect();
    stage.forget_all()?;
    stage.measure("mmap_read_seq_cold", |laps| {
        let mapping = Mapping::of(&File::open(&path)?, len_bytes)?;
        for page in 0..touched {
            mapping.byte(page * PAGE_BYTES);
            laps.lap(PAGE_BYTES);
        }
        Ok(())
    })?;
    stage.forget_all()?;
    stage.measure("mmap_read_rand_cold", |laps| {
        let mapping = Mapping::of(&File::open(&path)?, len_bytes)?;
        for &page in &scattered {
            mapping.byte(page * PAGE_BYTES);
            laps.lap(PAGE_BYTES);
        }
        Ok(())
    })?;
    fs::remove_file(&path)
}
