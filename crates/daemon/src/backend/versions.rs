//! The version table as a region of the device.
//!
//! The front end maps it for reading, from a descriptor that cannot write; or, if it maps everything writable, from
//! that of a mirror. It is asked when it has announced its regions, or if it cannot map anything then, when the driver
//! has started the device; and again after a reset that has ended the mapping. The request is sent from a thread of
//! its own: the front end serves it when it has the replies to its own requests, for which the caller must not make it
//! wait.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use tracing::{debug, warn};
use transom_host::window::FrontEnd;
use transom_wire::window::VERSIONS_ID;
use vhost::vhost_user::{
    Backend, VhostUserFrontendReqHandler as _,
    message::{VhostUserMMap, VhostUserMMapFlags},
};

/// The version table of a coherence group, to be mapped by front ends.
#[derive(Clone)]
pub struct VersionsRegion {
    /// The table, open for reading only, or the guest's own mirror of it.
    pub table: Arc<OwnedFd>,
    /// Length of the table, a multiple of the page size.
    pub table_len_bytes: u64,
    /// Length of the region, at least that of the table. Together with the window's it is a power of two, because QEMU
    /// 11.1 puts all regions into one PCI memory region.
    pub len_bytes: u64,
    /// Who maps it.
    pub front_end: FrontEnd,
    /// Called before the front end gets the table. Returns whether it may have it.
    pub before_use: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl VersionsRegion {
    /// Returns the length of a region beside a window of that length, which is 0 or a power of two.
    pub fn len_beside(window_len_bytes: u64, table_len_bytes: u64) -> u64 {
        table_len_bytes.next_power_of_two().max(window_len_bytes)
    }

    /// Asks the front end to map the table, without waiting for it.
    fn offer(&self, channel: Backend) -> io::Result<()> {
        let region = self.clone();
        let offer = move || {
            if !(region.before_use)() {
                return;
            }
            let request = VhostUserMMap {
                shmid: VERSIONS_ID,
                padding: [0; 7],
                fd_offset: 0,
                shm_offset: 0,
                len: region.table_len_bytes,
                flags: VhostUserMMapFlags::default().bits(),
            };
            match channel.shmem_map(&request, &region.table.as_raw_fd()) {
                Ok(_) => debug!("the front end has mapped the version table"),
                Err(error) => warn!(%error, "the front end does not map the version table: its guest does without"),
            }
        };
        thread::Builder::new().name("versions".into()).spawn(offer).map(drop)
    }
}

impl fmt::Debug for VersionsRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionsRegion({} of {} bytes)", self.table_len_bytes, self.len_bytes)
    }
}

/// Whether the front end of one connection has the table mapped.
#[derive(Debug, Default)]
pub(super) struct Offer {
    state: AtomicU8,
    /// A bit for each request queue that had taken requests when it was stopped. Only these can tell a reset.
    used: AtomicU64,
}

/// It has not announced that it has regions. Most front ends never do.
const UNREAD: u8 = 0;
/// It was not asked yet.
const NOT_ASKED: u8 = 1;
/// It was asked, and has it mapped if it could.
const ASKED: u8 = 2;
/// It was asked before the device was stopped. A reset may have ended the mapping since.
const STOPPED: u8 = 3;

impl Offer {
    /// The front end has announced its regions.
    pub(super) fn regions_were_read(&self, region: &VersionsRegion, channel: Backend) -> io::Result<()> {
        let next = if region.front_end.maps_before_start { ASKED } else { NOT_ASKED };
        if self.state.compare_exchange(UNREAD, next, SeqCst, SeqCst).is_ok() && next == ASKED {
            region.offer(channel)?;
        }
        Ok(())
    }

    /// The queue of requests with this number runs. `is_new` says that it has taken nothing yet: the driver has set it
    /// up, or has never used it. A device that is only paused goes on where its queues were, and its mappings are
    /// there.
    pub(super) fn device_runs(
        &self,
        region: &VersionsRegion,
        (queue, is_new): (usize, bool),
        channel: impl FnOnce() -> Option<Backend>,
    ) {
        let before = self.state.load(SeqCst);
        let used = self.used.load(SeqCst);
        let can_tell = used == 0 || used & bit(queue) != 0;
        if matches!(before, UNREAD | ASKED)
            || before == STOPPED && !can_tell
            || self.state.compare_exchange(before, ASKED, SeqCst, SeqCst).is_err()
        {
            return;
        }
        self.used.store(0, SeqCst);
        if (before == NOT_ASKED || is_new && region.front_end.unmaps_at_reset)
            && let Some(channel) = channel()
            && let Err(error) = region.offer(channel)
        {
            warn!(%error, "no thread to offer the version table: the guest does without");
        }
    }

    /// A queue was stopped, which had taken requests if `was_used`.
    pub(super) fn queue_stopped(&self, queue: usize, was_used: bool) {
        if was_used {
            self.used.fetch_or(bit(queue), SeqCst);
        }
        let _ = self.state.compare_exchange(ASKED, STOPPED, SeqCst, SeqCst);
    }

    /// The device was reset.
    pub(super) fn device_reset(&self) {
        self.used.store(0, SeqCst);
        let _ = self.state.compare_exchange(ASKED, STOPPED, SeqCst, SeqCst);
    }
}

/// Queues beyond the width share bits, which at worst has one of them decide too early.
fn bit(queue: usize) -> u64 {
    1 << (queue % 64)
}
