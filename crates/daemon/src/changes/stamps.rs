//! Changes by other processes of the host, stamped in the version table of the coherence group.
//!
//! One daemon of the group does it: see `transom_host::group::Group::watches_host`. What the daemons of the group
//! change on behalf of their guests has its stamp already. It is recognised by the pid, which says nothing of daemons
//! in pid namespaces of their own; their changes are stamped twice. Whatever is in doubt gets a stamp, or invalidates
//! everything.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fs::{AtFlags, OFlags, StatxFlags, statx},
    io::Errno,
};
use transom_host::{group::Group, passthrough::Passthrough, server::Server};
use transom_watch::{Author, Change, ChangeKind, InodeNumbers, Object};

/// Pause between two measurements of the delay, which cost two system calls.
const TIMED_EVERY: Duration = Duration::from_millis(10);

/// Stamps changes while it is this daemon's turn.
pub(super) struct Stamps {
    numbers: InodeNumbers,
    /// Its file system is in a group.
    server: Arc<Server<Passthrough>>,
    /// The daemons of the group that were known when the queue was empty: a process that had such a pid earlier is not
    /// in the queue any more.
    daemons: Vec<u32>,
    /// Whether the queue has been empty since this process started. Until then it may hold changes by an earlier
    /// process with this one's pid.
    has_caught_up: bool,
    timed_at: Option<Instant>,
}

impl Stamps {
    /// Offers to stamp. `reads_all`: changes are read while it is not this daemon's turn.
    pub(super) fn new(numbers: InodeNumbers, server: Arc<Server<Passthrough>>, reads_all: bool) -> Self {
        let stamps = Self { numbers, server, daemons: Vec::new(), has_caught_up: false, timed_at: None };
        if let Some(group) = stamps.group() {
            group.offer_host_watch(!reads_all);
        }
        stamps
    }

    /// Returns whether it is this daemon's turn.
    pub(super) fn are_due(&self) -> bool {
        self.group().is_some_and(Group::watches_host)
    }

    /// The queue is empty.
    pub(super) fn caught_up(&mut self) {
        self.has_caught_up = true;
        let pids = self.server.file_system().group().filter(|group| group.watches_host()).map(Group::pids);
        self.daemons.clear();
        self.daemons.extend(pids.into_iter().flatten());
    }

    /// Stamps what has changed. `inside` is the part of the change in the share.
    pub(super) fn changed(&mut self, change: &Change<'_>, inside: Option<&Change<'_>>) {
        let is_own = match change.author {
            Author::Own => self.has_caught_up,
            Author::Other(pid) => pid.is_some_and(|pid| self.daemons.contains(&pid.get())),
            Author::Unknown => false,
        };
        let Some(group) = self.server.file_system().group().filter(|group| !is_own && group.watches_host()) else {
            return;
        };
        match inside {
            // What is below it may have changed while it was outside, or, before it left, unseen: by the time that a
            // change is read, its directory may be outside.
            Some(Change { kind: ChangeKind::MovedIn | ChangeKind::MovedOut, is_dir: true, .. }) => {
                group.invalidate_all();
            }
            // Any file of the file system, whose last name may have been outside. If it is gone, nobody has it open,
            // and its name, if it was inside, is a change of its own.
            Some(inside) if is_nameless_file(inside) && self.is_gone(inside) => return,
            Some(inside) => self.stamp(group, &objects(inside)),
            // The file may have another name, which is inside.
            None if !change.is_dir && self.has_other_names(change) => self.stamp(group, &[change.object]),
            None => return,
        }
        if self.timed_at.is_none_or(|at| at.elapsed() >= TIMED_EVERY) {
            self.timed_at = Some(Instant::now());
            if let Some(delay) = self.delay(change) {
                group.host_stamps().note_delay(delay);
            }
        }
    }

    /// Changes were lost.
    pub(super) fn lost(&self) {
        if let Some(group) = self.group().filter(|group| group.watches_host()) {
            group.invalidate_all();
        }
    }

    /// No more changes are seen.
    pub(super) fn end(&self) {
        if let Some(group) = self.group() {
            self.lost();
            group.withdraw_host_watch();
        }
    }

    fn group(&self) -> Option<&Group> {
        self.server.file_system().group()
    }

    fn stamp(&self, group: &Group, objects: &[Option<Object<'_>>]) {
        let mut slots = Vec::with_capacity(objects.len());
        for object in objects.iter().flatten() {
            // This daemon registers none that are held.
            let Object::Handle(handle) = object else { continue };
            match self.numbers.ino(*handle) {
                Ok(ino) => slots.push(group.slot(ino)),
                // A guest may know an inode that is gone.
                Err(_) => group.invalidate_all(),
            }
        }
        group.stamp_host_change(&slots);
    }

    fn is_gone(&self, change: &Change<'_>) -> bool {
        let Some(Object::Handle(handle)) = change.object else { return false };
        self.numbers.open(handle, OFlags::PATH).err() == Some(Errno::STALE)
    }

    fn has_other_names(&self, change: &Change<'_>) -> bool {
        let Some(Object::Handle(handle)) = change.object else { return false };
        let links = self
            .numbers
            .open(handle, OFlags::PATH)
            .and_then(|fd| statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK));
        may_have_other_names(links.map(|stat| stat.stx_nlink), change.kind)
    }

    /// Returns how long ago the inode changed last, or `None` if it is gone.
    fn delay(&self, change: &Change<'_>) -> Option<Duration> {
        let object = change.object.or(change.place.map(|place| place.parent));
        let Some(Object::Handle(handle)) = object else { return None };
        let fd = self.numbers.open(handle, OFlags::PATH).ok()?;
        let changed = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::CTIME).ok()?.stx_ctime;
        let changed = Duration::new(changed.tv_sec.try_into().ok()?, changed.tv_nsec);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        // A clock that was set back says nothing.
        now.checked_sub(changed)
    }
}

/// Returns whether a file with so many links may have another name than the one that has changed. In doubt it may: a
/// process that is out of descriptors cannot look.
fn may_have_other_names(links: Result<u32, Errno>, kind: ChangeKind<'_>) -> bool {
    // Of a name that is gone, any that is left is another one.
    let own = if kind == ChangeKind::Deleted { 0 } else { 1 };
    match links {
        Ok(links) => links > own,
        Err(errno) => errno != Errno::STALE,
    }
}

fn is_nameless_file(change: &Change<'_>) -> bool {
    change.place.is_none() && !change.is_dir
}

/// Returns the inodes that a change is about: directories whose names change, and the object.
fn objects<'a>(change: &Change<'a>) -> [Option<Object<'a>>; 3] {
    let to = match change.kind {
        ChangeKind::Renamed { to } => Some(to.parent),
        _ => None,
    };
    let directory = match change.kind {
        // The name stays as it is.
        ChangeKind::Modified | ChangeKind::Attributes | ChangeKind::ClosedWritten => None,
        _ => change.place.map(|place| place.parent),
    };
    [directory, to, change.object]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_looked_at_may_have_another_name() {
        use ChangeKind::{Deleted, Modified};
        let cases = [
            (Ok(1), Modified, false),
            (Ok(2), Modified, true),
            (Ok(0), Deleted, false),
            (Ok(1), Deleted, true),
            (Err(Errno::STALE), Modified, false),
            (Err(Errno::MFILE), Modified, true),
            (Err(Errno::NFILE), Deleted, true),
            (Err(Errno::NOMEM), Modified, true),
        ];
        for (links, kind, expected) in cases {
            assert_eq!(may_have_other_names(links, kind), expected, "{links:?}, {kind:?}");
        }
    }
}
