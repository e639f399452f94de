//! Hides names from the guest, whatever it sends: [`rules`] says which names, this module in which directories.
//!
//! A directory is recognised by its device and inode number, not by the way in which the guest came to it. The places
//! of the rules that exist at the start are known from then on, so that a second mount of a directory hides the same
//! names. Others become known when the guest looks them up, before it learns of their inode. The guest can neither
//! rename nor remove what a rule has in its path, so it cannot put a directory out of reach of the rule.
//!
//! Locks: `places`, for a moment, with nothing under it.

pub(super) mod rules;

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{PoisonError, RwLock},
};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx};

use super::{
    Passthrough,
    dir_batch::Entry,
    inodes::{Inode, InodeKey},
};
use crate::{
    Errno,
    sysfd::{path, stat},
};
use rules::{HiddenPaths, ROOT};

/// Refers to an inode without opening it.
const REFER: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// The rules, and the directories that they are about.
#[derive(Debug)]
pub(super) struct Hidden {
    rules: HiddenPaths,
    /// What was hidden at the start, whatever its name is.
    inodes: HashSet<InodeKey>,
    /// Each directory's places among the rules, of which it has more than one only if it is mounted more than once.
    places: RwLock<HashMap<InodeKey, Vec<usize>>>,
}

/// What is needed to list an open directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    dev: (u32, u32),
    places: Vec<usize>,
}

impl Hidden {
    /// Finds the places of `rules` below `root`. Returns `None` if nothing is hidden.
    pub(super) fn new(rules: &HiddenPaths, root: &OwnedFd) -> Result<Option<Self>, Errno> {
        if rules.is_empty() {
            return Ok(None);
        }
        let key = |fd: OwnedFd| stat::statx(fd, AtFlags::empty(), stat::IDENTITY).map(|stat| InodeKey::of(&stat));
        let root_key = InodeKey::of(&stat::statx(root, AtFlags::empty(), stat::IDENTITY)?);
        let mut places = HashMap::from([(root_key, vec![ROOT])]);
        let (mut inodes, mut linked) = (HashSet::new(), Vec::new());
        for (number, place) in rules.places.iter().enumerate().skip(1) {
            let is_visible = rules.is_place_visible(number);
            // What does not exist yet is recognised by its name.
            if let Ok(found) = path::open_beneath(root, &*place.path, REFER, Mode::empty()).and_then(key) {
                if is_visible {
                    places.entry(found).or_insert_with(Vec::new).push(number);
                } else {
                    inodes.insert(found);
                }
            }
            let hides_target = !is_visible || rules.hides_contents(number);
            if hides_target && let Ok(target) = follow(root, &place.path).and_then(key) {
                match is_visible {
                    false => drop(inodes.insert(target)),
                    // A link to the share itself hides nothing.
                    true if target == root_key => {}
                    true => linked.push((target, number)),
                }
            }
        }
        // A symbolic link that is hidden may lead to a place that is shown, or to the share itself.
        inodes.retain(|key| !places.contains_key(key));
        for (target, number) in linked {
            let known = places.entry(target).or_default();
            if !known.contains(&number) {
                known.push(number);
            }
        }
        Ok(Some(Self { rules: rules.clone(), inodes, places: RwLock::new(places) }))
    }

    /// Calls `with` with the places of a directory.
    fn at<T>(&self, dir: InodeKey, with: impl FnOnce(&[usize]) -> T) -> T {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        with(places.get(&dir).map_or(&[], Vec::as_slice))
    }

    fn is_visible(&self, places: &[usize], name: &[u8]) -> bool {
        let by_place = places.iter().all(|&place| self.rules.is_visible(place, name));
        by_place && (!places.is_empty() || !self.rules.is_name_hidden(name))
    }

    /// Returns whether a rule has the entry `name` of a directory with these places in its path.
    fn is_named(&self, places: &[usize], name: &[u8]) -> bool {
        places.iter().any(|&place| self.rules.child(place, name).is_some())
    }

    /// Learns the places of the inode that was found as `name` in a directory. Errors: ENOENT if it is hidden.
    fn found(&self, dir: InodeKey, name: &[u8], found: InodeKey) -> Result<(), Errno> {
        if self.inodes.contains(&found) {
            return Err(Errno::NOENT);
        }
        let child = |&place: &usize| self.rules.child(place, name);
        for place in self.at(dir, |places| places.iter().filter_map(child).collect::<Vec<_>>()) {
            let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
            let known = places.entry(found).or_default();
            if !known.contains(&place) {
                known.push(place);
            }
        }
        Ok(())
    }
}

/// Opens what `path` leads to within the share, through symbolic links.
fn follow(root: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within)
}

impl Passthrough {
    /// Checks that the guest may know of the entry `name` of `dir`. Errors: ENOENT.
    pub(super) fn check_visible(&self, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        let is_visible = hidden.at(self.inodes.key(dir), |places| hidden.is_visible(places, name));
        if is_visible { Ok(()) } else { Err(Errno::NOENT) }
    }

    /// Checks that the guest may create `name` in `dir`. Errors: EACCES if it would be hidden.
    pub(super) fn check_creatable(&self, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        self.check_visible(dir, name).map_err(|_| Errno::ACCESS)
    }

    /// Checks that the guest may rename or remove `name` in `dir`. Errors: ENOENT if it is hidden, EBUSY if a rule has
    /// it in its path, as for a mount point.
    pub(super) fn check_removable(&self, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        hidden.at(self.inodes.key(dir), |places| {
            match (hidden.is_visible(places, name), hidden.is_named(places, name)) {
                (false, _) => Err(Errno::NOENT),
                (true, true) => Err(Errno::BUSY),
                (true, false) => Ok(()),
            }
        })
    }

    /// Checks that the guest may know of the inode that was found as `name` in `dir`. Call it before the inode gets a
    /// nodeid. Errors: ENOENT.
    pub(super) fn check_found(&self, dir: &Inode, name: &[u8], stat: &Statx) -> Result<(), Errno> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        hidden.found(self.inodes.key(dir), name, InodeKey::of(stat))
    }

    /// Returns what is needed to list a directory that is being opened.
    pub(super) fn listing(&self, dir: &Inode) -> Listing {
        let Some(hidden) = &self.hidden else { return Listing::default() };
        let key = self.inodes.key(dir);
        Listing { dev: key.dev, places: hidden.at(key, <[usize]>::to_vec) }
    }

    /// Returns whether a directory may list `entry`.
    pub(super) fn is_listed(&self, listing: &Listing, entry: &Entry<'_>) -> bool {
        let Some(hidden) = &self.hidden else { return true };
        let key = InodeKey { dev: listing.dev, ino: entry.ino };
        let is_visible = || hidden.is_visible(&listing.places, entry.name) && !hidden.inodes.contains(&key);
        matches!(entry.name, b"." | b"..") || is_visible()
    }
}
