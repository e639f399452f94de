//! Changes on the host of which the device tells over its notification queue.

use alloc::string::String;

use transom_wire::notification::Notification;

use super::{Failure, arch, console::say, share::Share};

/// How long the host may take for one change, on a busy machine.
const WITHIN_NS: u64 = 120_000_000_000;

/// Waits until the device tells of a file that was created in `dir`. The host goes on creating some.
pub(super) fn run(share: &Share, dir: &str) -> Result<(), Failure> {
    let fs = share.fs();
    // The device tells of directories that were looked up.
    fs.metadata(dir)?;
    let mut changes = fs.volume().changes().ok_or("the device has no notification queue")?;
    let deadline_ns = arch::now_ns() + WITHIN_NS;
    loop {
        match changes.next(Some(deadline_ns))? {
            Some(Notification::Change(change)) if !change.name.is_empty() => {
                let name = String::from_utf8_lossy(change.name);
                let path = alloc::format!("{dir}/{name}");
                say!("ok: told of {:?} {name}, which is there: {}", change.kind, fs.exists(path)?);
                return Ok(());
            }
            Some(_) => {}
            None => return Err("the device tells of nothing".into()),
        }
    }
}
