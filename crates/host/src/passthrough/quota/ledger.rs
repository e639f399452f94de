//! The account of a quota: what each changed inode takes more than before the guest came, and their sum.
//!
//! Before a request, [`Ledger::reserve`] takes the most that it can add. After it, [`Ledger::charge`] sets each inode's
//! charge to what it really takes, and [`Ledger::cancel`] drops the reservation. So what the guest has added is
//! never more than charges and reservations together, and they never exceed the limit, however many requests run at
//! once: a growth is reserved until it is charged.
//!
//! File systems such as ext4 choose a file's blocks when its pages are written back, and may then take some more that
//! find them. Nobody notices: there is no request. What that can be at most ([`late`]) is kept free for each file.

use std::collections::HashMap;

use rustix::fs::{FileType, Statx};
use transom_wire::NodeId;

use super::limits::QuotaLimits;
use crate::{
    Errno,
    passthrough::inodes::{InodeKey, file_type},
};

/// An amount, for all that is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// The account.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    charges: HashMap<InodeKey, Charge>,
    /// How often each inode is open.
    open: HashMap<InodeKey, u64>,
    /// Inodes without a name that the guest knows.
    removed: HashMap<NodeId, InodeKey>,
    /// The sum of all charges.
    used: Amount,
    /// The sum of what these inodes may take later.
    late_bytes: u64,
    reserved: Amount,
}

/// What an inode takes.
#[derive(Debug)]
struct Charge {
    /// The bytes that are not the guest's.
    base_bytes: u64,
    /// What it takes beyond them.
    bytes: u64,
    /// What it may take later.
    late_bytes: u64,
    /// The guest has made it.
    is_new: bool,
    /// It has no name; `Some` with its nodeid if the guest still knows it.
    removed: Option<Option<NodeId>>,
}

impl Ledger {
    /// Takes `most` of what is left.
    ///
    /// # Errors
    ///
    /// ENOSPC if less is left. What takes nothing always succeeds: a guest can free space when it has none.
    pub(super) fn reserve(&mut self, limits: QuotaLimits, most: Amount) -> Result<(), Errno> {
        let left = self.left(limits);
        let has_files = most.files == 0 || left.files.is_none_or(|files| most.files <= files);
        if most.bytes > 0 && most.bytes > left.bytes || !has_files {
            return Err(Errno::NOSPC);
        }
        self.reserved.bytes += most.bytes;
        self.reserved.files += most.files;
        Ok(())
    }

    /// Drops a reservation that was not used.
    pub(super) fn cancel(&mut self, most: Amount) {
        self.reserved.bytes -= most.bytes;
        self.reserved.files -= most.files;
    }

    /// Returns what is left.
    pub(super) fn left(&self, limits: QuotaLimits) -> QuotaLimits {
        let left = |limit: u64, used: u64, reserved: u64| limit.saturating_sub(used).saturating_sub(reserved);
        QuotaLimits {
            bytes: left(limits.bytes, self.used.bytes, self.reserved.bytes).saturating_sub(self.late_bytes),
            files: limits.files.map(|limit| left(limit, self.used.files, self.reserved.files)),
        }
    }

    /// Returns the sum of all charges.
    pub(super) fn used(&self) -> Amount {
        self.used
    }

    /// Returns whether an inode has an account.
    pub(super) fn knows(&self, key: InodeKey) -> bool {
        self.charges.contains_key(&key)
    }

    /// Opens the account of an inode that has none. If it `is_new`, all that it takes is the guest's, and it counts as
    /// a file; otherwise what it takes by now is not.
    pub(super) fn admit(&mut self, stat: &Statx, is_new: bool) {
        let key = InodeKey::of(stat);
        if self.charges.contains_key(&key) {
            return;
        }
        let base_bytes = if is_new { 0 } else { allocated(stat) };
        self.used.files += u64::from(is_new);
        self.charges.insert(key, Charge { base_bytes, bytes: 0, late_bytes: 0, is_new, removed: None });
    }

    /// Charges an inode with what it takes. `nodeid` is the inode as the guest knows it; it matters if the inode has
    /// lost its last name.
    pub(super) fn charge(&mut self, stat: &Statx, nodeid: impl FnOnce() -> Option<NodeId>) {
        let key = InodeKey::of(stat);
        let Some(charge) = self.charges.get_mut(&key) else { return };
        let bytes = allocated(stat).saturating_sub(charge.base_bytes);
        let late_bytes = late(stat, bytes);
        self.used.bytes = self.used.bytes - charge.bytes + bytes;
        self.late_bytes = self.late_bytes - charge.late_bytes + late_bytes;
        (charge.bytes, charge.late_bytes) = (bytes, late_bytes);
        match (stat.stx_nlink, charge.removed) {
            (0, None) => {
                let nodeid = nodeid();
                charge.removed = Some(nodeid);
                self.removed.extend(nodeid.map(|nodeid| (nodeid, key)));
            }
            (1.., Some(nodeid)) => {
                charge.removed = None;
                nodeid.map(|nodeid| self.removed.remove(&nodeid));
            }
            _ => {}
        }
    }

    /// Closes the account of an inode that is gone: without a name, open nowhere and unknown to the guest.
    pub(super) fn close_if_gone(&mut self, key: InodeKey) {
        let is_gone = self.charges.get(&key).is_some_and(|charge| charge.removed == Some(None));
        if is_gone && !self.open.contains_key(&key) {
            self.remove(key);
        }
    }

    /// Closes the account of an inode number, which now is that of another inode.
    pub(super) fn remove(&mut self, key: InodeKey) {
        let Some(charge) = self.charges.remove(&key) else { return };
        self.used.bytes -= charge.bytes;
        self.late_bytes -= charge.late_bytes;
        self.used.files -= u64::from(charge.is_new);
        if let Some(Some(nodeid)) = charge.removed {
            self.removed.remove(&nodeid);
        }
    }

    /// Notes that an inode was opened.
    pub(super) fn opened(&mut self, key: InodeKey) {
        *self.open.entry(key).or_default() += 1;
    }

    /// Notes that it was closed.
    pub(super) fn closed(&mut self, key: InodeKey) {
        let Some(count) = self.open.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            self.open.remove(&key);
            self.close_if_gone(key);
        }
    }

    /// Notes that the guest knows an inode no longer.
    pub(super) fn forgotten(&mut self, nodeid: NodeId) {
        let Some(key) = self.removed.remove(&nodeid) else { return };
        if let Some(charge) = self.charges.get_mut(&key) {
            charge.removed = Some(None);
        }
        self.close_if_gone(key);
    }

    /// Notes that the guest has nothing open, and knows nothing.
    pub(super) fn end_session(&mut self) {
        self.open.clear();
        self.removed.clear();
        let gone: Vec<_> =
            self.charges.iter().filter(|(_, charge)| charge.removed.is_some()).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }
}

/// Returns the bytes that an inode takes on its file system.
pub(super) fn allocated(stat: &Statx) -> u64 {
    // The unit of statx, whatever the file system's is.
    stat.stx_blocks.saturating_mul(512)
}

/// Returns what an inode that was charged with `bytes` may take later at most: blocks that find its data. ext4 finds
/// four pieces without any, and then needs a leaf of a tree for every 340 pieces (of blocks of 4 KiB), or for half of
/// that where leaves were split; each block of data can be a piece.
fn late(stat: &Statx, bytes: u64) -> u64 {
    const PIECES_WITHOUT_LEAF: u64 = 4;
    /// Bytes of a piece in a leaf, and of the leaf's header.
    const PIECE_LEN: u64 = 12;
    // ext4's largest, where pages are of 4 KiB; other file systems name what is best to read at once.
    let block = u64::from(stat.stx_blksize).clamp(1 << 10, 4 << 10);
    let is_small = allocated(stat) <= PIECES_WITHOUT_LEAF * block;
    if bytes == 0 || is_small || file_type(stat) != FileType::RegularFile {
        return 0;
    }
    let pieces_of_leaf = (block - PIECE_LEN) / PIECE_LEN / 2;
    let leaves = bytes.div_ceil(block).div_ceil(pieces_of_leaf).max(1);
    let above = if leaves > PIECES_WITHOUT_LEAF { leaves.div_ceil(pieces_of_leaf) } else { 0 };
    (leaves + above).saturating_mul(block)
}
