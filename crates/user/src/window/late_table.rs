//! The version table while the daemon has not had it mapped yet.

use std::{io, os::fd::BorrowedFd, time::Duration};

use parking_lot::{Condvar, Mutex};
use vhost::vhost_user::message::VhostUserMMap;

use super::VersionTable;

/// The version table, which exists once the daemon has had it mapped.
#[derive(Debug, Default)]
pub(super) struct LateTable {
    table: Mutex<Option<VersionTable>>,
    is_mapped: Condvar,
}

impl LateTable {
    /// Maps the table for the daemon. Errors: EINVAL if it is mapped already, or not from its beginning.
    pub(super) fn map(&self, request: &VhostUserMMap, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut table = self.table.lock();
        if table.is_some() || request.shm_offset != 0 || request.flags != 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        *table = Some(VersionTable::map(file, request.fd_offset, request.len)?);
        self.is_mapped.notify_all();
        Ok(())
    }

    /// Returns the table, once it is mapped.
    pub(super) fn wait(&self, at_most: Duration) -> Option<VersionTable> {
        let mut table = self.table.lock();
        let waited = self.is_mapped.wait_while_for(&mut table, |table| table.is_none(), at_most);
        if waited.timed_out() {
            tracing::warn!("the daemon offers a version table and does not have it mapped");
        }
        table.clone()
    }
}
