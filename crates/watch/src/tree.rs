//! Which changes of a file system are in one directory tree.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags, fstatvfs, openat, statx},
    io::Errno,
};

use crate::{Change, ChangeKind, HandleRef, Object, ObjectHandle};

/// Directories whose place is remembered. Each takes about 100 bytes.
const KNOWN_MAX: usize = 16_384;

/// Directories between a directory and the root. `PATH_MAX` limits paths that a program can name to half of that.
const DEPTH_MAX: usize = 4096;

/// A directory tree on one file system, as a filter of changes.
///
/// Whether a directory is below the root is found out by opening it by its handle and following `..`, and remembered
/// until a directory moves across the border of the tree: each directory in which other processes work costs one
/// look-up. The answer is of the moment of reading. After a directory has moved, earlier changes in it count where it
/// is now.
///
/// A file with several names is changed through one of them. If that one is outside of the tree, the change is
/// dropped: a consumer that knows its files by handle or inode looks at [`Change::object`] first.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    file_system: u64,
    identity: Identity,
    known: HashMap<ObjectHandle, bool>,
}

/// Device and inode.
type Identity = (u32, u32, u64);

impl Tree {
    /// Returns the tree below `root`, a directory, which may be `O_PATH`.
    ///
    /// # Errors
    ///
    /// EPERM if this process may not open handles, for which it needs CAP_DAC_READ_SEARCH, before Linux 6.11 in the
    /// initial user namespace; EOPNOTSUPP if the file system has no handles.
    pub fn new(root: impl AsFd) -> Result<Self, Errno> {
        // Handles are opened relative to a descriptor that is not O_PATH.
        let root = openat(root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        ObjectHandle::of(&root)?.as_ref().open(&root, OFlags::PATH)?;
        let (file_system, identity) = (fstatvfs(&root)?.f_fsid, identity(&root)?);
        Ok(Self { root, file_system, identity, known: HashMap::new() })
    }

    /// Returns the part of `change` in this tree, or `None`. A change whose place cannot be determined is in the tree.
    ///
    /// A name that moves across the border of the tree appears or disappears.
    pub fn narrow<'a>(&mut self, change: &Change<'a>) -> Option<Change<'a>> {
        let from = match (change.place, change.object) {
            (Some(place), _) => self.has(place.parent),
            // A directory itself. The root's own change is in the tree, too.
            (None, Some(object)) if change.is_dir => self.has(object),
            (None, _) => None,
        };
        let ChangeKind::Renamed { to } = change.kind else { return from.unwrap_or(true).then_some(*change) };
        let to_is_inside = self.has(to.parent);
        // If it is known to have stayed on one side, what is below it is where it was. If one of the answers is
        // already of a later move across the border, that move is still to be read.
        if change.is_dir && (from.is_none() || from != to_is_inside) {
            self.known.clear();
        }
        match (from.unwrap_or(true), to_is_inside.unwrap_or(true)) {
            (true, true) => Some(*change),
            (true, false) => Some(Change { kind: ChangeKind::MovedOut, ..*change }),
            (false, true) => Some(Change { kind: ChangeKind::MovedIn, place: Some(to), ..*change }),
            (false, false) => None,
        }
    }

    /// Returns whether a directory is in the tree, or `None` if that cannot be determined: it is gone, or its handle
    /// may not be opened.
    fn has(&mut self, directory: Object<'_>) -> Option<bool> {
        // What was passed to `Watch::hold` is in use.
        let Object::Handle(handle) = directory else { return Some(true) };
        if handle.file_system != self.file_system {
            return Some(false);
        }
        let owned = handle.to_owned();
        if let Some(&is_below) = self.known.get(&owned) {
            return Some(is_below);
        }
        let is_below = self.find(handle).ok()?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(owned, is_below);
        Some(is_below)
    }

    /// Follows `..` from a directory to the root of this tree or of the file system.
    fn find(&self, directory: HandleRef<'_>) -> Result<bool, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = directory.open(&self.root, flags)?;
        let mut last = None;
        for _ in 0..DEPTH_MAX {
            let here = identity(&at)?;
            if here == self.identity {
                return Ok(true);
            }
            // The root of the file system is its own parent, and another file system is above it.
            if last.is_some_and(|(major, minor, ino)| (major, minor) != (here.0, here.1) || ino == here.2) {
                return Ok(false);
            }
            last = Some(here);
            at = match openat(&at, "..", flags, Mode::empty()) {
                // The root is the root of a bind mount, and this directory is outside of it.
                Err(Errno::NOENT) => return Ok(false),
                parent => parent?,
            };
        }
        Ok(false)
    }
}

fn identity(fd: impl AsFd) -> Result<Identity, Errno> {
    let stat = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

#[cfg(test)]
#[path = "tree_test.rs"]
mod tests;
