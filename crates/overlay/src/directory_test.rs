//! What the host does to directories while an overlay has changes in them.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    Difference, Error,
    overlay_test::{differences, filled},
    support::{is_skipped, set_mode},
};

#[test]
fn permissions_of_directories_stay_as_the_host_has_changed_them() {
    if is_skipped("permissions_of_directories") {
        return;
    }
    let host = filled();
    let mode = |name: &str| fs::metadata(host.path(name)).unwrap().mode() & 0o7777;
    host.guest(|dir| {
        fs::write(dir.join("dir/new"), "guest").unwrap();
        fs::write(dir.join("new"), "guest").unwrap();
        set_mode(&dir.join("gone"), 0o711);
    });
    set_mode(&host.path("dir"), 0o700);
    set_mode(&host.path(""), 0o750);
    std::os::unix::fs::chown(host.path("dir"), Some(1), Some(2)).unwrap();
    // Only what the guest has changed itself is a change, before and after another run.
    for _ in 0..2 {
        let expected = [("dir/new", Difference::Added), ("gone", Difference::Mode), ("new", Difference::Added)];
        assert_eq!(differences(&host), expected.map(|(name, difference)| (name.to_owned(), difference)));
        host.guest(|_| ());
    }
    set_mode(&host.path("gone"), 0o700);
    let Error::Conflicts(conflicts) = host.open().unwrap().commit(&[], false).unwrap_err() else { panic!() };
    let conflicts: Vec<_> =
        conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.reason)).collect();
    assert_eq!(conflicts, [("gone", "changed on the host")]);
    host.open().unwrap().commit(&[], true).unwrap();
    assert_eq!((mode(""), mode("dir"), mode("gone")), (0o750, 0o700, 0o711));
    let owner = fs::metadata(host.path("dir")).unwrap();
    assert_eq!((owner.uid(), owner.gid(), host.read("dir/new")), (1, 2, "guest".into()));
}

#[test]
fn a_change_of_the_directory_itself_is_a_conflict_if_both_have_made_one() {
    if is_skipped("a_change_of_the_directory_itself") {
        return;
    }
    let host = filled();
    host.guest(|dir| set_mode(dir, 0o711));
    set_mode(&host.path(""), 0o750);
    let Error::Conflicts(conflicts) = host.open().unwrap().commit(&[], false).unwrap_err() else { panic!() };
    assert_eq!(conflicts.iter().map(|conflict| conflict.path.clone()).collect::<Vec<_>>(), [PathBuf::new()]);
    set_mode(&host.path(""), 0o755);
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(fs::metadata(host.path("")).unwrap().mode() & 0o7777, 0o711);
}

/// Calls `check` while `directory` is mounted at `place` too.
fn while_mounted(directory: &Path, place: &Path, check: impl FnOnce()) {
    rustix::mount::mount_bind(directory, place).unwrap();
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH).unwrap();
    checked.unwrap();
}

#[test]
fn what_is_mounted_in_the_directory_is_neither_read_nor_written() {
    if is_skipped("what_is_mounted_in_the_directory") {
        return;
    }
    let host = filled();
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(other.path().join("x"), "other").unwrap();
    host.guest(|dir| fs::write(dir.join("dir/x"), "guest").unwrap());
    while_mounted(other.path(), &host.path("dir"), || {
        let error = host.open().unwrap().commit(&[], true).unwrap_err().to_string();
        // A bind mount of the same file system is another mount.
        assert!(error.contains("unmount"), "{error}");
        assert_eq!(host.read("dir/x"), "other");
    });
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(host.read("dir/x"), "guest");
}

/// A guest that mounts the overlay would see what is mounted in the directory, and a commit does not write there.
#[test]
fn a_guest_that_mounts_the_overlay_needs_a_directory_without_mounts_that_it_sees() {
    if is_skipped("a_guest_that_mounts_the_overlay") {
        return;
    }
    let host = filled();
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    while_mounted(other.path(), &host.path("dir"), || {
        let overlay = host.for_run();
        let error = overlay.for_guest(&[]).unwrap_err();
        assert!(matches!(&error, Error::MountedBelow(place) if *place == host.path("dir")), "{error}");
        overlay.for_guest(&["dir".into()]).unwrap();
    });
    host.for_run().for_guest(&[]).unwrap();
}

#[test]
fn what_the_user_may_not_read_does_not_prevent_a_run() {
    if is_skipped("what_the_user_may_not_read") {
        return;
    }
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let host = filled();
    set_mode(&host.path("dir/sub"), 0o000);
    set_mode(&host.path("gone"), 0o600);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            // Of this thread alone.
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            assert!(fs::read_dir(host.path("dir/sub")).is_err());
            drop(host.for_run());
        });
        run.join().unwrap();
    });
    let record = host.open().unwrap().record().unwrap();
    assert!(record.get(Path::new("dir/sub")).is_some() && record.get(Path::new("dir/x")).is_some());
    assert!(record.get(Path::new("dir/sub/y")).is_none() && record.get(Path::new("gone/z")).is_none());
}

#[test]
fn a_directory_that_both_have_made_is_a_conflict_if_its_permissions_differ() {
    if is_skipped("a_directory_that_both_have_made") {
        return;
    }
    let host = filled();
    host.guest(|dir| {
        fs::create_dir(dir.join("both")).unwrap();
        fs::write(dir.join("both/guest"), "").unwrap();
    });
    fs::create_dir(host.path("both")).unwrap();
    set_mode(&host.path("both"), 0o700);
    let Error::Conflicts(conflicts) = host.open().unwrap().commit(&[], false).unwrap_err() else { panic!() };
    assert_eq!(conflicts.iter().map(|conflict| conflict.path.clone()).collect::<Vec<_>>(), [PathBuf::from("both")]);
    set_mode(&host.path("both"), 0o755);
    host.open().unwrap().commit(&[], false).unwrap();
    assert!(host.path("both/guest").exists());
}
