//! Small writes, each of which must be on disk before the next, as databases, mail servers and editors do.

use std::io;

use super::{place::How, stage::Stage};

pub(super) const COUNT: usize = 1;

/// Shorter than a page, like the record of a log.
const RECORD_BYTES: usize = 512;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let path = stage.path("synced");
    let ops = stage.params.synced_ops;
    stage.place().write_file(&path, &[])?;
    stage.measure("append_512_fsync", |place, laps| {
        let file = place.open(&path, How::APPEND)?;
        for number in 0..u64::from(ops) {
            file.write_all_at(&[0x77; RECORD_BYTES], number * RECORD_BYTES as u64)?;
            file.sync()?;
            laps.lap(RECORD_BYTES);
        }
        Ok(())
    })?;
    stage.place().remove_file(&path)
}
