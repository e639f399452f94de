//! How devices reach memory. `dma_cost` counts what that costs.
//!
//! A device that uses physical addresses reads and writes the kernel's memory in place. One that asks for
//! VIRTIO_F_ACCESS_PLATFORM gets a pool, as on a machine whose memory the host must not see: it learns no address
//! outside the pool.

use alloc::sync::Arc;

use transom_guest::dma::{ACCESS_PLATFORM, Bounce, Direct, DmaChoice, DmaOps, WhenFull};

use super::{Failure, memory, platform::Bare};

/// Length of the pool: rings and message heads, and mappings of up to a quarter of it.
const POOL_LEN: usize = 2 << 20;

/// How long a request waits for others to free their part of the pool.
const ROOM_AFTER_NS: u64 = 10_000_000_000;

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
