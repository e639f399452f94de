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
        ChangeKind::Created | ChangeKind::MovedIn => Kind::Created,
        ChangeKind::Modified => Kind::Modified,
        ChangeKind::Attributes => Kind::Attributes,
        ChangeKind::ClosedWritten => Kind::Closed,
        ChangeKind::Renamed { .. } => Kind::Renamed,
        ChangeKind::MovedOut | ChangeKind::Deleted => Kind::Removed,
    };
    let to = match change.kind {
        ChangeKind::Renamed { to } => Some(to),
        _ => None,
    };
    let (old, new) = (change.place.as_ref().and_then(named), to.as_ref().and_then(named));
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
