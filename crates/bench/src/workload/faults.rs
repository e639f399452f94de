//! Individual page faults, as in the histograms of the measurements of synchronous faults: the first store to each of
//! 512 pages of a shared mapping.

use std::io;

use super::{
    aligned::PAGE_BYTES,
    blocks::fill,
    map_how::MapHow,
    place::{How, Storage},
    stage::Stage,
};

pub(super) const COUNT: usize = 2;

const PAGES: usize = 512;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let path = stage.path("faults");
    let len_bytes = PAGES * PAGE_BYTES;
    fill(stage.place(), &path, len_bytes as u64)?;
    stage.measure_cold("fault_write_allocated", |place, laps| touch(place, &path, len_bytes, || laps.lap(0)))?;
    stage.place().remove_file(&path)?;
    // Only the last byte is written.
    stage.place().open(&path, How::CREATE)?.write_all_at(&[0], len_bytes as u64 - 1)?;
    stage.measure_cold("fault_write_empty", |place, laps| touch(place, &path, len_bytes, || laps.lap(0)))?;
    stage.place().remove_file(&path)
}

fn touch(place: &dyn Storage, path: &str, len_bytes: usize, mut lap: impl FnMut()) -> io::Result<()> {
    let mapping = place.map(path, len_bytes, MapHow::SHARED)?;
    for offset in (0..len_bytes).step_by(PAGE_BYTES) {
        mapping.set_byte(offset, 0x11);
        lap();
    }
    Ok(())
}
