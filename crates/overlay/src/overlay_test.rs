//! What a guest changes is listed, committed and discarded; what the host changes meanwhile is a conflict.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

use crate::{
    Difference, Error, Sum,
    support::{Host, fifo, is_skipped, set_mode},
};

pub(crate) fn differences(host: &Host) -> Vec<(String, Difference)> {
    let overlay = host.open().expect("an overlay");
    let changes = overlay.changes().unwrap().into_iter().filter(|change| change.difference != Difference::Times);
    changes.map(|change| (change.path.to_string_lossy().into_owned(), change.difference)).collect()
}

/// A tree with a bit of everything.
pub(crate) fn filled() -> Host {
    let host = Host::new();
    for (name, content) in [("a", "one\n"), ("b", "two\n"), ("dir/x", "x"), ("dir/sub/y", "y"), ("gone/z", "z")] {
        host.write(name, content);
    }
    fs::hard_link(host.path("a"), host.path("a2")).unwrap();
    symlink("a", host.path("link")).unwrap();
    host
}

#[test]
fn the_directory_stays_until_the_commit_and_is_then_what_the_guest_saw() {
    if is_skipped("the_directory_stays_until_the_commit") {
        return;
    }
    let host = filled();
    let before = host.listing();
    let seen = host.guest(|dir| {
        fs::write(dir.join("a"), "another\n").unwrap();
        fs::remove_file(dir.join("b")).unwrap();
        fs::remove_dir_all(dir.join("gone")).unwrap();
        fs::create_dir(dir.join("gone")).unwrap();
        fs::write(dir.join("gone/new"), "new").unwrap();
        fs::hard_link(dir.join("gone/new"), dir.join("dir/linked")).unwrap();
        fs::remove_file(dir.join("link")).unwrap();
        fs::create_dir(dir.join("link")).unwrap();
        fs::remove_dir_all(dir.join("dir/sub")).unwrap();
        symlink("/etc", dir.join("dir/sub")).unwrap();
        set_mode(&dir.join("dir/x"), 0o400);
        set_mode(&dir.join("dir"), 0o555);
        fifo(&dir.join("pipe"));
    });
    assert_eq!(host.listing(), before);
    let expected = [
        ("a", Difference::Changed),
        ("b", Difference::Removed),
        ("dir", Difference::Mode),
        ("dir/linked", Difference::Added),
        ("dir/sub", Difference::Changed),
        ("dir/sub/y", Difference::Removed),
        ("dir/x", Difference::Mode),
        ("gone/new", Difference::Added),
        ("gone/z", Difference::Removed),
        ("link", Difference::Changed),
        ("pipe", Difference::Added),
    ];
    assert_eq!(differences(&host), expected.map(|(name, difference)| (name.to_owned(), difference)));

    let committed = host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!((committed.sum.files, committed.sum.directories), (9, 2));
    assert_eq!(host.listing(), seen);
    assert!(host.open().is_none() && host.left().is_empty());
}

#[test]
fn a_second_run_goes_on_and_discard_ends_it() {
    if is_skipped("a_second_run_goes_on") {
        return;
    }
    let host = filled();
    let before = host.listing();
    host.guest(|dir| fs::write(dir.join("first"), "1").unwrap());
    host.guest(|dir| fs::rename(dir.join("first"), dir.join("second")).unwrap());
    assert_eq!(differences(&host), [("second".to_owned(), Difference::Added)]);
    let sum = host.open().unwrap().discard(&[]).unwrap();
    assert_eq!(sum, Some(Sum { files: 1, directories: 0, bytes: 1 }));
    assert_eq!(host.listing(), before);
    assert!(host.open().is_none() && host.left().is_empty());
}

#[test]
fn paths_are_committed_and_discarded_alone() {
    if is_skipped("paths_are_committed") {
        return;
    }
    let host = filled();
    host.guest(|dir| {
        for name in ["a", "b", "dir/x", "new/deep/file"] {
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            fs::write(dir.join(name), "guest").unwrap();
        }
        fs::remove_dir_all(dir.join("gone")).unwrap();
        fs::create_dir(dir.join("gone")).unwrap();
        fs::write(dir.join("gone/again"), "").unwrap();
    });
    let commit = |path: &str| host.open().unwrap().commit(&[path.into()], false);
    commit("a").unwrap();
    commit("./new/deep/file").unwrap();
    assert_eq!(
        (host.read("a"), host.read("b"), host.read("new/deep/file")),
        ("guest".into(), "two\n".into(), "guest".into())
    );
    host.open().unwrap().discard(&["b".into(), "dir".into()]).unwrap();
    let left: Vec<_> = differences(&host).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["gone/again", "gone/z"]);

    // A directory that was made anew can be committed in parts, but not discarded in parts.
    commit("gone/again").unwrap();
    assert!(host.path("gone/again").exists() && host.path("gone/z").exists());
    let error = host.open().unwrap().discard(&["gone/z".into()]).unwrap_err();
    assert!(matches!(&error, Error::Whole { above, .. } if above == Path::new("gone")), "{error}");
    assert!(matches!(commit("a").unwrap_err(), Error::Unchanged(_)));
    assert!(matches!(commit("../d").unwrap_err(), Error::Outside(_)));
    assert!(matches!(commit("/etc/passwd").unwrap_err(), Error::Outside(_)));
}

#[test]
fn what_the_host_has_changed_since_is_refused_and_can_be_forced() {
    if is_skipped("what_the_host_has_changed") {
        return;
    }
    let host = filled();
    host.guest(|dir| {
        fs::write(dir.join("a"), "guest").unwrap();
        fs::write(dir.join("dir/new"), "guest").unwrap();
        fs::write(dir.join("dir/x"), "guest").unwrap();
        fs::remove_dir_all(dir.join("gone")).unwrap();
    });
    host.write("a", "host");
    host.write("dir/new", "host");
    host.write("gone/more", "host");
    fs::remove_file(host.path("dir/x")).unwrap();
    let Error::Conflicts(conflicts) = host.open().unwrap().commit(&[], false).unwrap_err() else { panic!() };
    let conflicts: Vec<_> =
        conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.reason)).collect();
    let expected = [
        ("a", "changed on the host"),
        ("dir/new", "created on the host"),
        ("dir/x", "removed on the host"),
        ("gone/more", "created on the host"),
    ];
    assert_eq!(conflicts, expected);
    assert_eq!((host.read("a"), host.read("gone/more")), ("host".into(), "host".into()));

    // The host's other changes stay.
    host.write("b", "host");
    host.open().unwrap().commit(&[], true).unwrap();
    assert_eq!((host.read("a"), host.read("b"), host.read("dir/x")), ("guest".into(), "host".into(), "guest".into()));
    assert!(!host.path("gone").exists());
}

#[test]
fn what_the_host_changes_before_a_later_run_is_no_conflict_unless_the_guest_had_changed_it() {
    if is_skipped("what_the_host_changes_before") {
        return;
    }
    let host = filled();
    host.guest(|dir| fs::write(dir.join("a"), "guest").unwrap());
    host.write("a", "host");
    host.write("b", "host");
    host.guest(|dir| fs::write(dir.join("b"), "guest").unwrap());
    let Error::Conflicts(conflicts) = host.open().unwrap().commit(&[], false).unwrap_err() else { panic!() };
    assert_eq!(conflicts.iter().map(|conflict| conflict.path.clone()).collect::<Vec<_>>(), [PathBuf::from("a")]);
}

#[test]
fn one_use_at_a_time() {
    let host = Host::new();
    let run = host.for_run();
    let error =
        crate::Overlay::for_run_in(host.directory().with_file_name("state").as_path(), &host.directory()).unwrap_err();
    assert!(matches!(error, Error::InUse(_)), "{error}");
    let daemon = run.held().unwrap();
    drop(run);
    let other = || crate::Overlay::open_in(&host.directory().with_file_name("state"), &host.directory());
    assert!(matches!(other().unwrap_err(), Error::InUse(_)));
    drop(daemon);
    assert!(other().unwrap().is_some());
}

#[test]
fn large_and_sparse_files_and_attributes_arrive_as_they_are() {
    if is_skipped("large_and_sparse_files") {
        return;
    }
    let host = Host::new();
    host.write("kept", "x");
    let name = OsStr::from_bytes(b"odd \xff\n\x1b[31m");
    let seen = host.guest(|dir| {
        let file = fs::File::create(dir.join("sparse")).unwrap();
        file.write_all_at(b"middle", 3 << 30).unwrap();
        file.set_len(5 << 30).unwrap();
        drop(file);
        fs::write(dir.join("large"), vec![7; 9 << 20]).unwrap();
        fs::write(dir.join(name), "odd").unwrap();
        let text = |name: &str| dir.join(name);
        rustix::fs::setxattr(text("kept"), c"user.note", b"value", rustix::fs::XattrFlags::empty()).unwrap();
        let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::File::options().write(true).open(text("large")).unwrap().set_times(old).unwrap();
        // It would take minutes to compare the hole byte by byte.
        fs::rename(dir.join("sparse"), dir.join("sparse.tmp")).unwrap();
        fs::rename(dir.join("sparse.tmp"), dir.join("sparse")).unwrap();
        set_mode(&dir.join("large"), 0o6755);
        assert_eq!(fs::metadata(dir.join("sparse")).unwrap().len(), 5 << 30);
        fs::File::options().write(true).open(dir.join("sparse")).unwrap().set_len((3 << 30) + 6).unwrap();
        fs::File::options().write(true).open(dir.join("sparse")).unwrap().set_len(64).unwrap();
        let file = fs::File::options().write(true).open(dir.join("sparse")).unwrap();
        file.write_all_at(b"end", 64 << 20).unwrap();
    });
    let committed = host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(committed.without_set_id, 1);
    let mut expected = seen;
    expected.get_mut(Path::new("large")).unwrap().1 = 0o755;
    assert_eq!(host.listing(), expected);
    assert!(fs::metadata(host.path("sparse")).unwrap().blocks() < 1000);
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(host.path("kept"), c"user.note", &mut value[..]), Ok(5));
}
