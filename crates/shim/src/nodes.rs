//! The files of which there are views, each registered once.
//!
//! A second registration of a file whose views are in use would be refused by the kernel, so that views of one file
//! share a node, and the node its registration. The opener holds a node while it opens it, the server for each open
//! view; who lets go of the last hold hands the registration to the thread that closes it. No number is given twice.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
};

use transom_wire::NodeId;

use crate::backing::BackingId;

/// Bytes that every view claims to have: more than any file, the same at all times, and a multiple of every page size.
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
    /// To the thread that closes registrations: letting go of a file may block on its file system.
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
    /// Never 0.
    holds: u64,
}

impl Nodes {
    pub(crate) fn new(closing: mpsc::Sender<BackingId>) -> Self {
        let next = NodeId(NodeId::ROOT.0 + 1);
        Self { table: Mutex::new(Table { nodes: HashMap::new(), by_file: HashMap::new(), next }), closing }
    }

    /// Holds the node of `file`, if it has one.
    pub(crate) fn hold_file(&self, file: HostFile) -> Option<NodeId> {
        let mut table = self.table();
        let nodeid = *table.by_file.get(&file)?;
        table.nodes.get_mut(&nodeid)?.holds += 1;
        Some(nodeid)
    }

    /// Makes a node for `file`, which has none, and holds it.
    pub(crate) fn insert(&self, file: HostFile, backing: BackingId) -> NodeId {
        let mut table = self.table();
        let nodeid = table.next;
        table.next.0 += 1;
        table.nodes.insert(nodeid, Node { file, backing, holds: 1 });
        table.by_file.insert(file, nodeid);
        nodeid
    }

    /// Holds the node for a view that is about to be open. Returns the number of its registration.
    pub(crate) fn hold(&self, nodeid: NodeId) -> Option<i32> {
        let mut table = self.table();
        let node = table.nodes.get_mut(&nodeid)?;
        node.holds += 1;
        Some(node.backing.number())
    }

    /// Undoes one hold.
    pub(crate) fn release(&self, nodeid: NodeId) {
        let mut table = self.table();
        let Some(node) = table.nodes.get_mut(&nodeid) else { return };
        node.holds -= 1;
        if node.holds > 0 {
            return;
        }
        if let Some(node) = table.nodes.remove(&nodeid) {
            table.by_file.remove(&node.file);
            // Without the thread at the other end, the process is ending.
            let _ = self.closing.send(node.backing);
        }
    }

    /// Whether there is such a node.
    pub(crate) fn contains(&self, nodeid: NodeId) -> bool {
        self.table().nodes.contains_key(&nodeid)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
