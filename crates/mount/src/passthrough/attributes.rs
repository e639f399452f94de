//! [`Attributes`]: what the kernel has cached of each regular file's attributes, as far as set-id programs and times
//! depend on it.
//!
//! execve(2) takes set-id bits from the mode that the kernel got last. A write through the mount clears the bits of the
//! host's file, but the kernel keeps the old mode: passthrough writes invalidate only times and size, and with
//! HANDLE_KILLPRIV_V2 (without which each write would request an extended attribute) other writes do not change the
//! mode either. So anybody who may write a set-id program could replace its content and run it with the owner's rights.
//! It is not enough that the kernel requests the attributes before each execve(2): it drops the reply if a write ends
//! meanwhile, and it makes the request before it denies write access. Therefore:
//!
//! 1. Attributes with set-id bits expire at once, so that every execve(2) requests them first.
//! 2. A file is *suspect* if it was open for writing since then. The first OPEN to execute a suspect file fails with
//!    ESTALE. The kernel then looks the path up again, requests the attributes again, and opens again. Without a writer
//!    in between it keeps that reply, so its mode is current. This holds only for the task that got ESTALE: another one
//!    may have requested the attributes before the write.
//! 3. A file whose set-id bits the kernel has is open either to execute or to write: the other OPEN fails with ETXTBSY,
//!    as execve(2) and open(2) do on any file system, but without the gap between the OPEN and the kernel's own check.
//! 4. If a file is open for both when the bits appear, they are removed from the reply.
//!
//! Stores through a mapping do not clear set-id bits on any file system of Linux. `security.capability` needs none of
//! this: the kernel does not cache it, and reads it after it has denied write access.
//!
//! A store through a mapping of the host's file changes its times, and the FUSE inode does not notice. So the
//! attributes of a file that may be mapped for writing expire at once too, until the kernel forgets the inode: a
//! mapping outlives the open file.
//!
//! No locks, no system calls: `super` has those. Source: linux/fs/exec.c, `do_open_execat`, `bprm_fill_uid`;
//! fs/fuse/dir.c, `fuse_permission`, `fuse_setattr`; fs/fuse/inode.c, `fuse_change_attributes_i`.

use std::collections::HashMap;

use transom_wire::NodeId;

use super::inodes::Access;

/// Flag of an open for execve(2) (`__FMODE_EXEC`). Programs cannot set it with open(2).
const FMODE_EXEC: u32 = 0x20;
/// The pid in requests of tasks outside of the pid namespace in which `/dev/fuse` was opened.
const UNKNOWN_PID: u32 = 0;
/// The most tasks that are remembered as retrying the open of one suspect file. If more do so at once, some see ESTALE.
const RETRIES_MAX: usize = 16;
pub(super) const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// The flags of OPEN, CREATE, TMPFILE and RELEASE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenMode(pub(crate) u32);

impl OpenMode {
    pub(super) fn access(self) -> Access {
        if self.0 & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32 { Access::Read } else { Access::Write }
    }

    fn is_for_executing(self) -> bool {
        self.0 & FMODE_EXEC != 0
    }

    /// Returns whether a writable shared mapping is possible, which needs read access too.
    pub(super) fn is_writably_mappable(self) -> bool {
        self.0 & libc::O_ACCMODE as u32 == libc::O_RDWR as u32
    }
}

/// Whether an OPEN is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenVerdict {
    /// Yes. It is counted as open.
    Open,
    /// ETXTBSY, unless a RELEASE that was read is still to be counted.
    Busy,
    /// ESTALE: the kernel requests the attributes again, and opens again.
    Stale,
}

/// How attributes in a reply are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyRules {
    /// The kernel may not cache them.
    pub(super) expires_at_once: bool,
    /// The set-id bits are removed.
    pub(super) hides_set_id: bool,
}

/// All regular files that the kernel knows.
#[derive(Default)]
pub(super) struct Attributes {
    files: HashMap<NodeId, File>,
}

#[derive(Default)]
struct File {
    /// The kernel's references, one for each reply that is counted as a lookup.
    lookups: u64,
    /// Open files, from before the OPEN is sent to the daemon until the RELEASE.
    writers: u32,
    executors: u32,
    /// The kernel may have a mode with set-id bits.
    may_have_set_id: bool,
    /// The mode that the kernel has may be older than a write.
    is_suspect: bool,
    /// Tasks that got ESTALE since the file was last opened for writing.
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
    /// Decides whether task `pid` may open `nodeid`. If so, the file counts as open until [`Self::close`].
    ///
    /// `pid` is 0 for all tasks outside of the pid namespace of this process. They cannot be told apart, so none of
    /// them can execute a suspect file.
    pub(super) fn open(&mut self, nodeid: NodeId, mode: OpenMode, pid: u32) -> OpenVerdict {
        let is_for_writing = mode.access() == Access::Write;
        if !is_for_writing && !mode.is_for_executing() {
            return OpenVerdict::Open;
        }
        let file = self.files.entry(nodeid).or_default();
        if file.may_have_set_id {
            let is_busy = if is_for_writing { file.executors > 0 } else { file.writers > 0 };
            if is_busy {
                return OpenVerdict::Busy;
            }
            if is_for_writing {
                file.suspect();
            } else if file.is_suspect && (pid == UNKNOWN_PID || !file.retries.contains(&pid)) {
                file.expect_retry(pid);
                return OpenVerdict::Stale;
            } else {
                file.is_suspect = false;
                file.retries = Vec::new();
            }
        }
        file.count(mode).into_iter().for_each(|count| *count += 1);
        OpenVerdict::Open
    }

    /// Counts a file as open that a CREATE has created or found. The same reply has its attributes, which the kernel
    /// always uses.
    pub(super) fn create(&mut self, nodeid: NodeId, mode: OpenMode) {
        let file = self.files.entry(nodeid).or_default();
        if file.may_have_set_id && mode.access() == Access::Write {
            file.suspect();
        }
        file.count(mode).into_iter().for_each(|count| *count += 1);
    }

    /// Counts an open file as closed: the kernel has closed it, or the open failed.
    pub(super) fn close(&mut self, nodeid: NodeId, mode: OpenMode) {
        let Some(file) = self.files.get_mut(&nodeid) else { return };
        file.count(mode).into_iter().for_each(|count| *count = count.saturating_sub(1));
        self.drop_unused(nodeid);
    }

    /// Notes that the kernel is about to get attributes of `nodeid`, a regular file with `mode`, and returns how to
    /// change them.
    ///
    /// `is_reference` if the kernel counts the reply as a lookup.
    pub(super) fn note_reply(&mut self, nodeid: NodeId, mode: u32, is_reference: bool) -> ReplyRules {
        let has_set_id = mode & SET_ID != 0;
        let file = match self.files.get_mut(&nodeid) {
            Some(file) => file,
            None if has_set_id || is_reference => self.files.entry(nodeid).or_default(),
            None => return ReplyRules { expires_at_once: false, hides_set_id: false },
        };
        file.lookups += u64::from(is_reference);
        let hides_set_id = has_set_id && file.writers > 0 && file.executors > 0;
        if has_set_id && !hides_set_id {
            file.may_have_set_id = true;
            if file.writers > 0 {
                file.suspect();
            }
        }
        ReplyRules { expires_at_once: has_set_id || file.may_be_mapped, hides_set_id }
    }

    /// Notes that the file of `nodeid` may be mapped for writing from now on.
    ///
    /// Returns whether the kernel may have attributes that do not expire at once.
    pub(super) fn set_mappable(&mut self, nodeid: NodeId) -> bool {
        let file = self.files.entry(nodeid).or_default();
        !std::mem::replace(&mut file.may_be_mapped, true)
    }

    /// Notes that the kernel has dropped `count` references, or never took them.
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
