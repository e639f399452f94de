//! The bytes of one event, as linux/fanotify.h has them.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{ChangeKind, EntryName, HandleRef, Object, WatchError};

/// `struct fanotify_event_metadata`.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Metadata {
    event_len: u32,
    vers: u8,
    reserved: u8,
    metadata_len: u16,
    mask: u64,
    fd: i32,
    pid: u32,
}
const _: () = assert!(size_of::<Metadata>() == 24);

/// `struct fanotify_event_info_fid` up to the bytes of the handle. The header's length includes all that follows.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Info {
    info_type: u8,
    pad: u8,
    len: u16,
    file_system: [u32; 2],
    handle_bytes: u32,
    handle_type: i32,
}
const _: () = assert!(size_of::<Info>() == 20);

/// `struct fanotify_event_info_header`, which each kind of information begins with.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct InfoHeader {
    info_type: u8,
    pad: u8,
    len: u16,
}
const _: () = assert!(size_of::<InfoHeader>() == 4);

/// One event. It may stand for several changes of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    mask: u64,
    pub(super) pid: u32,
    /// The name under which it happened; of a rename, the old one if its directory is observed.
    place: Option<EntryName<'a>>,
    /// The new name of a rename, if its directory is observed.
    new_place: Option<EntryName<'a>>,
    pub(super) object: Option<Object<'a>>,
}

impl<'a> Record<'a> {
    /// Reads the first event of `bytes`, and returns it with the rest.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WatchError> {
        let (metadata, _) = Metadata::read_from_prefix(bytes).map_err(|_| WatchError::Record("metadata is cut off"))?;
        if metadata.vers != libc::FANOTIFY_METADATA_VERSION {
            return Err(WatchError::Record("version of the metadata"));
        }
        let (start, end) = (usize::from(metadata.metadata_len), metadata.event_len as usize);
        if start < size_of::<Metadata>() || start > end || end > bytes.len() {
            return Err(WatchError::Record("length of the event"));
        }
        let mut record = Self { mask: metadata.mask, pid: metadata.pid, place: None, new_place: None, object: None };
        let mut infos = &bytes[start..end];
        while !infos.is_empty() {
            let (header, _) =
                InfoHeader::read_from_prefix(infos).map_err(|_| WatchError::Record("information is cut off"))?;
            let len = usize::from(header.len);
            if len < size_of::<InfoHeader>() || len > infos.len() {
                return Err(WatchError::Record("length of the information"));
            }
            record.add(header.info_type, &infos[..len])?;
            infos = &infos[len..];
        }
        Ok((record, &bytes[end..]))
    }

    /// Adds one piece of information. Unknown types are skipped: later kernels may add some.
    fn add(&mut self, info_type: u8, info: &'a [u8]) -> Result<(), WatchError> {
        match info_type {
            libc::FAN_EVENT_INFO_TYPE_FID | libc::FAN_EVENT_INFO_TYPE_DFID => {
                let (handle, _) = handle_and_name(info)?;
                self.object = Some(Object::Handle(handle));
            }
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME | libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME => {
                match handle_and_name(info)? {
                    // A directory's own change.
                    (handle, b"." | b"") => self.object = Some(Object::Handle(handle)),
                    (handle, name) => self.place = Some(EntryName { parent: Object::Handle(handle), name }),
                }
            }
            libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME => {
                let (handle, name) = handle_and_name(info)?;
                self.new_place = Some(EntryName { parent: Object::Handle(handle), name });
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the name under which it happened; of a rename, the old one unless that is not observed.
    pub(super) fn place(&self) -> Option<EntryName<'a>> {
        self.place.or(self.new_place)
    }

    pub(super) fn is_overflow(&self) -> bool {
        self.mask & libc::FAN_Q_OVERFLOW != 0
    }

    pub(super) fn is_dir(&self) -> bool {
        self.mask & libc::FAN_ONDIR != 0
    }

    /// Returns the changes that the event stands for, in the order of [`ChangeKind`]'s variants.
    pub(super) fn kinds(&self) -> impl Iterator<Item = ChangeKind<'a>> {
        let renamed = match (self.place, self.new_place) {
            (Some(_), Some(to)) => ChangeKind::Renamed { to },
            (None, Some(_)) => ChangeKind::MovedIn,
            (_, None) => ChangeKind::MovedOut,
        };
        let before = [
            (libc::FAN_CREATE, ChangeKind::Created),
            (libc::FAN_MODIFY, ChangeKind::Modified),
            (libc::FAN_ATTRIB, ChangeKind::Attributes),
            (libc::FAN_CLOSE_WRITE, ChangeKind::ClosedWritten),
        ];
        let all = before.into_iter().chain([(libc::FAN_RENAME, renamed), (libc::FAN_DELETE, ChangeKind::Deleted)]);
        let mask = self.mask;
        all.filter(move |(bit, _)| mask & bit != 0).map(|(_, kind)| kind)
    }
}

/// Reads a handle and the name after it, which may be empty.
fn handle_and_name(info: &[u8]) -> Result<(HandleRef<'_>, &[u8]), WatchError> {
    let (fixed, rest) = Info::read_from_prefix(info).map_err(|_| WatchError::Record("handle is cut off"))?;
    let len = fixed.handle_bytes as usize;
    let bytes = rest.get(..len).ok_or(WatchError::Record("length of a handle"))?;
    let name = rest[len..].split(|&byte| byte == 0).next().unwrap_or_default();
    let [low, high] = fixed.file_system.map(u64::from);
    Ok((HandleRef { file_system: low | high << 32, type_: fixed.handle_type, bytes }, name))
}

#[cfg(test)]
#[path = "record_test.rs"]
mod record_test;
