//! Changes by other processes, as the file system announces them to the agent of the guest.
//!
//! What this process does on behalf of its guest is left out: the guest's kernel has done it itself.

use transom_host::{
    passthrough::{HostChange, Passthrough},
    replay::Kind,
    sysfd::RawFileHandle,
};
use transom_watch::{Author, Change, ChangeKind, EntryName, Object};

/// Announces `change`, if somebody else made it.
pub(super) fn changed(file_system: &Passthrough, change: &Change<'_>) {
    // Without knowing who did it, the guest would be told what it did itself.
    if let Author::Own | Author::Unknown = change.author {
        return;
    }
    let kind = match change.kind {
        ChangeKind::Created => Kind::Created,
        ChangeKind::Modified => Kind::Modified,
        ChangeKind::Attributes => Kind::Attributes,
        ChangeKind::ClosedWritten => Kind::Closed,
        ChangeKind::Renamed { .. } | ChangeKind::MovedIn | ChangeKind::MovedOut => Kind::Renamed,
        ChangeKind::Deleted => Kind::Removed,
    };
    let (from, to) = match change.kind {
        ChangeKind::Renamed { to } => (change.place, Some(to)),
        // One of the directories is not observed, since the guest does not know it.
        ChangeKind::MovedIn => (None, change.place),
        _ => (change.place, None),
    };
    let (old, new) = (from.as_ref().and_then(named), to.as_ref().and_then(named));
    let object = change.object.and_then(handle);
    file_system.host_changed(&HostChange {
        kind,
        is_directory: change.is_dir,
        name: old.as_ref().map(|(parent, name)| (parent, *name)),
        new_name: new.as_ref().map(|(parent, name)| (parent, *name)),
        object: object.as_ref(),
    });
}

fn named<'a>(place: &EntryName<'a>) -> Option<(RawFileHandle, &'a [u8])> {
    Some((handle(place.parent)?, place.name))
}

fn handle(object: Object<'_>) -> Option<RawFileHandle> {
    match object {
        Object::Handle(handle) => Some(RawFileHandle { type_: handle.handle_type(), bytes: handle.bytes().into() }),
        // This daemon registers none.
        Object::Held(_) => None,
    }
}
