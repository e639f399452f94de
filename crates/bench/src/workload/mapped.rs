//! Reads through a private mapping: how programs and libraries are loaded.

use std::io;

use super::{aligned::PAGE_BYTES, blocks::fill, map_how::MapHow, stage::Stage};

pub(super) const COUNT: usize = 2;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let path = stage.path("mapped");
    let len_bytes = (stage.params.blocks_mib as usize) << 20;
    let pages = len_bytes / PAGE_BYTES;
    fill(stage.place(), &path, len_bytes as u64)?;

    let touched = pages.min(stage.params.block_ops as usize);
    let mut random = stage.random(2);
    let scattered: Vec<usize> = (0..touched).map(|_| random.usize(0..pages)).collect();
    let sequential: Vec<usize> = (0..touched).collect();
    for (name, order) in [("mmap_read_seq_cold", sequential), ("mmap_read_rand_cold", scattered)] {
        stage.measure_cold(name, |place, laps| {
            let mapping = place.map(&path, len_bytes, MapHow::PRIVATE)?;
            for page in order {
                mapping.byte(page * PAGE_BYTES);
                laps.lap(PAGE_BYTES);
            }
            Ok(())
        })?;
    }
    stage.place().remove_file(&path)
}
