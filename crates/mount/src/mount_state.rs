//! [`MountState`]: the mount as its owner sees it, over all connections to daemons.
//!
//! Lock: `current`, held for a moment with nothing under it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{MountEnd, connection::Connection, fuse_device::FuseDevice, reconnect::Reconnect};

/// The current connection, and the end of the mount.
pub(super) struct MountState {
    /// `None` between two daemons.
    current: Mutex<Option<Arc<Connection>>>,
    /// Present if the mount may outlive a connection.
    reconnect: Option<Arc<Reconnect>>,
}

impl MountState {
    /// Creates the state of a mount with its first connection.
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        let reconnect = connection.reconnect.clone();
        Self { current: Mutex::new(Some(connection)), reconnect }
    }

    /// Returns the current connection, if there is one.
    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.current.lock().clone()
    }

    /// Returns a descriptor of the mount, while there is a connection.
    pub(super) fn fuse_device(&self) -> Option<Arc<FuseDevice>> {
        self.connection()?.devices.get(0)
    }

    /// Replaces the current connection. If the mount has ended, the new one ends too.
    pub(super) fn replace(&self, connection: Option<Arc<Connection>>) {
        // Dropped outside of the lock: a daemon may take a while to end.
        let old = std::mem::replace(&mut *self.current.lock(), connection);
        drop(old);
        if let Some(end) = self.reconnect.as_ref().and_then(|reconnect| reconnect.cause()) {
            self.end(end);
        }
    }

    /// Returns why the mount has ended, if it has.
    pub(super) fn cause(&self) -> Option<MountEnd> {
        match &self.reconnect {
            Some(reconnect) => reconnect.cause(),
            None => self.connection()?.cause(),
        }
    }

    /// Ends the mount for `reason`, unless it has ended.
    pub(super) fn end(&self, reason: MountEnd) {
        if let Some(reconnect) = &self.reconnect {
            reconnect.end(reason);
        }
        if let Some(connection) = self.connection() {
            connection.end(reason);
        }
    }
}
