//! A mount as its owner and its threads see it: the connection of the moment, and the end of all.
//!
//! Lock: `current`, held for a moment with nothing under it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{End, kernel::Kernel, reconnect::Reconnect, shared::Shared};

pub(super) struct Served {
    /// Nothing between two daemons.
    current: Mutex<Option<Arc<Shared>>>,
    /// Where the mount outlives a connection.
    reconnect: Option<Arc<Reconnect>>,
}

impl Served {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let reconnect = shared.reconnect.clone();
        Self { current: Mutex::new(Some(shared)), reconnect }
    }

    /// The connection, if there is one.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        self.current.lock().clone()
    }

    /// A descriptor of the mount, while it is served.
    pub(super) fn kernel(&self) -> Option<Arc<Kernel>> {
        self.shared()?.kernel(0)
    }

    /// Another connection, or none. What has ended ends that one too.
    pub(super) fn replace(&self, shared: Option<Arc<Shared>>) {
        // Dropped outside of the lock: the end of a daemon may take a while.
        let old = std::mem::replace(&mut *self.current.lock(), shared);
        drop(old);
        if let Some(end) = self.reconnect.as_ref().and_then(|reconnect| reconnect.cause()) {
            self.end(end);
        }
    }

    /// Why the mount has ended, if it has.
    pub(super) fn cause(&self) -> Option<End> {
        match &self.reconnect {
            Some(reconnect) => reconnect.cause(),
            None => self.shared()?.cause(),
        }
    }

    /// Ends the mount for `why`, unless it has ended.
    pub(super) fn end(&self, why: End) {
        if let Some(reconnect) = &self.reconnect {
            reconnect.end(why);
        }
        if let Some(shared) = self.shared() {
            shared.end(why);
        }
    }
}
