//! The bytes of a message of inotify(7), and the changes that messages stand for.

use rustix::fs::inotify::ReadFlags;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{Author, Change, ChangeKind, EntryName, Object, WatchError};

/// `struct inotify_event`, which a name of `len` bytes follows.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    watch: i32,
    mask: u32,
    cookie: u32,
    len: u32,
}
const _: () = assert!(size_of::<Header>() == 16);

/// One message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) watch: i32,
    pub(super) flags: ReadFlags,
    cookie: u32,
    /// Empty for a change of the watched object itself.
    name: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the first message of `bytes`, and returns it with the rest.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WatchError> {
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| WatchError::Record("message is cut off"))?;
        let padded = rest.get(..header.len as usize).ok_or(WatchError::Record("length of a name"))?;
        let name = padded.split(|&byte| byte == 0).next().unwrap_or_default();
        let flags = ReadFlags::from_bits_retain(header.mask);
        Ok((Self { watch: header.watch, flags, cookie: header.cookie, name }, &rest[padded.len()..]))
    }

    /// Returns the change of a name in, or of, the object that is held as `id`.
    pub(super) fn change(&self, id: u64) -> Option<Change<'a>> {
        let place = (!self.name.is_empty()).then_some(EntryName { parent: Object::Held(id), name: self.name });
        let of_names = [
            (ReadFlags::CREATE, ChangeKind::Created),
            (ReadFlags::MOVED_TO, ChangeKind::MovedIn),
            (ReadFlags::MOVED_FROM, ChangeKind::MovedOut),
            (ReadFlags::DELETE, ChangeKind::Deleted),
        ];
        let of_contents = [
            (ReadFlags::MODIFY, ChangeKind::Modified),
            (ReadFlags::ATTRIB, ChangeKind::Attributes),
            (ReadFlags::CLOSE_WRITE, ChangeKind::ClosedWritten),
        ];
        let possible = of_names.iter().filter(|_| place.is_some()).chain(&of_contents);
        let (_, kind) = possible.into_iter().find(|(flag, _)| self.flags.contains(*flag))?;
        let object = place.is_none().then_some(Object::Held(id));
        let is_dir = self.flags.contains(ReadFlags::ISDIR);
        Some(Change { kind: *kind, is_dir, place, object, author: Author::Unknown })
    }

    /// Returns whether `self` and the message after it are the two halves of one rename.
    pub(super) fn moves_to(&self, next: &Self) -> bool {
        self.flags.contains(ReadFlags::MOVED_FROM)
            && next.flags.contains(ReadFlags::MOVED_TO)
            && self.cookie == next.cookie
    }
}
