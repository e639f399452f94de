//! What a hostile guest leaves in the upper layer leads nowhere else, and can always be discarded.

use std::{fs, os::unix::fs::symlink, path::Path};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::{
    Error,
    support::{Host, is_skipped, set_mode},
};

#[test]
fn links_lead_nowhere() {
    if is_skipped("links_lead_nowhere") {
        return;
    }
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    let host = Host::new();
    host.write("dir/victim", "inside");
    host.write("gone/victim", "inside");
    let seen = host.guest(|dir| {
        fs::remove_dir_all(dir.join("dir")).unwrap();
        symlink(outside.path(), dir.join("dir")).unwrap();
        symlink(outside.path().join("victim"), dir.join("file")).unwrap();
        symlink("/proc/self/fd", dir.join("magic")).unwrap();
        fs::write(dir.join("gone/victim"), "guest").unwrap();
    });
    // The host's own directory becomes a link, too: a path through it does not exist.
    fs::remove_dir_all(host.path("gone")).unwrap();
    symlink(outside.path(), host.path("gone")).unwrap();
    let error = host.open().unwrap().commit(&[], false).unwrap_err();
    assert!(matches!(error, Error::Conflicts(_)), "{error}");
    host.open().unwrap().commit(&[], true).unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(host.listing().keys().collect::<Vec<_>>(), seen.keys().collect::<Vec<_>>());
    assert_eq!(host.read("gone/victim"), "guest");
}

#[test]
fn devices_are_refused_and_discarded() {
    if is_skipped("devices_are_refused") {
        return;
    }
    let host = Host::new();
    host.guest(|dir| {
        mknodat(CWD, dir.join("null"), FileType::CharacterDevice, Mode::RWXU, makedev(1, 3)).unwrap();
        fs::write(dir.join("fine"), "").unwrap();
        // A name that is gone cannot be made by the guest.
        assert!(mknodat(CWD, dir.join("white"), FileType::CharacterDevice, Mode::RWXU, 0).is_err());
    });
    let error = host.open().unwrap().commit(&[], false).unwrap_err();
    assert!(matches!(&error, Error::Device { path } if path == Path::new("null")), "{error}");
    assert!(!host.path("fine").exists());
    host.open().unwrap().commit(&["fine".into()], false).unwrap();
    host.open().unwrap().discard(&["null".into()]).unwrap();
    let left = host.open().unwrap().changes().unwrap();
    assert!(host.path("fine").exists() && crate::Sum::of(&left) == crate::Sum::default(), "{left:?}");
}

#[test]
fn the_notes_of_the_kernel_cannot_be_forged() {
    if is_skipped("the_notes_of_the_kernel") {
        return;
    }
    let host = Host::new();
    host.write("dir/file", "x");
    host.guest(|dir| {
        fs::write(dir.join("dir/new"), "").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        // Refused, or kept under another name.
        let _ = rustix::fs::setxattr(dir.join("dir"), c"user.overlay.opaque", b"y", flags);
        let _ = rustix::fs::setxattr(dir.join("dir/new"), c"user.overlay.whiteout", b"y", flags);
    });
    let changes = host.open().unwrap().changes().unwrap();
    let removed = changes.iter().any(|change| change.difference == crate::Difference::Removed);
    assert!(!removed, "{changes:?}");
}

#[test]
fn a_tree_that_is_too_deep_or_unreadable_is_discarded() {
    if is_skipped("a_tree_that_is_too_deep") {
        return;
    }
    let host = Host::new();
    host.unlisted_guest(|dir| {
        // Deeper than a path can be long, with names that the deletion would use, and closed to their owner.
        fs::create_dir(dir.join("chain")).unwrap();
        fs::write(dir.join("chain/1"), "").unwrap();
        for _ in 0..3 {
            let mut bottom = dir.join("longer");
            fs::create_dir(&bottom).unwrap();
            for level in 0..15 {
                bottom = bottom.join(if level == 0 { "1".to_owned() } else { "2".repeat(200) });
                fs::create_dir(&bottom).unwrap();
            }
            fs::rename(dir.join("chain"), bottom.join("3")).unwrap();
            fs::rename(dir.join("longer"), dir.join("chain")).unwrap();
        }
        fs::write(dir.join("fine"), "fine").unwrap();
        set_mode(&dir.join("chain/1"), 0o000);
    });
    let error = host.open().unwrap().commit(&[], false).unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
    assert_eq!(fs::read_dir(host.directory()).unwrap().count(), 0);
    host.open().unwrap().discard(&["chain".into()]).unwrap();
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(host.read("fine"), "fine");
    assert!(host.open().is_none() && host.left().is_empty());
}

#[test]
fn a_place_of_another_user_is_refused() {
    if is_skipped("a_place_of_another_user") {
        return;
    }
    let host = Host::new();
    host.guest(|dir| fs::write(dir.join("new"), "").unwrap());
    let state = host.directory().with_file_name("state");
    let open = || crate::Overlay::open_in(&state, &host.directory());
    std::os::unix::fs::chown(&state, Some(1), None).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, Error::Place(_)), "{error}");
    std::os::unix::fs::chown(&state, Some(0), None).unwrap();
    // A lock or a note that leads elsewhere is not followed.
    let layers = open().unwrap().unwrap().layers();
    let victim = host.directory().with_file_name("victim");
    symlink(&victim, layers.with_file_name("intent.new")).unwrap();
    open().unwrap().unwrap().discard(&["new".into()]).unwrap_err();
    assert!(!victim.exists());
}

#[test]
fn the_sum_of_lengths_does_not_overflow() {
    let host = Host::new();
    host.write("file", "");
    let overlay = host.for_run();
    let mut meta = overlay.lower().unwrap().meta(Path::new("file")).unwrap().unwrap();
    meta.len_bytes = u64::MAX - 1;
    let change =
        crate::Change { path: "file".into(), difference: crate::Difference::Added, before: None, after: Some(meta) };
    assert_eq!(crate::Sum::of(&[change.clone(), change]).bytes, u64::MAX);
}
