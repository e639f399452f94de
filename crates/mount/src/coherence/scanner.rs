//! The thread that has the kernel drop what others have changed.
//!
//! Notifications wait while the kernel reads or writes back pages of the inode, which takes replies of the workers.
//! No worker waits for this thread.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use transom_wire::NodeId;

use super::{Coherence, known::StaleInode, names::NameQueue};
use crate::{
    connection::Connection,
    notification::{Stale, invalidate_inode},
};

/// The thread's name.
pub(crate) const THREAD_NAME: &str = "transom-coherent";

/// The time between two looks at the table: the longest time that the kernel uses what another guest has changed, if a
/// scan is short. A look costs two loads and a lock that hardly anybody holds if nothing has changed.
const SCAN_EVERY: Duration = Duration::from_millis(10);
/// After a scan, the thread rests for this multiple of the scan's time: it takes at most a fifth of a processor.
const REST_FACTOR: u32 = 4;

/// Scans until `connection` has ended. Names in directories that were changed go to `names`.
pub(crate) fn scan_until_end(coherence: &Coherence, connection: &Arc<Connection>, names: &NameQueue) {
    let (mut scanned, mut has_more, mut pause) = (None, false, SCAN_EVERY);
    let mut stale = Vec::new();
    while !has_ended(connection, pause) {
        let now = coherence.table.now();
        let is_late = coherence.is_late.swap(false, Ordering::AcqRel);
        let begun = Instant::now();
        let Coherence { table, known, .. } = coherence;
        known.take_due(begun, now, &mut stale);
        if scanned != Some(now) || is_late || has_more {
            let is_valid = |slot, fetched, own: &_| coherence.is_valid(slot, fetched, own);
            has_more = known.take_stale(now, is_valid, |slot| table.is_hot(slot), &mut stale);
            scanned = Some(now);
        }
        // First all names: what follows may wait for a file's pages.
        for StaleInode { nodeid, names: stale_names, .. } in &mut stale {
            coherence.expire_names(names, *nodeid, std::mem::take(stale_names));
        }
        for StaleInode { nodeid, fetched, .. } in stale.drain(..) {
            match invalidate(connection, nodeid) {
                Ok(()) => {}
                // The reply that names it is written, but the process that asked has not stored it yet, or the kernel
                // has dropped it and will say so. Until then it counts as fetched when it was, and is looked at again.
                Err(Errno::NOENT) => coherence.note_fetched(nodeid, fetched),
                Err(_) => return,
            }
        }
        pause = SCAN_EVERY.max(begun.elapsed() * REST_FACTOR);
    }
}

/// Has the kernel drop the attributes and data of an inode. Errors: ENOENT if the kernel does not have it, ENODEV once
/// the mount has ended.
fn invalidate(connection: &Connection, nodeid: NodeId) -> Result<(), Errno> {
    let device = connection.devices.get(0).ok_or(Errno::NODEV)?;
    match invalidate_inode(&device, nodeid, Stale::Data(0, 0)) {
        Ok(()) => Ok(()),
        Err(errno @ (Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN)) => Err(errno),
        Err(errno) => {
            tracing::warn!(%errno, %nodeid, "the kernel may keep what another guest has changed until it is evicted");
            Ok(())
        }
    }
}

/// Waits for `pause`, or until the connection has ended; returns whether it has.
fn has_ended(connection: &Connection, pause: Duration) -> bool {
    let stop = connection.stop();
    let mut fds = [PollFd::new(&stop, PollFlags::IN)];
    let pause = Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(&mut fds, Some(&pause)) {
        Ok(count) => count > 0,
        Err(errno) => io::Error::from(errno).kind() != io::ErrorKind::Interrupted,
    }
}
