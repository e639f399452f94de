//! What the tests share: a directory with an overlay, and a guest, for which the kernel's own overlayfs stands.

use std::{
    collections::BTreeMap,
    fs,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen,
    },
    process::geteuid,
};
use tempfile::TempDir;

use crate::{Overlay, Result, place::visit_all_in};

/// A directory of the host, and a place for the state.
pub(crate) struct Host {
    folder: TempDir,
}

/// The files of a tree: kind, mode, modification time, content or target, and the smallest path of the same inode.
pub(crate) type Listing = BTreeMap<PathBuf, (String, u32, (i64, i64), Vec<u8>, PathBuf)>;

/// A mounted overlay, as a guest sees it.
pub(crate) struct Guest {
    mount: OwnedFd,
}

/// Returns whether overlays cannot be mounted here, and prints the reason.
pub(crate) fn is_skipped(test: &str) -> bool {
    let is_missing = !geteuid().is_root() || Host::new().mounted().is_none();
    if is_missing {
        eprintln!("SKIPPED: {test}: no overlay can be mounted here: it needs root and overlayfs");
    }
    is_missing
}

impl Host {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        Self { folder }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.folder.path().join("d")
    }

    /// Returns a path outside of the directory.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.beside("state")
    }

    pub(crate) fn for_run(&self) -> Overlay {
        self.try_for_run().unwrap()
    }

    pub(crate) fn try_for_run(&self) -> Result<Overlay> {
        Overlay::for_run_in(&self.state(), &self.directory())
    }

    pub(crate) fn open(&self) -> Option<Overlay> {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<Option<Overlay>> {
        Overlay::open_in(&self.state(), &self.directory())
    }

    pub(crate) fn visit_all(&self, visit: impl FnMut(&Path, Result<Overlay>)) {
        visit_all_in(&self.state(), visit).unwrap();
    }

    fn mounted(&self) -> Option<Guest> {
        let overlay = self.for_run();
        Guest::mount(&self.directory(), &overlay.layers())
    }

    /// Runs a guest that does `work` in its view of the directory, and returns what it saw at the end.
    pub(crate) fn guest(&self, work: impl FnOnce(&Path)) -> Listing {
        let guest = self.mounted().unwrap();
        work(&guest.path());
        list(&guest.path())
    }

    /// As `guest`, for trees that cannot be listed.
    pub(crate) fn unlisted_guest(&self, work: impl FnOnce(&Path)) {
        work(&self.mounted().unwrap().path());
    }

    pub(crate) fn listing(&self) -> Listing {
        list(&self.directory())
    }

    /// Returns what is left of the state, except locks.
    pub(crate) fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".lock")).collect()
    }
}

impl Guest {
    fn mount(lower: &Path, layers: &Path) -> Option<Self> {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
        let context = context.as_fd();
        fsconfig_set_flag(context, "userxattr").ok()?;
        fsconfig_set_string(context, "xino", "on").ok()?;
        fsconfig_set_string(context, "lowerdir", lower).ok()?;
        fsconfig_set_string(context, "upperdir", layers.join("upper")).ok()?;
        fsconfig_set_string(context, "workdir", layers.join("work")).ok()?;
        fsconfig_create(context).ok()?;
        let mount = fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
        Some(Self { mount })
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}/.", self.mount.as_raw_fd()).into()
    }
}

/// Lists a tree; directories have no content, and the root only its mode.
fn list(root: &Path) -> Listing {
    let mut listing = Listing::new();
    let mut names = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let full = root.join(&path);
        let meta = fs::symlink_metadata(&full).unwrap();
        let kind = meta.file_type();
        let content = match () {
            () if kind.is_symlink() => fs::read_link(&full).unwrap().into_os_string().into_encoded_bytes(),
            () if kind.is_file() => fs::read(&full).unwrap(),
            () => Vec::new(),
        };
        if kind.is_dir() {
            left.extend(fs::read_dir(&full).unwrap().map(|entry| path.join(entry.unwrap().file_name())));
        }
        // Symbolic links have no mode of their own.
        let mode = if kind.is_symlink() { 0 } else { meta.permissions().mode() & 0o7777 };
        // Overlayfs cannot note on anything else which file it was copied from, so a guest sees other numbers.
        let inode = kind.is_file().then(|| (meta.dev(), meta.ino()));
        listing
            .insert(path.clone(), (format!("{kind:?}"), mode, (meta.mtime(), meta.mtime_nsec()), content, "".into()));
        if let Some(inode) = inode {
            names.entry(inode).or_insert_with(Vec::new).push(path);
        }
    }
    for mut names in names.into_values() {
        names.sort();
        for name in &names {
            if let Some(entry) = listing.get_mut(name) {
                entry.4 = names[0].clone();
            }
        }
    }
    listing
}

pub(crate) fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}
