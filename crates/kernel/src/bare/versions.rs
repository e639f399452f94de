//! The version table of the daemon's coherence group, in a region of the device.

use alloc::{format, string::String};

use transom_guest::{
    Errno,
    fs::{Fs, OpenOptions},
    transport::ShmRegion,
};
use transom_versions::{Reader, Region, TableError};

use super::{Failure, arch, memory, platform::Bare};

/// How long QEMU may take to map the table once the device has started.
const MAPPED_WITHIN_NS: u64 = 60_000_000_000;

/// The table, for reading.
pub(super) type Table = Reader<Region>;

/// Waits until the host has mapped the table.
pub(super) fn table(region: ShmRegion) -> Result<Table, Failure> {
    let begun_ns = arch::now_ns();
    loop {
        match Reader::new(memory::words(region)?) {
            Ok(table) => return Ok(table),
            // What is not mapped yet reads as zeros.
            Err(TableError::Magic { .. }) if arch::now_ns() - begun_ns < MAPPED_WITHIN_NS => core::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Changes a file, and looks whether the table says so. Returns what it has seen.
pub(super) fn change(fs: &Fs<Bare>, table: &Table) -> Result<String, Errno> {
    let (changed, other) = (fs.metadata("input")?.attr().ino.get(), fs.metadata("many/file1")?.attr().ino.get());
    let before = table.now();
    let was_valid = table.is_valid(changed, before);
    let file = fs.open("input", &OpenOptions::new().read(true).write(true))?;
    let mut byte = [0];
    file.read_at(0, &mut byte)?;
    file.write_at(0, &byte)?;
    file.close()?;
    let seen = [was_valid, table.is_valid(changed, before), table.is_valid(changed, table.now())];
    let is_other_valid = table.is_valid(other, before);
    Ok(format!(
        "valid before a change {}, after it {}, fetched anew {}, another file {is_other_valid}",
        seen[0], seen[1], seen[2]
    ))
}
