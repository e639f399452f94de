//! Small writes that must be on the disk before the next one: databases, mail, editors.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
};

use super::stage::Stage;

pub(super) const COUNT: usize = 1;

/// Shorter than a page, as a log's record is.
const RECORD_BYTES: usize = 512;

pub(super) fn run<W: io::Write>(stage: &mut Stage<W>) -> io::Result<()> {
    let path = stage.path("synced");
    let ops = stage.params.synced_ops;
    stage.measure("append_512_fsync", |laps| {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        for _ in 0..ops {
            file.write_all(&[0x77; RECORD_BYTES])?;
            file.sync_all()?;
            laps.lap(RECORD_BYTES);
        }
        Ok(())
    })?;
    fs::remove_file(&path)
}
