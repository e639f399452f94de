//! Announces changes that other processes make in the share, to the agent of the guest (`--events`).
//!
//! A thread of its own reads them from the kernel. What this process does on behalf of its guest is left out.

use std::{io, sync::Arc, thread};

use rustix::event::{PollFd, PollFlags, poll};
use transom_host::{
    passthrough::{HostChange, Passthrough},
    replay::Kind,
    server::Server,
    sysfd::RawFileHandle,
};
use transom_watch::{Author, Change, ChangeKind, EntryName, Event, Object, Watch};

/// Starts the thread, which ends with the process.
pub fn announce(mut watch: Watch, server: Arc<Server<Passthrough>>) -> io::Result<()> {
    thread::Builder::new().name("events".into()).spawn(move || {
        loop {
            match watch.read(|event| tell(server.file_system(), &event)) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "changes of the host are no longer announced");
                    return;
                }
            }
            let _ = poll(&mut [PollFd::new(&watch, PollFlags::IN)], None);
        }
    })?;
    Ok(())
}

fn tell(file_system: &Passthrough, event: &Event<'_>) {
    let change = match event {
        Event::Overflow => {
            if let Some(replays) = file_system.replays() {
                replays.overflow();
            }
            return;
        }
        // Without knowing who did it, the guest would be told what it did itself.
        Event::Change(Change { author: Author::Own | Author::Unknown, .. }) => return,
        Event::Change(change) => change,
    };
    let kind = match change.kind {
        ChangeKind::Created | ChangeKind::MovedIn => Kind::Created,
        ChangeKind::Modified => Kind::Modified,
        ChangeKind::Attributes => Kind::Attributes,
        ChangeKind::ClosedWritten => Kind::Closed,
        ChangeKind::Renamed { .. } => Kind::Renamed,
        ChangeKind::MovedOut | ChangeKind::Deleted => Kind::Removed,
    };
    let Some(place) = change.place else {
        if kind == Kind::Attributes
            && let Some(directory) = change.object.filter(|_| change.is_dir).and_then(handle)
        {
            file_system.host_changed_directory(&directory);
        }
        return;
    };
    let to = match change.kind {
        ChangeKind::Renamed { to } => Some(to),
        _ => None,
    };
    let Some((parent, name)) = named(&place) else { return };
    let new = to.as_ref().and_then(named);
    let new_name = new.as_ref().map(|(parent, name)| (parent, *name));
    file_system.host_changed(&HostChange { kind, is_directory: change.is_dir, name: (&parent, name), new_name });
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
