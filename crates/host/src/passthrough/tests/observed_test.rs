//! Directories are observed one by one, where not the whole file system is.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::BorrowedFd,
        unix::fs::{MetadataExt as _, symlink},
    },
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::fs::{Mode, fstat, mkdirat};
use transom_wire::{NodeId, agent::AGENT_GID};

use super::{
    Config,
    guest::{Guest, node},
    is_root,
    replayed_test::exchange_by,
};
use crate::{Errno, passthrough::ObserveDirectories};

/// What the kernel was told.
#[derive(Debug, Default)]
struct Kernel {
    observed: Mutex<BTreeSet<u64>>,
    refuses: AtomicBool,
    /// Whether others make a directory in each one before it is observed.
    interferes: AtomicBool,
}

impl ObserveDirectories for Kernel {
    fn observe(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.refuses.load(Relaxed) {
            return Err(Errno::NOSPC);
        }
        if self.interferes.load(Relaxed) {
            mkdirat(dir, "others", Mode::RWXU).unwrap();
        }
        assert!(self.observed.lock().unwrap().insert(fstat(dir)?.st_ino), "it is observed already");
        Ok(())
    }

    fn ignore(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        self.observed.lock().unwrap().remove(&fstat(dir)?.st_ino).then_some(()).ok_or(Errno::NOENT)
    }
}

/// A guest of a share that has the directory `a` with the directory `b`.
fn begin(dir: &Path) -> (Arc<Kernel>, Guest) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    let kernel = Arc::new(Kernel::default());
    let config = Config { events: true, observe_directories: Some(kernel.clone()), ..Config::default() };
    (kernel, Guest::new(dir, config))
}

#[test]
fn exactly_the_directories_are_observed_that_the_guest_knows() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, guest) = begin(dir.path());
    fs::write(dir.path().join("file"), "").unwrap();
    symlink("a", dir.path().join("link")).unwrap();
    let expect = |names: &[&str]| {
        let inos = names.iter().map(|name| fs::metadata(dir.path().join(name)).unwrap().ino());
        assert_eq!(*kernel.observed.lock().unwrap(), inos.collect(), "{names:?}");
    };
    expect(&["."]);
    for name in ["file", "link"] {
        guest.walk(name).unwrap();
    }
    expect(&["."]);
    let (a, b) = (guest.walk("a").unwrap(), guest.walk("a/b").unwrap());
    expect(&[".", "a", "a/b"]);
    let made = node(&guest.mkdir(b, "made").unwrap());
    expect(&[".", "a", "a/b", "a/b/made"]);

    // It was found twice: to walk to the other one, too.
    guest.forget(a, 1);
    expect(&[".", "a", "a/b", "a/b/made"]);
    guest.forget(made, 1);
    expect(&[".", "a", "a/b"]);
    guest.forget(b, 1);
    guest.forget(a, 1);
    expect(&["."]);
    guest.walk("a").unwrap();
    expect(&[".", "a"]);
    guest.fs().inodes.clear();
    expect(&["."]);
}

#[test]
fn a_directory_is_observed_before_the_guest_is_told_its_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, guest) = begin(dir.path());
    kernel.interferes.store(true, Relaxed);

    let entry = guest.lookup(NodeId::ROOT, "a").unwrap();

    let now = fs::metadata(dir.path().join("a")).unwrap();
    assert!(now.nlink() > 2 && dir.path().join("a/others").exists(), "something has changed meanwhile");
    assert_eq!(u64::from(entry.attr.nlink.get()), now.nlink());
    assert_eq!(entry.attr.mtimensec.get(), now.mtime_nsec() as u32);
}

#[test]
fn names_are_trusted_for_longer_only_where_all_changes_are_observed() {
    if !is_root() {
        return println!("SKIPPED: the guest's root is not this user");
    }
    let dir = tempfile::tempdir().unwrap();
    let (kernel, mut guest) = begin(dir.path());
    for name in ["file", "two"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    fs::hard_link(dir.path().join("two"), dir.path().join("a/names")).unwrap();
    guest.caller = (0, AGENT_GID);
    let root = guest.opendir(NodeId::ROOT).unwrap();
    let validity = |guest: &mut Guest, name| {
        guest.caller = (0, AGENT_GID);
        // The second one acknowledges.
        exchange_by(guest, root).unwrap();
        exchange_by(guest, root).unwrap();
        guest.caller = (0, 0);
        let entry = guest.lookup(NodeId::ROOT, name).unwrap();
        (entry.entry_valid.get(), entry.attr_valid.get())
    };
    assert_eq!(validity(&mut guest, "file"), (30, 30));
    assert_eq!(validity(&mut guest, "two"), (1, 1), "its other name may be in a directory that is not observed");
    assert_eq!(validity(&mut guest, "a"), (30, 30), "directories have one name");

    kernel.refuses.store(true, Relaxed);
    assert_eq!(validity(&mut guest, "a"), (30, 30), "it is observed");
    guest.walk("a/b").unwrap();
    assert_eq!(validity(&mut guest, "file"), (1, 1), "a directory is not observed");
}
