//! Compares the upper layer with the directory: [`walk`] returns every difference that a commit would remove.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    Error, Kind, Meta, Result, attributes, copy,
    hidden::Hidden,
    record::Record,
    tree::{Node, Tree},
};

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is new.
    Added,
    /// Its content is another, or it is of another kind.
    Changed,
    /// It is another name of a file that the guest has linked.
    Linked,
    /// Its permissions, owner or extended attributes are others.
    Mode,
    /// Only its times are others.
    Times,
    /// It is gone.
    Removed,
}

impl Difference {
    /// Returns a word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Linked => "linked",
            Self::Mode => "mode",
            Self::Times => "times",
            Self::Removed => "removed",
        }
    }
}

/// What the guest has changed at a path.
#[derive(Clone, Debug)]
pub struct Change {
    /// The path in the directory; empty for the directory itself.
    pub path: PathBuf,
    /// How it differs.
    pub difference: Difference,
    /// What the directory has.
    pub before: Option<Meta>,
    /// What the guest sees.
    pub after: Option<Meta>,
}

impl Change {
    /// Returns whether what is there has to go before something else can be made.
    pub(crate) fn removes(&self) -> bool {
        let is_directory = |meta: &Meta| meta.is_directory();
        match (&self.before, &self.after) {
            (Some(_), None) => true,
            (Some(before), Some(after)) => is_directory(before) != is_directory(after),
            (None, _) => false,
        }
    }
}

impl Change {
    /// Returns whether a commit makes a new file at the path. Attributes that change go to a new one too if the old one
    /// has several names: the guest has changed one of them, and the others stay as they are.
    pub(crate) fn is_rewritten(&self) -> bool {
        let has_names = || self.before.is_some_and(|meta| meta.nlink > 1 && !meta.is_directory());
        match self.difference {
            Difference::Added | Difference::Changed => true,
            Difference::Mode | Difference::Times => has_names(),
            Difference::Linked | Difference::Removed => false,
        }
    }
}

/// Numbers of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Files that are not directories, except those of which only the times differ.
    pub files: u64,
    /// Directories, likewise.
    pub directories: u64,
    /// Bytes in new and changed files.
    pub bytes: u64,
}

impl Sum {
    /// Adds up `changes`.
    pub fn of(changes: &[Change]) -> Self {
        let mut sum = Self::default();
        for change in changes.iter().filter(|change| change.difference != Difference::Times) {
            let is_directory = change.after.or(change.before).is_some_and(|meta| meta.is_directory());
            *(if is_directory { &mut sum.directories } else { &mut sum.files }) += 1;
            let has_content = matches!(change.difference, Difference::Added | Difference::Changed) && !is_directory;
            let len = change.after.filter(|_| has_content).map_or(0, |meta| meta.len_bytes);
            // The guest chooses the lengths of sparse files.
            sum.bytes = sum.bytes.saturating_add(len);
        }
        sum
    }
}

/// What the upper layer holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Every difference, directories before what is in them.
    pub(crate) changes: Vec<Change>,
    /// The directories of the upper layer, in the same order.
    pub(crate) directories: Vec<PathBuf>,
    /// Those of them whose permissions, owner and extended attributes only the host has changed.
    pub(crate) kept: BTreeSet<PathBuf>,
    /// Files with several names, each with the first of them.
    pub(crate) leaders: BTreeMap<PathBuf, PathBuf>,
}

/// Compares `upper` with `lower`, which was once as in `record`, and of which the guest did not see what is `hidden`.
pub(crate) fn walk(upper: &Tree, lower: &Tree, record: &Record, hidden: &Hidden) -> Result<Found> {
    let mut walk = Walk { upper, lower, record, hidden, found: Found::default(), links: BTreeMap::new() };
    let root = Path::new("");
    if let (Some(of_upper), Some(of_lower)) = (upper.node(root)?, lower.node(root)?) {
        walk.compare(root, &of_upper, &of_lower)?;
    }
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        for name in upper.names(&directory)? {
            let path = directory.join(name);
            let Some(node) = upper.node(&path)? else { continue };
            walk.entry(&path, &node)?;
            if node.meta.is_directory() {
                left.push(path);
            }
        }
        walk.found.directories.push(directory);
    }
    walk.relink()?;
    walk.found.changes.sort_by(|a, b| a.path.cmp(&b.path));
    walk.found.directories.sort();
    Ok(walk.found)
}

struct Walk<'a> {
    upper: &'a Tree,
    lower: &'a Tree,
    record: &'a Record,
    hidden: &'a Hidden,
    found: Found,
    /// The names of files with several, by their device and number.
    links: BTreeMap<(u64, u64), BTreeSet<PathBuf>>,
}

impl Walk<'_> {
    fn entry(&mut self, path: &Path, upper: &Node) -> Result<()> {
        let lower = self.lower.node(path)?;
        let has_directory = lower.as_ref().is_some_and(|node| node.meta.is_directory());
        let after = upper.meta;
        match after.kind {
            Kind::Whiteout => {
                if let Some(lower) = lower {
                    self.removed(path, lower.meta)?;
                }
                return Ok(());
            }
            // Whatever it is, a commit refuses it.
            _ if self.hidden.covers(path) => {
                let difference = if lower.is_some() { Difference::Changed } else { Difference::Added };
                self.push(path, difference, lower.map(|node| node.meta), Some(after));
                return Ok(());
            }
            Kind::Directory if has_directory && attributes::is_opaque(upper) => self.hidden(path)?,
            Kind::Directory if has_directory => {}
            _ if has_directory => self.contents_removed(path)?,
            _ => {}
        }
        if !after.is_directory() && after.nlink > 1 {
            self.links.entry((after.dev, after.ino)).or_default().insert(path.to_owned());
        }
        match lower {
            None => self.push(path, Difference::Added, None, Some(after)),
            Some(lower) => self.compare(path, upper, &lower)?,
        }
        Ok(())
    }

    fn push(&mut self, path: &Path, difference: Difference, before: Option<Meta>, after: Option<Meta>) {
        self.found.changes.push(Change { path: path.to_owned(), difference, before, after });
    }

    fn compare(&mut self, path: &Path, upper: &Node, lower: &Node) -> Result<()> {
        let failed = || format!("cannot compare {:?}", self.lower.full(path));
        let difference = if !self.has_equal_content(path, upper, lower).map_err(Error::io(failed))? {
            Difference::Changed
        } else if !attributes::are_equal(upper, lower).map_err(Error::io(failed))? && !self.keeps(path, upper, lower)? {
            Difference::Mode
        } else if upper.meta.mtime != lower.meta.mtime {
            Difference::Times
        } else {
            return Ok(());
        };
        self.push(path, difference, Some(lower.meta), Some(upper.meta));
        Ok(())
    }

    /// Returns whether the guest has left the attributes of a directory as they were, and the host has not.
    fn keeps(&mut self, path: &Path, upper: &Node, lower: &Node) -> Result<bool> {
        let failed = || format!("cannot compare {:?}", self.lower.full(path));
        let is_left = self.record.get(path).is_some_and(|entry| entry.has_rights_of(&upper.meta));
        if !is_left || !attributes::are_extended_equal(upper, lower).map_err(Error::io(failed))? {
            return Ok(false);
        }
        self.found.kept.insert(path.to_owned());
        Ok(true)
    }

    fn has_equal_content(&self, path: &Path, upper: &Node, lower: &Node) -> std::io::Result<bool> {
        if upper.meta.kind != lower.meta.kind {
            return Ok(false);
        }
        match upper.meta.kind {
            Kind::File if upper.meta.len_bytes != lower.meta.len_bytes => Ok(false),
            Kind::File => match (self.upper.file(path), self.lower.file(path)) {
                // What the user may not read is taken for different.
                (_, Err(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(false),
                (upper, lower) => copy::are_equal(upper?, lower?),
            },
            Kind::Symlink => Ok(upper.target()? == lower.target()?),
            Kind::Device => Ok(false),
            Kind::Directory | Kind::Fifo | Kind::Socket | Kind::Whiteout => Ok(true),
        }
    }

    /// Adds what the directory `path` of the lower layer has and that of the upper layer, which hides it, has not.
    fn hidden(&mut self, path: &Path) -> Result<()> {
        let kept: BTreeSet<_> = self.upper.names(path)?.into_iter().collect();
        for name in self.lower.names(path)?.into_iter().filter(|name| !kept.contains(name)) {
            let path = path.join(name);
            if let Some(meta) = self.lower.meta(&path)? {
                self.removed(&path, meta)?;
            }
        }
        Ok(())
    }

    fn removed(&mut self, path: &Path, before: Meta) -> Result<()> {
        self.push(path, Difference::Removed, Some(before), None);
        if before.is_directory() { self.contents_removed(path) } else { Ok(()) }
    }

    fn contents_removed(&mut self, path: &Path) -> Result<()> {
        let mut left = vec![path.to_owned()];
        while let Some(directory) = left.pop() {
            for name in self.lower.names(&directory)? {
                let path = directory.join(name);
                let Some(meta) = self.lower.meta(&path)? else { continue };
                self.push(&path, Difference::Removed, Some(meta), None);
                if meta.is_directory() {
                    left.push(path);
                }
            }
        }
        Ok(())
    }

    /// Adds names that are to become links of others, because the guest sees one file and the directory has several.
    fn relink(&mut self) -> Result<()> {
        let changed: BTreeMap<PathBuf, bool> =
            self.found.changes.iter().map(|change| (change.path.clone(), change.is_rewritten())).collect();
        let mut relinked = BTreeMap::new();
        for names in std::mem::take(&mut self.links).into_values() {
            let Some(leader) = names.first().cloned() else { continue };
            let of_leader = self.lower.meta(&leader)?;
            let is_leader_rewritten = changed.get(&leader) == Some(&true);
            for name in names.into_iter().skip(1) {
                let before = self.lower.meta(&name)?;
                let is_one = before.zip(of_leader).is_some_and(|(a, b)| (a.dev, a.ino) == (b.dev, b.ino));
                if changed.get(&name) != Some(&true) && (!is_one || is_leader_rewritten) {
                    relinked.insert(name.clone(), (before, self.upper.meta(&name)?));
                }
                self.found.leaders.insert(name, leader.clone());
            }
        }
        self.found.changes.retain(|change| !relinked.contains_key(&change.path));
        for (name, (before, after)) in relinked {
            self.push(&name, Difference::Linked, before, after);
        }
        Ok(())
    }
}
