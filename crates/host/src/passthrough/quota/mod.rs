//! The quota of a share: bytes and files that the guest may add.
//!
//! [`Passthrough::metered`] surrounds each request that changes something. What counts is what the host's file system
//! says that an inode takes, before and after: so holes, truncation, preallocation, clones, links and whatever else a
//! request does count as what they cost. [`ledger`] is the account, and explains why it is never too low.
//!
//! Locks: that of `names` before that of `ledger`. The first is held while a request that changes names is served, so
//! that a name still leads to the inode that was made under it. The second is held for system calls that tell what an
//! inode takes, and within it those of `inodes` for a lookup.

mod bound;
mod ledger;
pub(super) mod limits;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx};
use smallvec::SmallVec;
use transom_metrics::QuotaGauges;
use transom_wire::{
    Handle, Name, NodeId, Opcode,
    operation::{Changed, Effect, MadeType},
    ops::statfs::StatfsOut,
};

use self::{
    ledger::{Amount, Ledger, allocated},
    limits::QuotaLimits,
};
use super::{
    Passthrough,
    handles::FileRef,
    inodes::{Inode, InodeKey, file_type},
};
use crate::{
    Errno,
    server::Changing,
    sysfd::{path, stat},
};

/// The quota of a share.
#[derive(Debug)]
pub(super) struct Quota {
    limits: QuotaLimits,
    /// What requests may use beyond the limits that can be part of a removal.
    for_removals: Amount,
    /// The share is an overlay: what is changed is copied first, into space that counts.
    is_layered: bool,
    names: Mutex<()>,
    ledger: Mutex<Ledger>,
    /// Requests that were refused.
    refused: AtomicU64,
}

/// In the upper layer of an overlay that the guest mounts, removing a name takes a white-out, and perhaps directories
/// above it. Without this, nothing could be removed that would make space. It is used up only by removals without end,
/// or by a guest that makes directories and white-outs for nothing.
const FOR_REMOVALS: Amount = Amount { bytes: 4 << 20, files: 4096 };

/// An inode that a request may change, held until the account is right again.
#[derive(Debug)]
enum Subject {
    Inode(Inode),
    File(FileRef),
    Named(OwnedFd),
}

/// The most inodes of one request: two directories, two inodes with names, and those of handles.
type Subjects = SmallVec<[Subject; 6]>;

impl AsFd for Subject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Inode(inode) => inode.fd.as_fd(),
            Self::File(file) => file.fd.as_fd(),
            Self::Named(fd) => fd.as_fd(),
        }
    }
}

impl Subject {
    fn stat(&self) -> Option<Statx> {
        stat::statx(self, AtFlags::empty(), stat::IDENTITY).ok()
    }
}

impl Quota {
    pub(super) fn new(limits: QuotaLimits, is_layered: bool, is_upper_layer: bool) -> Self {
        let for_removals = if is_upper_layer { FOR_REMOVALS } else { Amount::default() };
        let (names, ledger, refused) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self { limits, for_removals, is_layered, names, ledger, refused }
    }

    /// Returns the limits for a request.
    fn limits_of(&self, request: &Changing<'_>) -> QuotaLimits {
        let Amount { bytes, files } = self.for_removals;
        match bound::may_white_out(request) {
            true => QuotaLimits {
                bytes: self.limits.bytes.saturating_add(bytes),
                files: self.limits.files.map(|limit| limit.saturating_add(files)),
            },
            false => self.limits,
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves what `request` can add at most, and opens the accounts of its subjects. `makes_file` is whether there
    /// is no inode yet under the name that it gives.
    ///
    /// # Errors
    ///
    /// ENOSPC if that is not left.
    fn reserve(&self, request: &Changing<'_>, subjects: &Subjects, makes_file: bool) -> Result<Amount, Errno> {
        let mut most = bound::most(request);
        most.files = most.files.min(u64::from(makes_file));
        let mut ledger = self.ledger();
        let mut copied: SmallVec<[InodeKey; 6]> = SmallVec::new();
        for stat in subjects.iter().filter_map(Subject::stat) {
            let key = InodeKey::of(&stat);
            let is_copied = self.is_layered && bound::copies_up(request) && file_type(&stat) != FileType::Directory;
            if is_copied && !ledger.knows(key) && !copied.contains(&key) {
                // The overlay does not say whether a file has been copied already.
                most.bytes = most.bytes.saturating_add(allocated(&stat)).saturating_add(bound::SLACK);
                most.files += 1;
                copied.push(key);
            }
        }
        let mut reserved = ledger.reserve(self.limits_of(request), most);
        if reserved.is_err() && most.files == 0 && copied.is_empty() {
            // A write to blocks that are there adds none.
            let file =
                subjects.iter().find_map(|subject| if let Subject::File(file) = subject { Some(file) } else { None });
            if file.is_some_and(|file| bound::has_blocks(request, &file.fd)) {
                most = Amount::default();
                reserved = Ok(());
            }
        }
        reserved.inspect_err(|_| _ = self.refused.fetch_add(1, Relaxed))?;
        for stat in subjects.iter().filter_map(Subject::stat) {
            // A file that never had a name is the guest's.
            ledger.admit(&stat, stat.stx_nlink == 0 || copied.contains(&InodeKey::of(&stat)));
        }
        Ok(most)
    }
}

impl Passthrough {
    /// Serves a request that changes something within the quota, if there is one.
    ///
    /// # Errors
    ///
    /// ENOSPC if the request could add more than is left. (Not EDQUOT: to the guest this is the size of the file
    /// system, which STATFS reports.)
    pub(super) fn metered<T>(
        &self,
        request: &Changing<'_>,
        serve: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(quota) = self.quota.as_ref().filter(|quota| bound::is_relevant(request, quota.is_layered)) else {
            return serve();
        };
        let changes_names = request.changes().any(|changed| matches!(changed, Changed::Names | Changed::NewNames));
        let _names = changes_names.then(|| quota.names.lock().unwrap_or_else(PoisonError::into_inner));
        let subjects = self.subjects(request, quota.is_layered);
        let directory = makes(request.row.effect).then(|| self.inodes.get(request.nodeid).ok()).flatten();
        let made = || stat::statx_at(&directory.as_ref()?.fd, request.names[0]?.as_bytes(), stat::IDENTITY).ok();
        let was_there = made().is_some();
        let most = quota.reserve(request, &subjects, !was_there)?;

        let outcome = serve();

        let mut ledger = quota.ledger();
        // Within the lock: whoever has found the name meanwhile may have written, and charged what that took.
        if !was_there && let Some(made) = made() {
            ledger.remove(InodeKey::of(&made));
            ledger.admit(&made, true);
            ledger.charge(&made, || None);
        }
        let mut removed: SmallVec<[InodeKey; 6]> = SmallVec::new();
        for stat in subjects.iter().filter_map(Subject::stat) {
            ledger.charge(&stat, || self.inodes.nodeid_of(&stat));
            if stat.stx_nlink == 0 {
                removed.push(InodeKey::of(&stat));
            }
        }
        ledger.cancel(most);
        drop(ledger);
        // They may have been the last references to what has no name any more.
        drop(subjects);
        removed.into_iter().for_each(|key| quota.ledger().close_if_gone(key));
        outcome
    }

    /// Returns the inodes that a request may change. What cannot be found fails the request too.
    fn subjects(&self, request: &Changing<'_>, is_layered: bool) -> Subjects {
        let mut subjects = Subjects::new();
        let inode = |nodeid: Option<NodeId>| self.inode(nodeid?).ok().map(Subject::Inode);
        let file = |fh: Option<Handle>| self.handles.file(fh?).ok().map(Subject::File);
        let named = |nodeid: Option<NodeId>, name: Option<Name<'_>>| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = self.inodes.get(nodeid?).ok()?;
            path::open_beneath(&directory.fd, name?.as_bytes(), flags, Mode::empty()).ok().map(Subject::Named)
        };
        let [first, second] = request.names;
        for changed in request.changes() {
            match changed {
                Changed::Node => match file(request.handles().next()) {
                    // SETATTR also changes what the header names.
                    Some(file) if request.row.opcode != Opcode::Setattr => subjects.push(file),
                    file => subjects.extend(file.into_iter().chain(inode(Some(request.nodeid)))),
                },
                Changed::Argument => {
                    subjects.extend(file(request.handles().next_back()).or_else(|| inode(request.argument())));
                }
                Changed::Names => subjects.extend(inode(Some(request.nodeid))),
                Changed::NewNames => subjects.extend(inode(request.argument())),
                Changed::Named | Changed::Entry => subjects.extend(named(Some(request.nodeid), first)),
                Changed::Replaced => subjects.extend(named(request.argument(), second)),
                // They come with what they are the data of.
                Changed::Data | Changed::ArgumentData | Changed::EntryData => {}
            }
        }
        if is_layered && bound::opens_for_writing(request) {
            let by_name = || named(Some(request.nodeid), first);
            subjects.extend(if first.is_some() { by_name() } else { inode(Some(request.nodeid)) });
        }
        subjects
    }

    /// Returns leave to make a file without a name, while nobody else makes any.
    ///
    /// # Errors
    ///
    /// ENOSPC if nothing is left.
    pub(super) fn quota_turn(&self) -> Result<Option<MutexGuard<'_, ()>>, Errno> {
        let Some(quota) = &self.quota else { return Ok(None) };
        let turn = quota.names.lock().unwrap_or_else(PoisonError::into_inner);
        let most = Amount { bytes: bound::SLACK, files: 1 };
        let mut ledger = quota.ledger();
        ledger.reserve(quota.limits, most).inspect_err(|_| _ = quota.refused.fetch_add(1, Relaxed))?;
        ledger.cancel(most);
        Ok(Some(turn))
    }

    /// Notes that a file or directory was opened. Call it before the reply.
    pub(super) fn note_quota_open(&self, fh: Handle) {
        let Some(quota) = &self.quota else { return };
        let mut ledger = quota.ledger();
        let Some(stat) = self.handle_stat(fh) else { return };
        ledger.opened(InodeKey::of(&stat));
        // It never had a name, or has lost it while it was opened: then nobody else notes that it is still there.
        if stat.stx_nlink == 0 {
            ledger.admit(&stat, true);
            ledger.charge(&stat, || self.inodes.nodeid_of(&stat));
        }
    }

    /// Returns what to pass to [`note_quota_closed`](Self::note_quota_closed) once the handle is closed.
    pub(super) fn quota_key(&self, fh: Handle) -> Option<InodeKey> {
        self.quota.as_ref()?;
        self.handle_stat(fh).map(|stat| InodeKey::of(&stat))
    }

    fn handle_stat(&self, fh: Handle) -> Option<Statx> {
        let of = |fd: BorrowedFd<'_>| stat::statx(fd, AtFlags::empty(), stat::IDENTITY).ok();
        match self.handles.file(fh) {
            Ok(file) => of(file.fd.as_fd()),
            Err(_) => of(self.handles.directory(fh).ok()?.as_fd()),
        }
    }

    /// Notes that an inode was closed.
    pub(super) fn note_quota_closed(&self, key: Option<InodeKey>) {
        if let (Some(quota), Some(key)) = (&self.quota, key) {
            quota.ledger().closed(key);
        }
    }

    /// Notes that the guest knows an inode no longer.
    pub(super) fn note_quota_forgotten(&self, nodeid: NodeId) {
        if let Some(quota) = &self.quota {
            quota.ledger().forgotten(nodeid);
        }
    }

    /// Notes that a session has ended.
    pub(super) fn end_quota_session(&self) {
        if let Some(quota) = &self.quota {
            quota.ledger().end_session();
        }
    }

    /// Limits what STATFS says is there.
    pub(super) fn limit_statfs(&self, out: StatfsOut) -> StatfsOut {
        let Some(quota) = &self.quota else { return out };
        let left = quota.ledger().left(quota.limits);
        let unit = u64::from(out.frsize.get()).max(1);
        let mut limited = StatfsOut {
            blocks: out.blocks.get().min(quota.limits.bytes / unit).into(),
            bfree: out.bfree.get().min(left.bytes / unit).into(),
            bavail: out.bavail.get().min(left.bytes / unit).into(),
            ..out
        };
        if let (Some(files), Some(left)) = (quota.limits.files, left.files) {
            // Some file systems do not count files, and say 0.
            limited.files = files.into();
            limited.ffree = left.into();
        }
        limited
    }

    /// Returns the state of the quota, if there is one.
    pub(super) fn quota_gauges(&self) -> Option<QuotaGauges> {
        let quota = self.quota.as_ref()?;
        let used = quota.ledger().used();
        Some(QuotaGauges {
            bytes: used.bytes,
            bytes_limit: quota.limits.bytes,
            files: used.files,
            refused: quota.refused.load(Relaxed),
        })
    }
}

/// Returns whether an operation makes an inode under a name.
fn makes(effect: Effect) -> bool {
    match effect {
        Effect::Makes(made) => !matches!(made, MadeType::SameAs(_)),
        effect => effect == Effect::MakesAndOpens,
    }
}
