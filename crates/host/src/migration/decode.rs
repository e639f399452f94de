//! Reads a state. Nothing in it is believed: counts and lengths are limited before memory is taken for them.

use std::{borrow::Cow, collections::HashSet};

use super::{Error, FileHandle, Handle, Inode, Location, Negotiated, PATH_LEN_MAX, State, postcard::Reader, records};
use crate::sysfd::HANDLE_LEN_MAX;

/// Bytes of the shortest inode: number, references, location, no handle.
const INODE_LEN_MIN: usize = 4;
/// Bytes of the shortest open file: number, inode, kind, flags.
const HANDLE_ENTRY_LEN_MIN: usize = 4;
/// Bytes of the shortest mount: number, empty path.
const MOUNT_LEN_MIN: usize = 2;
/// The most mounts: as many as Linux allows in a namespace.
const MOUNTS_MAX: usize = 100_000;

/// What a state may contain.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Inodes, not counting the root.
    pub inodes: usize,
    /// Open files and directories.
    pub handles: usize,
}

/// Reads a state.
///
/// # Errors
///
/// If it is truncated, exceeds `limits`, has an unknown version, or says something twice.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<State<'_>, Error> {
    let mut reader = Reader::new(bytes);
    let version = reader.u64()?;
    if version > 1 {
        return Err(Error::Version(version.saturating_add(1)));
    }
    let mut state = State::default();
    for _ in 0..reader.count("inodes", limits.inodes.saturating_add(1), INODE_LEN_MIN)? {
        state.inodes.push(inode(&mut reader)?);
    }
    state.next_inode = reader.u64()?;
    for _ in 0..reader.count("open files", limits.handles, HANDLE_ENTRY_LEN_MIN)? {
        state.handles.push(handle(&mut reader)?);
    }
    state.next_handle = reader.u64()?;
    state.negotiated = Negotiated {
        writeback: reader.bool()?,
        announce_submounts: reader.bool()?,
        posix_acl: reader.bool()?,
        sup_group_extension: reader.bool()?,
    };
    if version == 1 {
        for _ in 0..reader.count("mounts", MOUNTS_MAX, MOUNT_LEN_MIN)? {
            let mount = reader.u64()?;
            state.mounts.push((mount, Cow::Borrowed(text(&mut reader)?)));
        }
    }
    records::read(reader.rest(), &mut state)?;
    check(&state)?;
    Ok(state)
}

fn inode<'a>(reader: &mut Reader<'a>) -> Result<Inode<'a>, Error> {
    let (id, refcount) = (reader.u64()?, reader.u64()?);
    let location = match reader.u32()? {
        0 => Location::Root,
        1 => {
            let parent = reader.u64()?;
            Location::Child { parent, name: Cow::Borrowed(text(reader)?.as_bytes()) }
        }
        2 => Location::Lost,
        3 => Location::Path(Cow::Borrowed(text(reader)?.as_bytes())),
        4 => Location::Handle(file_handle(reader)?),
        _ => return Err(Error::Malformed("an unknown kind of location")),
    };
    let handle = if reader.bool()? { Some(file_handle(reader)?) } else { None };
    Ok(Inode { id, refcount, location, handle })
}

fn file_handle<'a>(reader: &mut Reader<'a>) -> Result<FileHandle<'a>, Error> {
    let (mount, type_) = (reader.u64()?, reader.i32()?);
    let bytes = Cow::Borrowed(reader.bytes("bytes in a file handle", HANDLE_LEN_MAX)?);
    Ok(FileHandle { mount, type_, bytes })
}

fn handle(reader: &mut Reader<'_>) -> Result<Handle, Error> {
    let (id, inode) = (reader.u64()?, reader.u64()?);
    match reader.u32()? {
        0 => Ok(Handle { id, inode, flags: reader.i32()? }),
        _ => Err(Error::Malformed("an unknown kind of open file")),
    }
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Error> {
    let bytes = reader.bytes("bytes in a path", PATH_LEN_MAX)?;
    std::str::from_utf8(bytes).map_err(|_| Error::Malformed("a path that is not UTF-8"))
}

/// Checks what the parts say together.
fn check(state: &State<'_>) -> Result<(), Error> {
    let mut ids = HashSet::with_capacity(state.inodes.len());
    for inode in &state.inodes {
        if inode.id == 0 || !ids.insert(inode.id) {
            return Err(Error::Malformed("an inode without a number of its own"));
        }
        if (inode.id == ROOT) != (inode.location == Location::Root) {
            return Err(Error::Malformed("a root at another place, or something else at its place"));
        }
        if !is_before(inode.id, state.next_inode) {
            return Err(Error::Malformed("an inode whose number is not given out yet"));
        }
    }
    if !state.inodes.is_empty() && !ids.contains(&ROOT) {
        return Err(Error::Malformed("inodes without a root"));
    }
    let mut handles = HashSet::with_capacity(state.handles.len());
    for handle in &state.handles {
        if !handles.insert(handle.id) {
            return Err(Error::Malformed("two open files of one number"));
        }
        if !ids.contains(&handle.inode) {
            return Err(Error::Malformed("an open file of an unknown inode"));
        }
        if !is_before(handle.id, state.next_handle) {
            return Err(Error::Malformed("an open file whose number is not given out yet"));
        }
    }
    Ok(())
}

/// The number of the root (FUSE_ROOT_ID).
const ROOT: u64 = 1;

/// Returns whether `id` was given out before `next`. The largest number cannot be exceeded and is never given out.
fn is_before(id: u64, next: u64) -> bool {
    id < next || id == ROOT
}
