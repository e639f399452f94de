//! Permission events of fanotify.

#![expect(unsafe_code, reason = "system calls that rustix does not have, and descriptors received as numbers")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::null,
};

use rustix::{
    io::{Errno, read, write},
    process::Pid,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `FAN_PRE_ACCESS` of linux/fanotify.h: before contents are read or changed.
const FAN_PRE_ACCESS: u64 = 0x0010_0000;
/// `FAN_EVENT_INFO_TYPE_RANGE` of linux/fanotify.h.
const INFO_TYPE_RANGE: u8 = 6;

/// An access to a marked file. The thread waits for the verdict.
#[derive(Debug)]
pub(crate) struct Event {
    /// The file, opened for reading; its descriptor identifies the event.
    pub(crate) file: OwnedFd,
    /// The thread, or `None` if it is not visible in our pid namespace.
    pub(crate) thread: Option<Pid>,
    pub(crate) kind: EventKind,
}

/// The kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The file is opened.
    Open,
    /// Bytes are read or changed, rounded to pages. A truncation has `count` 0 and the new size as `offset`.
    Access { offset: u64, count: u64 },
}

/// Whether an access may proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessVerdict {
    /// It proceeds.
    Allow,
    /// It fails with EPERM.
    Deny,
}

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
    pid: i32,
}
const _: () = assert!(size_of::<Metadata>() == 24);

/// `struct fanotify_event_info_range`, which follows the metadata of an access.
#[derive(Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Range {
    info_type: u8,
    pad: u8,
    len: u16,
    pad2: u32,
    offset: u64,
    count: u64,
}
const _: () = assert!(size_of::<Range>() == 24);

/// `struct fanotify_response`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Response {
    fd: i32,
    response: u32,
}

/// Opens a group for permission events. Needs CAP_SYS_ADMIN.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    const FAN_CLASS_PRE_CONTENT: u32 = 8;
    let flags = libc::FAN_CLOEXEC
        | FAN_CLASS_PRE_CONTENT
        | libc::FAN_REPORT_TID
        | libc::FAN_UNLIMITED_QUEUE
        | libc::FAN_UNLIMITED_MARKS;
    let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
    // SAFETY: the call takes no pointer.
    let fd = checked(unsafe { libc::fanotify_init(flags, files.cast_unsigned()) })?;
    // SAFETY: the call has just returned this descriptor, which no one else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Marks the inode of `file`, so that `group` receives its events. Needs permission to read the file.
///
/// # Errors
///
/// Returns EINVAL if the kernel has no such events, and EOPNOTSUPP or EINVAL if the file system does not support them.
pub(crate) fn mark(group: impl AsFd, file: BorrowedFd<'_>) -> Result<(), Errno> {
    change(group, libc::FAN_MARK_ADD, file)
}

/// Undoes [`mark`].
pub(crate) fn unmark(group: impl AsFd, file: BorrowedFd<'_>) -> Result<(), Errno> {
    change(group, libc::FAN_MARK_REMOVE, file)
}

fn change(group: impl AsFd, how: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
    let group = group.as_fd().as_raw_fd();
    // SAFETY: a null path is valid, and stands for the file of the descriptor.
    checked(unsafe { libc::fanotify_mark(group, how, FAN_PRE_ACCESS | libc::FAN_OPEN_PERM, file.as_raw_fd(), null()) })
        .map(drop)
}

/// Waits for events, and passes each to `each`.
///
/// # Errors
///
/// Returns EPROTO for events of an unknown format, the errors of read(2), and those of `each`.
pub(crate) fn wait(group: impl AsFd, mut each: impl FnMut(Event) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut buffer = [0; 4096];
    let len = match read(&group, &mut buffer) {
        Ok(len) => len,
        Err(errno @ (Errno::BADF | Errno::INVAL | Errno::FAULT)) => return Err(errno),
        // The kernel could not open the file of an event, and has denied the access itself.
        Err(_) => 0,
    };
    let mut rest = &buffer[..len];
    while !rest.is_empty() {
        let (metadata, _) = Metadata::read_from_prefix(rest).map_err(|_| Errno::PROTO)?;
        let event_len = metadata.event_len as usize;
        if metadata.vers != libc::FANOTIFY_METADATA_VERSION
            || event_len < size_of::<Metadata>()
            || event_len > rest.len()
        {
            return Err(Errno::PROTO);
        }
        let (event, others) = rest.split_at(event_len);
        rest = others;
        if metadata.fd < 0 {
            continue;
        }
        // SAFETY: the read opened this descriptor for us, and each event has its own.
        let file = unsafe { OwnedFd::from_raw_fd(metadata.fd) };
        let kind = match Range::read_from_prefix(event.get(metadata.metadata_len.into()..).unwrap_or_default()) {
            Ok((range, _)) if metadata.mask & FAN_PRE_ACCESS != 0 && range.info_type == INFO_TYPE_RANGE => {
                EventKind::Access { offset: range.offset, count: range.count }
            }
            // The range is unknown.
            _ if metadata.mask & FAN_PRE_ACCESS != 0 => EventKind::Access { offset: 0, count: u64::MAX },
            _ => EventKind::Open,
        };
        each(Event { file, thread: Pid::from_raw(metadata.pid), kind })?;
    }
    Ok(())
}

/// Sends the verdict for an event.
pub(crate) fn answer(group: impl AsFd, event: &Event, verdict: AccessVerdict) -> Result<(), Errno> {
    let response = match verdict {
        AccessVerdict::Allow => libc::FAN_ALLOW,
        AccessVerdict::Deny => libc::FAN_DENY,
    };
    match write(group, Response { fd: event.file.as_raw_fd(), response }.as_bytes()) {
        // The thread was killed meanwhile.
        Err(Errno::NOENT) => Ok(()),
        result => result.map(drop),
    }
}

fn checked(result: i32) -> Result<i32, Errno> {
    if result >= 0 { Ok(result) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}
