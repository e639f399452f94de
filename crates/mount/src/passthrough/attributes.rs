//! What the kernel holds of each regular file's attributes, as far as it matters for set-id programs and for times.
//!
//! execve(2) takes set-id bits from the mode that the kernel got last. A write through the mount clears the bits of the
//! host's file, but the kernel keeps the old mode: passthrough writes invalidate times and size alone, and with
//! HANDLE_KILLPRIV_V2, without which each write would ask for an extended attribute, other writes do not change it either. So
//! whoever may write a set-id program could put anything into it and run it with the owner's rights. Asking again before
//! each execve(2) is needed and is not enough: the kernel drops the answer if a write ends between the question and the answer,
//! and it asks before it locks writers out. Therefore:
//!
//! 1. Attributes with set-id bits expire at once, so that every execve(2) asks for them first.
//! 2. The file is *suspect* if it was open for writing since then. The first OPEN to execute a suspect file fails with
//!    ESTALE. The kernel then looks the path up again, asks for the attributes again, and opens again. Without a writer in between
//!    the kernel keeps that answer, so its mode is current. Only the task that was answered ESTALE is known to have got so far:
//!    another one may have asked before the write.
//! 3. A file whose set-id bits were told is open either to execute or to write: the other OPEN fails with ETXTBSY, as execve(2)
//!    and open(2) do on any file system, but without the gap between the OPEN and the kernel's own lock.
//! 4. Where both are open already when the bits come, they are left out of the reply.
//!
//! Stores through a mapping do not clear set-id bits, on no file system of Linux. `security.capability` needs none of this: the
//! kernel does not cache it, and reads it after it has locked writers out.
//!
//! A store through a mapping of the host's file changes its times, and the FUSE inode hears nothing of it: the attributes of a
//! file that may be mapped for writing expire at once too, until the kernel forgets the inode, since a mapping outlives the open file.
//!
//! No locks, no system calls: `super` has those. Source: linux/fs/exec.c, `do_open_execat`, `bprm_fill_uid`; fs/fuse/dir.c,
//! `fuse_permission`, `fuse_setattr`; fs/fuse/inode.c, `fuse_change_attributes_i`.

use std::collections::HashMap;

use transom_wire::NodeId;

use super::inodes::Access;

/// Of the flags of an open file: it is for execve(2) (`__FMODE_EXEC`). open(2) does not let programs set it.
const FMODE_EXEC: u32 = 0x20;
/// The pid of a task outside of the pid namespace in which `/dev/fuse` was opened.
const UNKNOWN_PID: u32 = 0;
/// Tasks of one suspect file that are expected to open it again; more of them at once see ESTALE.
const RETRIES_MAX: usize = 16;
pub(super) const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// What an open file is for: the flags of OPEN, CREATE, TMPFILE and RELEASE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenMode(pub(crate) u32);

impl OpenMode {
    pub(super) fn access(self) -> Access {
        if self.0 & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32 { Access::Read } else { Access::Write }
    }

    fn is_for_executing(self) -> bool {
        self.0 & FMODE_EXEC != 0
    }

    /// Whether a shared mapping can be written: that takes the right to read, too.
    pub(super) fn is_writably_mappable(self) -> bool {
        self.0 & libc::O_ACCMODE as u32 == libc::O_RDWR as u32
    }
}

/// Whether an OPEN may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is counted as open.
    Open,
    /// ETXTBSY, unless a RELEASE is about to be counted.
    Busy,
    /// ESTALE: the kernel asks for the attributes again, and opens again.
    Stale,
}

/// How attributes are to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Telling {
    /// The kernel may not keep them.
    pub(super) expires_at_once: bool,
    /// Without the set-id bits.
    pub(super) hides_set_id: bool,
}

/// All regular files that the kernel knows.
#[derive(Default)]
pub(super) struct Attributes {
    files: HashMap<NodeId, File>,
}

#[derive(Default)]
struct File {
    /// References of the kernel, each from one reply.
    lookups: u64,
    /// Open files, from the OPEN's way to the daemon to the RELEASE.
    writers: u32,
    executors: u32,
    /// The kernel may hold a mode with set-id bits.
    was_told_set_id: bool,
    /// The mode that the kernel holds may be older than a write.
    is_suspect: bool,
    /// Tasks that were answered ESTALE since the file was last opened for writing.
    retries: Vec<u32>,
    may_be_mapped: bool,
}

impl File {
    fn suspect(&mut self) {
        self.is_suspect = true;
        self.retries.clear();
    }

    fn expect_retry(&mut self, pid: u32) {
        if self.retries.len() == RETRIES_MAX {
            self.retries.remove(0);
        }
        self.retries.push(pid);
    }

    fn is_unused(&self) -> bool {
        self.lookups == 0 && self.writers == 0 && self.executors == 0
    }

    fn count(&mut self, mode: OpenMode) -> Option<&mut u32> {
        match mode.access() {
            Access::Write => Some(&mut self.writers),
            Access::Read => mode.is_for_executing().then_some(&mut self.executors),
        }
    }
}

impl Attributes {
    /// Task `pid` opens `nodeid`; what is allowed is counted as open until [`Self::close`].
    ///
    /// `pid` is 0 for every task outside of the pid namespace of this process. One of them cannot be told from another, so a
    /// suspect file is executed by none of them.
    pub(super) fn open(&mut self, nodeid: NodeId, mode: OpenMode, pid: u32) -> Verdict {
        let is_for_writing = mode.access() == Access::Write;
        if !is_for_writing && !mode.is_for_executing() {
            return Verdict::Open;
        }
        let file = self.files.entry(nodeid).or_default();
        if file.was_told_set_id {
            let is_busy = if is_for_writing { file.executors > 0 } else { file.writers > 0 };
            if is_busy {
                return Verdict::Busy;
            }
            if is_for_writing {
                file.suspect();
            } else if file.is_suspect && (pid == UNKNOWN_PID || !file.retries.contains(&pid)) {
                file.expect_retry(pid);
                return Verdict::Stale;
            } else {
                file.is_suspect = false;
                file.retries = Vec::new();
            }
        }
        file.count(mode).into_iter().for_each(|count| *count += 1);
        Verdict::Open
    }

    /// A file was created, or found by a CREATE, and is open. It is told in the same reply, which the kernel always takes.
    pub(super) fn create(&mut self, nodeid: NodeId, mode: OpenMode) {
        let file = self.files.entry(nodeid).or_default();
        if file.was_told_set_id && mode.access() == Access::Write {
            file.suspect();
        }
        file.count(mode).into_iter().for_each(|count| *count += 1);
    }

    /// The kernel has closed an open file, or does not get it.
    pub(super) fn close(&mut self, nodeid: NodeId, mode: OpenMode) {
        let Some(file) = self.files.get_mut(&nodeid) else { return };
        file.count(mode).into_iter().for_each(|count| *count = count.saturating_sub(1));
        self.drop_unused(nodeid);
    }

    /// The kernel is about to be told attributes of `nodeid` with `mode`, of a regular file; `is_reference` by a reply that it
    /// counts as a lookup.
    pub(super) fn tell(&mut self, nodeid: NodeId, mode: u32, is_reference: bool) -> Telling {
        let has_set_id = mode & SET_ID != 0;
        let file = match self.files.get_mut(&nodeid) {
            Some(file) => file,
            None if has_set_id || is_reference => self.files.entry(nodeid).or_default(),
            None => return Telling { expires_at_once: false, hides_set_id: false },
        };
        file.lookups += u64::from(is_reference);
        let hides_set_id = has_set_id && file.writers > 0 && file.executors > 0;
        if has_set_id && !hides_set_id {
            file.was_told_set_id = true;
            if file.writers > 0 {
                file.suspect();
            }
        }
        Telling { expires_at_once: has_set_id || file.may_be_mapped, hides_set_id }
    }

    /// The file of `nodeid` may be mapped for writing from now on. Returns whether the kernel may hold attributes that do not
    /// expire at once.
    pub(super) fn may_be_mapped(&mut self, nodeid: NodeId) -> bool {
        let file = self.files.entry(nodeid).or_default();
        !std::mem::replace(&mut file.may_be_mapped, true)
    }

    /// The kernel has dropped `count` references, or has not taken them.
    pub(super) fn forget(&mut self, nodeid: NodeId, count: u64) {
        let Some(file) = self.files.get_mut(&nodeid) else { return };
        file.lookups = file.lookups.saturating_sub(count);
        self.drop_unused(nodeid);
    }

    fn drop_unused(&mut self, nodeid: NodeId) {
        if self.files.get(&nodeid).is_some_and(File::is_unused) {
            self.files.remove(&nodeid);
        }
    }
}

#[cfg(test)]
#[path = "attributes_test.rs"]
mod tests;
