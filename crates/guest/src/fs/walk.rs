//! Following a path, component by component.
//!
//! A [`Walk`] stands in a directory and knows the way that it came, so that `..` needs no request. A short way is kept
//! without an allocation.

use alloc::{sync::Arc, vec::Vec};

use transom_wire::Name;

use super::{
    Fs,
    path::{self, Last},
    permission::EXECUTE,
};
use crate::{Errno, Platform, session::Caller, volume::Inode};

/// Symbolic links on one path, as Linux has it.
const LINKS_MAX: u32 = 40;

/// How much of a way is kept in the walk itself: most paths are shorter.
const SHORT: usize = 8;

pub(super) struct Walk<'f, P: Platform> {
    pub(super) fs: &'f Fs<P>,
    pub(super) caller: Caller<'f>,
    /// Whether names are asked of the server though they are kept.
    is_fresh: bool,
    links: u32,
    /// How many of the directories that lead to the current one lead here too, at least 1.
    base: usize,
    /// What comes behind these.
    way: Way<P>,
    /// The names from the root on, where they are wanted.
    names: Option<Vec<Vec<u8>>>,
}

/// Inodes, one behind the other.
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

    /// Another walk that asks for names as this one does.
    pub(super) fn begin_anew(&self) -> Self {
        Self::new(self.fs, self.is_fresh)
    }

    /// Keeps the names from here on, for [`Self::names`].
    pub(super) fn record(&mut self) {
        self.names = Some(self.fs.current_names.to_vec());
    }

    /// The names from the root to where the walk stands, without links and dots.
    pub(super) fn names(&mut self) -> Vec<Vec<u8>> {
        self.names.take().unwrap_or_default()
    }

    /// Where the walk stands.
    pub(super) fn here(&self) -> &Arc<Inode<P>> {
        // Both are within: `base` is at least 1 and the current directory's way has at least the root.
        self.way.last().unwrap_or_else(|| &self.fs.current[self.base - 1])
    }

    /// The root, and every directory from it to where the walk stands.
    pub(super) fn chain(&self) -> Arc<[Arc<Inode<P>>]> {
        self.fs.current[..self.base].iter().chain(self.way.iter()).cloned().collect()
    }

    /// Goes along `path`, through a symbolic link at its end too where `is_following`.
    pub(super) fn follow(&mut self, path: &[u8], is_following: bool) -> Result<(), Errno> {
        path::check(path)?;
        if path[0] == b'/' {
            self.go_to_root();
        }
        let mut rest = path;
        while let Some((component, behind)) = path::split_first(rest) {
            rest = behind;
            // A slash behind a name says that it is a directory's.
            self.step(component, is_following || !rest.is_empty())?;
        }
        if path.ends_with(b"/") { self.check_directory() } else { Ok(()) }
    }

    /// Goes to the directory that the last component of `path` is in.
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

    /// Finds `name` where the walk stands, and goes nowhere.
    pub(super) fn look(&self, name: Name<'_>) -> Result<Arc<Inode<P>>, Errno> {
        match self.is_fresh {
            true => self.fs.volume.ask_name(&self.caller, self.here(), name),
            false => self.fs.volume.lookup(&self.caller, self.here(), name),
        }
    }

    /// As [`Self::look`], as the server has it now. Errors: ESTALE where the name has gone by now.
    pub(super) fn look_again(&self, name: Name<'_>) -> Result<Arc<Inode<P>>, Errno> {
        match self.fs.volume.ask_name(&self.caller, self.here(), name) {
            Err(Errno::NOENT) => Err(Errno::STALE),
            found => found,
        }
    }

    /// Goes where the symbolic link `link`, found where the walk stands, leads.
    pub(super) fn follow_link(&mut self, link: &Inode<P>) -> Result<(), Errno> {
        let target = self.read_link(link)?;
        self.follow(&target, true)
    }

    /// Goes to `inode`, found where the walk stands.
    pub(super) fn enter(&mut self, inode: Arc<Inode<P>>) {
        self.way.push(inode);
    }

    /// Where `link` leads. Errors: ELOOP after too many of them.
    pub(super) fn read_link(&mut self, link: &Inode<P>) -> Result<Arc<[u8]>, Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        self.fs.volume.readlink(&self.caller, link)
    }

    /// Errors: EACCES where the caller may not search the directory that the walk stands in.
    pub(super) fn check_searchable(&self) -> Result<(), Errno> {
        self.fs.check(&self.caller, self.here(), EXECUTE)
    }

    /// Errors: ENOTDIR where the walk stands at something else.
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

    /// What is above the root is the root.
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

    /// False where there is nothing.
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
