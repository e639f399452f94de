//! A reference to an inode, given back to the server with the value.

use std::sync::Arc;

use transom_guest::session::{Caller, Session};
use transom_user::platform::Process;
use transom_wire::{NodeId, attr::Attr, attr::EntryOut};

use super::errno::{Result, from_guest};

/// Counts for one lookup.
pub(crate) struct Node {
    pub(crate) session: Arc<Session<Process>>,
    pub(crate) id: NodeId,
}

impl Node {
    /// The root, which is never looked up and never forgotten.
    pub(crate) fn root(session: &Arc<Session<Process>>) -> Arc<Self> {
        Arc::new(Self { session: Arc::clone(session), id: NodeId::ROOT })
    }

    /// Returns the node that a reply with an entry refers to, or `None` if the name is absent.
    pub(crate) fn of(session: &Arc<Session<Process>>, entry: &EntryOut) -> Option<Arc<Self>> {
        let id = NodeId::from(entry.nodeid);
        (id.0 != 0).then(|| Arc::new(Self { session: Arc::clone(session), id }))
    }

    pub(crate) fn attr(&self) -> Result<Attr> {
        self.session.getattr(&Caller::default(), self.id, None).map(|out| out.attr).map_err(from_guest)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.session.forget(self.id, 1);
    }
}
