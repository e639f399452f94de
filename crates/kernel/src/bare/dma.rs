//! How devices reach memory, and what that costs.
//!
//! A device that uses physical addresses reads and writes the kernel's memory in place. One that asks for
//! VIRTIO_F_ACCESS_PLATFORM gets a pool, as on a machine whose memory the host must not see: it learns no address
//! outside the pool.

use alloc::{format, string::String, sync::Arc, vec};

use transom_guest::{
    Errno,
    dma::{ACCESS_PLATFORM, Bounce, Direct, DmaChoice, DmaCounts, DmaOps, WhenFull},
    fs::{Fs, OpenOptions},
};
use transom_wire::linux::O_DIRECT;

use super::{Failure, console::say, memory, platform::Bare, scenario::expect, share::Share};

/// Length of the pool: rings and message heads, and mappings of up to a quarter of it.
const POOL_LEN: usize = 2 << 20;

/// How long a request waits for others to free their part of the pool.
const ROOM_AFTER_NS: u64 = 10_000_000_000;

/// Reads, and as many writes, that are counted.
const CALLS: usize = 256;
const CALL_LEN: usize = 4096;

/// Returns what the kernel has for a device that offers these features.
pub(super) fn choice(platform: &Arc<Bare>, offered: u64) -> Result<DmaChoice, Failure> {
    let direct: Arc<dyn DmaOps> = Arc::new(Direct::new(memory::Identity));
    let mut choice = DmaChoice { direct: Some(direct), ..DmaChoice::default() };
    if offered & ACCESS_PLATFORM != 0 {
        let (pool, owner) = memory::pool(POOL_LEN).ok_or("no memory for the pool")?;
        let bounce = Bounce::owning(Arc::clone(platform), pool, WhenFull::Wait(ROOM_AFTER_NS), owner);
        choice.platform = Some(Arc::new(bounce));
    }
    Ok(choice)
}

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
