//! What the operations for DMA cost: bytes that are mapped and copied for reads and writes of 4 KiB.

use alloc::{format, string::String, vec};

use transom_guest::{
    Errno,
    dma::{ACCESS_PLATFORM, DmaCounts},
    fs::{Fs, OpenOptions},
};
use transom_wire::linux::O_DIRECT;

use super::{Failure, console::say, platform::Bare, scenario::expect, share::Share};

/// Reads, and as many writes, that are counted.
const CALLS: usize = 256;
const CALL_LEN: usize = 4096;

/// Reads and writes 4 KiB at a time, and says what went through the operations for it.
pub(super) fn count(share: &Share) -> Result<(), Failure> {
    let name = if share.features() & ACCESS_PLATFORM != 0 { "bounce" } else { "direct" };
    for (what, work) in [("write", write as fn(&Fs<Bare>) -> Result<(), Errno>), ("read", read)] {
        let (before, sent) = (share.dma_counts(), share.queue_counts(0).sent);
        work(share.fs())?;
        let (after, requests) = (share.dma_counts(), share.queue_counts(0).sent - sent);
        say!("ok: dma: {name} {what}: {}", difference(requests, before, after));
    }
    Ok(share.fs().remove_file("counted")?)
}

fn difference(requests: u64, before: DmaCounts, after: DmaCounts) -> String {
    format!(
        "[{requests}, {}, {}, {}, {}, {}]",
        after.mapped_bytes - before.mapped_bytes,
        after.bounced_bytes - before.bounced_bytes,
        after.exhaustions - before.exhaustions,
        after.live_mappings,
        after.pool_used_bytes,
    )
}

fn write(fs: &Fs<Bare>) -> Result<(), Errno> {
    let options = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(O_DIRECT);
    let file = fs.open("counted", &options)?;
    for call in 0..CALLS {
        file.write_at((call * CALL_LEN) as u64, &[call as u8; CALL_LEN])?;
    }
    file.close()
}

fn read(fs: &Fs<Bare>) -> Result<(), Errno> {
    let file = fs.open("counted", &OpenOptions::new().read(true).custom_flags(O_DIRECT))?;
    let mut bytes = vec![0; CALL_LEN];
    for call in 0..CALLS {
        expect(file.read_at((call * CALL_LEN) as u64, &mut bytes)? == CALL_LEN)?;
        expect(bytes.iter().all(|&byte| byte == call as u8))?;
    }
    file.close()
}
