//! The version table as a region of the device.
//!
//! The front end maps it once for each connection, for reading, from a descriptor that cannot write. The request is
//! sent from a thread of its own: the front end serves it when it has the reply to GET_SHMEM_CONFIG, and the vhost-user
//! thread, which sends that reply, must not wait for it.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    thread,
};

use tracing::{debug, warn};
use transom_wire::window::VERSIONS_ID;
use vhost::vhost_user::{
    Backend, VhostUserFrontendReqHandler as _,
    message::{VhostUserMMap, VhostUserMMapFlags},
};

/// The version table of a coherence group, to be mapped by front ends.
#[derive(Clone)]
pub struct VersionsRegion {
    /// Open for reading only.
    pub table: Arc<OwnedFd>,
    /// Length of the table, a multiple of the page size.
    pub table_len_bytes: u64,
    /// Length of the region, at least that of the table. Together with the window's it is a power of two, because QEMU
    /// 11.1 puts all regions into one PCI memory region.
    pub len_bytes: u64,
}

impl VersionsRegion {
    /// Creates a region beside a window of that length, which is 0 or a power of two.
    pub fn new(table: OwnedFd, table_len_bytes: u64, window_len_bytes: u64) -> Self {
        let len_bytes = table_len_bytes.next_power_of_two().max(window_len_bytes);
        Self { table: Arc::new(table), table_len_bytes, len_bytes }
    }

    /// Asks the front end to map the table, without waiting for it.
    pub(super) fn offer(&self, channel: Backend) -> io::Result<()> {
        let region = self.clone();
        let offer = move || {
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
