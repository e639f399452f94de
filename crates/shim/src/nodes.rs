//! The viewed files, each registered once.
//!
//! The kernel rejects a second registration of a file whose views are in use, so all views of a file share a node with
//! one registration. The opener holds a node while it opens a view, and the server holds it once for each open view.
//! Releasing the last hold passes the registration to the thread that closes it. Node ids are never reused.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
};

use transom_wire::NodeId;

use crate::backing::BackingId;

/// Size that every view reports: larger than any file, constant, and a multiple of every page size.
pub const VIEW_SIZE: u64 = 1 << 60;

/// A host file, by device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HostFile {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
    /// Passes registrations to the thread that closes them, because closing a file may block on its file system.
    closing: mpsc::Sender<BackingId>,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<NodeId, Node>,
    by_file: HashMap<HostFile, NodeId>,
    next: NodeId,
}

#[derive(Debug)]
struct Node {
    file: HostFile,
    backing: BackingId,
    /// Number of holds, never 0.
    holds: u64,
}

impl Nodes {
    pub(crate) fn new(closing: mpsc::Sender<BackingId>) -> Self {
        let next = NodeId(NodeId::ROOT.0 + 1);
        Self { table: Mutex::new(Table { nodes: HashMap::new(), by_file: HashMap::new(), next }), closing }
    }

    /// Holds the node of `file` and returns it, if there is one.
    pub(crate) fn hold_file(&self, file: HostFile) -> Option<NodeId> {
        let mut table = self.table();
        let nodeid = *table.by_file.get(&file)?;
        table.nodes.get_mut(&nodeid)?.holds += 1;
        Some(nodeid)
    }

    /// Creates a node for `file`, which must not have one, and holds it.
    pub(crate) fn insert(&self, file: HostFile, backing: BackingId) -> NodeId {
        let mut table = self.table();
        let nodeid = table.next;
        table.next.0 += 1;
        table.nodes.insert(nodeid, Node { file, backing, holds: 1 });
        table.by_file.insert(file, nodeid);
        nodeid
    }

    /// Holds a node for a view that is being opened. Returns the number of its registration.
    pub(crate) fn hold(&self, nodeid: NodeId) -> Option<i32> {
        let mut table = self.table();
        let node = table.nodes.get_mut(&nodeid)?;
        node.holds += 1;
        Some(node.backing.number())
    }

    /// Releases one hold.
    pub(crate) fn release(&self, nodeid: NodeId) {
        let mut table = self.table();
        let Some(node) = table.nodes.get_mut(&nodeid) else { return };
        node.holds -= 1;
        if node.holds > 0 {
            return;
        }
        if let Some(node) = table.nodes.remove(&nodeid) {
            table.by_file.remove(&node.file);
            // If the thread at the other end is gone, the process is ending.
            let _ = self.closing.send(node.backing);
        }
    }

    /// Returns whether the node exists.
    pub(crate) fn contains(&self, nodeid: NodeId) -> bool {
        self.table().nodes.contains_key(&nodeid)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
