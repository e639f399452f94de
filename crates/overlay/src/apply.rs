//! Writes changes into the directory, one step at a time.
//!
//! Each step can be done again. A file is first made in a directory of its own beside the others, and then takes the
//! place of the old one at once, so that a name never stands for half a file. Removals come first, and directories get
//! their attributes last, because what is made in them changes their times.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, chmod, linkat, mkdirat, mknodat, openat, renameat, symlinkat},
    io::Errno,
};

use crate::{
    Change, Difference, Error, Kind, Meta, Result, attributes, copy,
    tree::{Node, Tree, remove},
    walk::Found,
};

/// The name of the file that is being made.
const UNFINISHED: &str = "new";

/// Called before each step with what it is about to do; an error stops the commit there.
pub(crate) type Before<'a> = dyn FnMut(&str, &Path) -> Result<()> + 'a;

/// The directory that is changed, and the changes of the guest.
pub(crate) struct Apply<'a> {
    upper: &'a Tree,
    lower: &'a Tree,
    /// The directory for unfinished files, in the lower one.
    unfinished: &'a Path,
    before: &'a mut Before<'a>,
    /// The modes of directories that had to be made writable.
    loosened: BTreeMap<PathBuf, u32>,
}

impl<'a> Apply<'a> {
    pub(crate) fn new(upper: &'a Tree, lower: &'a Tree, unfinished: &'a Path, before: &'a mut Before<'a>) -> Self {
        Self { upper, lower, unfinished, before, loosened: BTreeMap::new() }
    }

    /// Applies what was found, all of which is selected.
    pub(crate) fn run(mut self, found: &Found) -> Result<()> {
        for change in found.changes.iter().rev().filter(|change| change.removes()) {
            self.remove(change)?;
        }
        self.make_workshop()?;
        for change in &found.changes {
            let Some(after) = &change.after else { continue };
            match change.difference {
                _ if change.is_rewritten() && after.is_directory() => self.make_directory(&change.path)?,
                _ if change.is_rewritten() || change.difference == Difference::Linked => {
                    self.make(change, after, found.leaders.get(&change.path))?;
                }
                Difference::Mode | Difference::Times if !after.is_directory() => self.carry(&change.path)?,
                _ => {}
            }
        }
        remove_unfinished(self.lower, self.unfinished)?;
        for (path, mode) in std::mem::take(&mut self.loosened) {
            if let Some(node) = self.lower.node(&path)? {
                chmod(&*node.path(), Mode::from_raw_mode(mode)).map_err(self.failed(&path))?;
            }
        }
        for path in found.directories.iter().rev() {
            if found.kept.contains(path) { self.carry_times(path)? } else { self.carry(path)? }
        }
        Ok(())
    }

    fn failed<E: Into<io::Error>>(&self, path: &Path) -> impl FnOnce(E) -> Error + use<E> {
        let path = self.lower.full(path);
        Error::io(move || format!("cannot change {path:?}"))
    }

    /// Opens the directory of `path`; makes it writable for its owner if it is not.
    fn parent<'p>(&mut self, path: &'p Path) -> Result<(Node, &'p OsStr)> {
        let (node, name, mode) = self.lower.writable_parent(path)?;
        if let (Some(mode), Some(above)) = (mode, path.parent()) {
            self.loosened.entry(above.to_owned()).or_insert(mode);
        }
        Ok((node, name))
    }

    fn remove(&mut self, change: &Change) -> Result<()> {
        (self.before)("remove", &change.path)?;
        self.check(change)?;
        let is_directory = change.before.is_some_and(|meta| meta.is_directory());
        let (parent, name) = match self.parent(&change.path) {
            // A stopped commit has removed the directory above.
            Err(Error::Meanwhile(_)) if self.lower.node(&change.path)?.is_none() => return Ok(()),
            parent => parent?,
        };
        match remove(&parent, name, is_directory) {
            // A file that the host has made there since the comparison.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Err(Error::Meanwhile(change.path.clone()))
            }
            result => result.map_err(self.failed(&change.path)),
        }
    }

    /// Checks that the host has not changed the file since it was compared.
    fn check(&self, change: &Change) -> Result<()> {
        let now = self.lower.meta(&change.path)?;
        let is_same = |before: &Meta, now: &Meta| {
            (before.kind, before.ino) == (now.kind, now.ino)
                && (before.is_directory() || (before.mtime, before.len_bytes) == (now.mtime, now.len_bytes))
        };
        match (&change.before, &now) {
            (_, None) => Ok(()),
            (Some(before), Some(now)) if is_same(before, now) => Ok(()),
            _ => Err(Error::Meanwhile(change.path.clone())),
        }
    }

    /// Makes the directory for unfinished files, which is new: what is there otherwise is somebody else's.
    fn make_workshop(&mut self) -> Result<()> {
        let path = self.unfinished;
        (self.before)("make directory", path)?;
        let (parent, name) = self.parent(path)?;
        mkdirat(&parent, name, Mode::RWXU).map_err(self.failed(path))
    }

    fn make_directory(&mut self, path: &Path) -> Result<()> {
        (self.before)("make directory", path)?;
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) if self.lower.meta(path)?.is_some_and(|meta| meta.is_directory()) => Ok(()),
            Err(errno) => Err(self.failed(path)(errno)),
        }
    }

    /// Makes a file that is no directory, and gives it its name.
    fn make(&mut self, change: &Change, after: &Meta, leader: Option<&PathBuf>) -> Result<()> {
        let path = &change.path;
        (self.before)("make", path)?;
        let unfinished = self.unfinished.join(UNFINISHED);
        let (workshop, name) = self.lower.parent(&unfinished)?;
        remove(&workshop, name, false).map_err(self.failed(path))?;
        match leader {
            Some(leader) => self.link(leader, &workshop, name).map_err(self.failed(path))?,
            None => {
                self.copy(path, after, &workshop, name).map_err(self.failed(path))?;
                let (from, to) = (self.upper.node(path)?, self.lower.node(&unfinished)?);
                let (Some(from), Some(to)) = (from, to) else { return Err(Error::Meanwhile(path.clone())) };
                attributes::carry(&from, &to).map_err(self.failed(path))?;
            }
        }
        (self.before)("replace", path)?;
        let (parent, last) = self.parent(path)?;
        // Removed before, if something else had to go; then there is nothing.
        if !change.removes() {
            self.check(change)?;
        }
        renameat(&workshop, name, &parent, last).map_err(self.failed(path))?;
        // Two names of one file are left as they are by rename.
        remove(&workshop, name, false).map_err(self.failed(path))
    }

    fn link(&self, leader: &Path, workshop: &Node, name: &OsStr) -> io::Result<()> {
        let (parent, of_leader) = self.lower.parent(leader).map_err(io::Error::other)?;
        Ok(linkat(&parent, of_leader, workshop, name, AtFlags::empty())?)
    }

    fn copy(&self, path: &Path, after: &Meta, workshop: &Node, name: &OsStr) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR;
        match after.kind {
            Kind::File => {
                let from = self.upper.file(path)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                copy::copy(&from, &openat(workshop, name, flags, mode)?.into())
            }
            Kind::Symlink => {
                let node = self.upper.node(path).map_err(io::Error::other)?;
                let target = node.ok_or(io::ErrorKind::NotFound)?.target()?;
                Ok(symlinkat(target, workshop, name)?)
            }
            Kind::Fifo => Ok(mknodat(workshop, name, FileType::Fifo, mode, 0)?),
            Kind::Socket => Ok(mknodat(workshop, name, FileType::Socket, mode, 0)?),
            Kind::Directory | Kind::Device | Kind::Whiteout => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sets the times of a directory to those that the guest sees.
    fn carry_times(&mut self, path: &Path) -> Result<()> {
        let (Some(from), Some(to)) = (self.upper.node(path)?, self.lower.node(path)?) else { return Ok(()) };
        if from.meta.mtime == to.meta.mtime {
            return Ok(());
        }
        (self.before)("times", path)?;
        attributes::set_times(&to, &from.meta).map_err(self.failed(path))
    }

    /// Sets the attributes of a file in the directory to those that the guest sees.
    fn carry(&mut self, path: &Path) -> Result<()> {
        let (Some(from), Some(to)) = (self.upper.node(path)?, self.lower.node(path)?) else { return Ok(()) };
        let is_equal = attributes::are_equal(&from, &to).map_err(self.failed(path))?;
        if from.meta.kind != to.meta.kind || is_equal && from.meta.mtime == to.meta.mtime {
            return Ok(());
        }
        (self.before)("attributes", path)?;
        attributes::carry(&from, &to).map_err(self.failed(path))
    }
}

/// Removes the directory for unfinished files, if there is one.
pub(crate) fn remove_unfinished(lower: &Tree, path: &Path) -> Result<()> {
    let failed = || format!("cannot remove {:?}", lower.full(path));
    if lower.node(path)?.is_none_or(|node| !node.meta.is_directory()) {
        return Ok(());
    }
    for name in lower.names(path)? {
        let path = path.join(name);
        let (parent, name) = lower.parent(&path)?;
        remove(&parent, name, false).map_err(Error::io(failed))?;
    }
    let (parent, name, mode) = lower.writable_parent(path)?;
    remove(&parent, name, true).map_err(Error::io(failed))?;
    match mode {
        Some(mode) => Ok(chmod(&*parent.path(), Mode::from_raw_mode(mode)).map_err(Error::io(failed))?),
        None => Ok(()),
    }
}
