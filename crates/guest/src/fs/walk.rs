//! Resolving a path, component by component.
//!
//! A [`Walk`] stands in a directory and remembers the way to it, so that `..` needs no request. A short way needs no
//! allocation.

use alloc::{sync::Arc, vec::Vec};

use transom_wire::Name;

use super::{
    Fs,
    path::{self, Last},
    permission::EXECUTE,
};
use crate::{Errno, Platform, session::Caller, volume::Inode};

/// Maximum number of symbolic links in one path, as in Linux.
const LINKS_MAX: u32 = 40;

/// Length of the way that is stored in the walk itself: most paths are shorter.
const SHORT: usize = 8;

pub(super) struct Walk<'f, P: Platform> {
    pub(super) fs: &'f Fs<P>,
    pub(super) caller: Caller<'f>,
    /// Whether to look names up on the server even if they are cached.
    is_fresh: bool,
    links: u32,
    /// How many of the directories on the way to the current directory also lead here, at least 1.
    base: usize,
    /// The directories after these.
    way: Way<P>,
    /// The names starting at the root, if they are recorded.
    names: Option<Vec<Vec<u8>>>,
}

/// A sequence of inodes.
struct Way<P: Platform> {
    short: [Option<Arc<Inode<P>>>; SHORT],
    rest: Vec<Arc<Inode<P>>>,
    len: usize,
}

impl<'f, P: Platform> Walk<'f, P> {
    pub(super) fn new(fs: &'f Fs<P>, is_fresh: bool) -> Self {
        let way = Way { short: [const { None }; SHORT], rest: Vec::new(), len: 0 };
        Self { fs, caller: fs.caller(), is_fresh, links: 0, base: fs.current.len(), way, names: None }
    }

    /// Creates another walk, from the current directory, that treats cached names as this one does.
    pub(super) fn begin_anew(&self) -> Self {
        Self::new(self.fs, self.is_fresh)
    }

    /// Records the names from here on, for [`Self::names`].
    pub(super) fn record(&mut self) {
        self.names = Some(self.fs.current_names.to_vec());
    }

    /// Returns the names from the root to the current place, without links and dots.
    pub(super) fn names(&mut self) -> Vec<Vec<u8>> {
        self.names.take().unwrap_or_default()
    }

    /// Returns the inode at which the walk stands.
    pub(super) fn here(&self) -> &Arc<Inode<P>> {
        // Both indices are valid: `base` is at least 1, and the current directory's way contains at least the root.
        self.way.last().unwrap_or_else(|| &self.fs.current[self.base - 1])
    }

    /// Returns the root and every directory from there to the current place.
    pub(super) fn chain(&self) -> Arc<[Arc<Inode<P>>]> {
        self.fs.current[..self.base].iter().chain(self.way.iter()).cloned().collect()
    }

    /// Follows `path`, including a symbolic link at its end if `is_following`.
    pub(super) fn follow(&mut self, path: &[u8], is_following: bool) -> Result<(), Errno> {
        path::check(path)?;
        if path[0] == b'/' {
            self.go_to_root();
        }
        let mut rest = path;
        while let Some((component, behind)) = path::split_first(rest) {
            rest = behind;
            // A slash after a name means that it is a directory.
            self.step(component, is_following || !rest.is_empty())?;
        }
        if path.ends_with(b"/") { self.check_directory() } else { Ok(()) }
    }

    /// Goes to the directory that contains the last component of `path`.
    pub(super) fn follow_to_parent<'p>(&mut self, path: &'p [u8]) -> Result<Last<'p>, Errno> {
        path::check(path)?;
        let (before, last) = path::split_last(path);
        if !before.is_empty() {
            self.follow(before, true)?;
        }
        self.check_directory()?;
        self.check_searchable()?;
        Ok(last)
    }

    /// Looks up `name` in the current directory without moving.
    pub(super) fn look(&self, name: Name<'_>) -> Result<Arc<Inode<P>>, Errno> {
        match self.is_fresh {
            true => self.fs.volume.ask_name(&self.caller, self.here(), name),
            false => self.fs.volume.lookup(&self.caller, self.here(), name),
        }
    }

    /// As [`Self::look`], but asks the server. Errors: ESTALE if the name no longer exists.
    pub(super) fn look_again(&self, name: Name<'_>) -> Result<Arc<Inode<P>>, Errno> {
        match self.fs.volume.ask_name(&self.caller, self.here(), name) {
            Err(Errno::NOENT) => Err(Errno::STALE),
            found => found,
        }
    }

    /// Follows the symbolic link `link`, which is in the current directory.
    pub(super) fn follow_link(&mut self, link: &Inode<P>) -> Result<(), Errno> {
        let target = self.read_link(link)?;
        self.follow(&target, true)
    }

    /// Moves to `inode`, which is in the current directory.
    pub(super) fn enter(&mut self, inode: Arc<Inode<P>>) {
        self.way.push(inode);
    }

    /// Returns the target of `link`. Errors: ELOOP after too many of them.
    pub(super) fn read_link(&mut self, link: &Inode<P>) -> Result<Arc<[u8]>, Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        self.fs.volume.readlink(&self.caller, link)
    }

    /// Errors: EACCES if the caller may not search the current directory.
    pub(super) fn check_searchable(&self) -> Result<(), Errno> {
        self.fs.check(&self.caller, self.here(), EXECUTE)
    }

    /// Errors: ENOTDIR if the walk does not stand at a directory.
    pub(super) fn check_directory(&self) -> Result<(), Errno> {
        if self.here().is_directory() { Ok(()) } else { Err(Errno::NOTDIR) }
    }

    fn step(&mut self, component: &[u8], is_following: bool) -> Result<(), Errno> {
        self.check_directory()?;
        self.check_searchable()?;
        match component {
            b"." => return Ok(()),
            b".." => {
                self.go_up();
                return Ok(());
            }
            _ => {}
        }
        let found = self.look(path::name(component)?)?;
        if is_following && found.is_symlink() {
            return self.follow_link(&found);
        }
        self.way.push(found);
        if let Some(names) = &mut self.names {
            names.push(component.to_vec());
        }
        Ok(())
    }

    fn go_to_root(&mut self) {
        self.base = 1;
        self.way.clear();
        self.names.iter_mut().for_each(Vec::clear);
    }

    /// The parent of the root is the root.
    fn go_up(&mut self) {
        if !self.way.pop() && self.base > 1 {
            self.base -= 1;
        }
        if let Some(names) = &mut self.names {
            names.pop();
        }
    }
}

impl<P: Platform> Way<P> {
    fn push(&mut self, inode: Arc<Inode<P>>) {
        match self.short.get_mut(self.len) {
            Some(place) => *place = Some(inode),
            None => self.rest.push(inode),
        }
        self.len += 1;
    }

    /// Returns false if there is nothing to remove.
    fn pop(&mut self) -> bool {
        let Some(len) = self.len.checked_sub(1) else { return false };
        self.len = len;
        match self.short.get_mut(len) {
            Some(place) => *place = None,
            None => _ = self.rest.pop(),
        }
        true
    }

    fn clear(&mut self) {
        while self.pop() {}
    }

    fn last(&self) -> Option<&Arc<Inode<P>>> {
        let last = self.len.checked_sub(1)?;
        self.short.get(last).map_or_else(|| self.rest.last(), Option::as_ref)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Inode<P>>> {
        self.short.iter().flatten().chain(&self.rest)
    }
}
