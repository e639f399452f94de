//! What the kernel does instead of the usual, if the host has prepared a file for it.

use super::{Failure, mapping, share::Share, told};

/// Random accesses to this file are measured.
pub(super) const MEASURED: &str = "measured";

/// Files in this directory are mapped or not, as the server has marked them.
pub(super) const CHOSEN: &str = "chosen";

/// The host creates files in this directory, and the device tells of them.
pub(super) const TOLD: &str = "told";

/// Does what the host has prepared. Returns false if there is nothing of that.
pub(super) fn run(share: &Share) -> Result<bool, Failure> {
    let fs = share.fs();
    if fs.exists(MEASURED)? {
        mapping::measure(fs)?;
    } else if fs.exists(CHOSEN)? {
        mapping::run_chosen(share)?;
    } else if fs.exists(TOLD)? {
        told::run(share, TOLD)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}
