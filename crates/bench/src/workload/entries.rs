//! Random loads and stores of 4 KiB in a mapped file, with page-table entries of 4 KiB and of 2 MiB: each page once.

use std::io;

use super::{
    aligned::{AlignedBuffer, PAGE_BYTES},
    blocks::fill,
    map_how::{Entries, MapHow},
    place::How,
    stage::Stage,
};

pub(super) const COUNT: usize = 2;

const MIB: usize = 1 << 20;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let path = stage.path("entries");
    let mib = stage.params.entries_mib as usize;
    fill(stage.place(), &path, (mib * MIB) as u64)?;
    // Work on a file's first use, such as mapping a window, must not be counted for either.
    let file = stage.place().open(&path, How::READ)?;
    let mut bytes = AlignedBuffer::new(MIB, 0);
    for offset in (0..mib).map(|at| at * MIB) {
        file.read_exact_at(bytes.bytes_mut(), offset as u64)?;
    }
    drop(file);

    let mut order: Vec<usize> = (0..mib * MIB).step_by(PAGE_BYTES).collect();
    stage.random(3).shuffle(&mut order);
    let page = &mut bytes.bytes_mut()[..PAGE_BYTES];
    for (name, entries) in
        [("mmap_randrw, 4 KiB entries", Entries::Small), ("mmap_randrw, 2 MiB entries", Entries::Huge)]
    {
        stage.measure(name, |place, laps| {
            let mapping = place.map(&path, mib * MIB, MapHow { is_shared: true, entries })?;
            for (turn, &offset) in order.iter().enumerate() {
                if turn % 2 == 0 {
                    mapping.copy_to(offset, page)
                } else {
                    mapping.copy_from(offset, page)
                }
                laps.lap(PAGE_BYTES);
            }
            Ok(())
        })?;
    }
    stage.place().remove_file(&path)
}
