//! Changes of the host that a commit would undo.

use std::path::PathBuf;

use crate::{Change, Difference, Kind, record::Record};

/// A path that has changed on the host since the guest saw it, and in the guest too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path in the directory.
    pub path: PathBuf,
    /// What has happened on the host.
    pub reason: &'static str,
}

/// Returns what is in conflict. `is_resumed` says that a commit of the same changes was stopped: what it has done by
/// then is no conflict.
pub(crate) fn conflicts(changes: &[Change], record: &Record, is_resumed: bool) -> Vec<Conflict> {
    let conflict = |change: &Change| {
        let reason = reason(change, record, is_resumed)?;
        Some(Conflict { path: change.path.clone(), reason })
    };
    changes.iter().filter_map(conflict).collect()
}

fn reason(change: &Change, record: &Record, is_resumed: bool) -> Option<&'static str> {
    let after_is_directory = change.after.is_some_and(|meta| meta.is_directory());
    match (&change.before, record.get(&change.path)) {
        // Both have made the directory, or it is still there: what counts is whose permissions it gets.
        (Some(before), entry) if before.is_directory() && after_is_directory => match entry {
            _ if change.difference != Difference::Mode => None,
            Some(entry) if entry.has_rights_of(before) => None,
            // A stopped commit has made it, or made it writable.
            Some(entry) if is_resumed && (entry.kind != Kind::Directory || entry.mode | 0o700 == before.mode) => None,
            Some(_) => Some("changed on the host"),
            None => (!is_resumed).then_some("created on the host"),
        },
        (Some(before), Some(entry)) if entry.is_of(before) => None,
        // The content is the same: a stopped commit has written it, or the host has made the same change.
        (Some(_), _) if matches!(change.difference, Difference::Times) => None,
        (Some(_), _) if is_resumed && matches!(change.difference, Difference::Mode | Difference::Linked) => None,
        (Some(_), Some(_)) => Some("changed on the host"),
        (Some(_), None) => Some("created on the host"),
        (None, Some(_)) if !is_resumed => Some("removed on the host"),
        (None, _) => None,
    }
}
