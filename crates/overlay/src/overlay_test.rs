//! What a guest changes is listed, committed and discarded; what the host changes meanwhile is a conflict.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use crate::{
    Difference, Error, Sum,
    support::{Host, Listing, fifo, is_skipped, set_mode},
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

/// Something that a guest does. Names are small numbers, so that they meet.
#[derive(Clone, Debug)]
enum Act {
    Write(u8, u8),
    Append(u8),
    MakeDirectory(u8),
    Remove(u8),
    Rename(u8, u8),
    Link(u8, u8),
    Symlink(u8, u8),
    Mode(u8, u16),
    Touch(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let name = 0..24_u8;
    let act = prop_oneof![
        (name.clone(), any::<u8>()).prop_map(|(a, b)| Act::Write(a, b)),
        name.clone().prop_map(Act::Append),
        name.clone().prop_map(Act::MakeDirectory),
        name.clone().prop_map(Act::Remove),
        (name.clone(), name.clone()).prop_map(|(a, b)| Act::Rename(a, b)),
        (name.clone(), name.clone()).prop_map(|(a, b)| Act::Link(a, b)),
        (name.clone(), name.clone()).prop_map(|(a, b)| Act::Symlink(a, b)),
        (name.clone(), 0..0o1000_u16).prop_map(|(a, b)| Act::Mode(a, b)),
        name.prop_map(Act::Touch),
    ];
    proptest::collection::vec(act, 0..40)
}

/// Names of the first level.
fn parts() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..4_u8, 0..4)
}

/// Three levels of four names each.
fn name(number: u8) -> PathBuf {
    let letter = |number: u8| ["a", "b", "c", "d"][usize::from(number % 4)];
    match number / 4 {
        0 | 1 => letter(number).into(),
        2 | 3 => Path::new(letter(number / 2)).join(letter(number)),
        _ => Path::new(letter(number / 2)).join(letter(number / 3)).join(letter(number)),
    }
}

/// Does it; what cannot be done is no error.
fn perform(dir: &Path, act: &Act) {
    use std::io::Write;
    let at = |number: &u8| dir.join(name(*number));
    let _ = match act {
        Act::Write(a, b) => fs::write(at(a), vec![*b; usize::from(*b)]),
        Act::Append(a) => fs::File::options().append(true).open(at(a)).and_then(|mut file| file.write_all(b"more")),
        Act::MakeDirectory(a) => fs::create_dir(at(a)),
        Act::Remove(a) => fs::remove_file(at(a)).or_else(|_| fs::remove_dir_all(at(a))),
        Act::Rename(a, b) => fs::rename(at(a), at(b)),
        Act::Link(a, b) => fs::hard_link(at(a), at(b)),
        // They lead nowhere, so that nothing is done through them.
        Act::Symlink(a, b) => symlink(Path::new("/nonexistent").join(name(*b)), at(a)),
        Act::Mode(a, mode) => match fs::symlink_metadata(at(a)) {
            Ok(meta) if !meta.is_symlink() => fs::set_permissions(at(a), PermissionsExt::from_mode(u32::from(*mode))),
            _ => Ok(()),
        },
        Act::Touch(a) => fs::File::options()
            .append(true)
            .open(at(a))
            .and_then(|file| file.set_times(fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH))),
    };
}

/// Returns whether the changes may call the name linked, or leave that to another name of the same file: one name of a
/// file that has gained names is made, and the others become links of it. Listings do not tell which symbolic links are
/// one.
fn may_be_linked(before: &Listing, after: &Listing, path: &Path) -> bool {
    let Some(entry) = after.get(path).filter(|_| before.contains_key(path)) else { return false };
    let mut new = after.iter().filter(|(name, _)| !before.contains_key(*name));
    if entry.0.contains("is_symlink: true") {
        new.any(|(_, other)| other.0 == entry.0 && other.3 == entry.3)
    } else {
        !entry.4.as_os_str().is_empty() && new.any(|(_, other)| other.4 == entry.4)
    }
}

/// Returns how two listings differ, without times.
fn compared(before: &Listing, after: &Listing) -> BTreeMap<String, Difference> {
    let names_of = |listing: &Listing, leader: &Path| -> BTreeSet<PathBuf> {
        listing.iter().filter(|(_, entry)| entry.4 == leader).map(|(path, _)| path.clone()).collect()
    };
    let mut differences = BTreeMap::new();
    for path in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let difference = match (before.get(path), after.get(path)) {
            (None, Some(_)) => Difference::Added,
            (Some(_), None) => Difference::Removed,
            (Some(old), Some(new)) if (&old.0, &old.3) != (&new.0, &new.3) => Difference::Changed,
            (Some(old), Some(new)) if old.1 != new.1 => Difference::Mode,
            (Some(old), Some(new)) if !new.4.as_os_str().is_empty() => {
                // Names that have become one file.
                let (was, is) = (names_of(before, &old.4), names_of(after, &new.4));
                if is.is_subset(&was) { continue } else { Difference::Linked }
            }
            _ => continue,
        };
        differences.insert(path.to_string_lossy().into_owned(), difference);
    }
    differences
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_guests_do_the_commit_is_what_they_saw(before in acts(), first in acts(), second in acts()) {
        if is_skipped("whatever_guests_do") {
            return Ok(());
        }
        let host = Host::new();
        before.iter().for_each(|act| perform(&host.directory(), act));
        let untouched = host.listing();
        host.guest(|dir| first.iter().for_each(|act| perform(dir, act)));
        let seen = host.guest(|dir| second.iter().for_each(|act| perform(dir, act)));
        prop_assert_eq!(host.listing(), untouched);
        if let Some(mut overlay) = host.open() {
            overlay.commit(&[], false).unwrap();
        }
        prop_assert_eq!(host.listing(), seen);
        prop_assert!(host.open().is_none());
    }

    /// The list of changes is that of a comparison of the two trees, and nothing else.
    #[test]
    fn the_changes_are_what_a_comparison_of_the_trees_finds(before in acts(), first in acts(), second in acts()) {
        if is_skipped("the_changes_are_what_a_comparison") {
            return Ok(());
        }
        let host = Host::new();
        before.iter().for_each(|act| perform(&host.directory(), act));
        let untouched = host.listing();
        host.guest(|dir| first.iter().for_each(|act| perform(dir, act)));
        let seen = host.guest(|dir| second.iter().for_each(|act| perform(dir, act)));
        prop_assert_eq!(host.listing(), untouched.clone());
        let listed: BTreeMap<_, _> = if host.open().is_some() { differences(&host).into_iter().collect() } else {
            BTreeMap::new()
        };
        let exactly = |mut differences: BTreeMap<String, Difference>| {
            differences.retain(|path, difference| {
                let is_free = matches!(difference, Difference::Linked | Difference::Mode)
                    && may_be_linked(&untouched, &seen, Path::new(path));
                !is_free
            });
            differences
        };
        prop_assert_eq!(exactly(listed), exactly(compared(&untouched, &seen)));
    }

    #[test]
    fn a_commit_by_parts_comes_to_the_same(before in acts(), acts in acts(), parts in parts()) {
        if is_skipped("a_commit_by_parts") {
            return Ok(());
        }
        let host = Host::new();
        before.iter().for_each(|act| perform(&host.directory(), act));
        let seen = host.guest(|dir| acts.iter().for_each(|act| perform(dir, act)));
        for part in parts {
            if let Some(mut overlay) = host.open() {
                match overlay.commit(&[name(part)], false) {
                    Ok(_) | Err(Error::Unchanged(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            // Both layers together are what they were, but for names of one file that was committed in parts.
            let now = host.guest(|_| ());
            prop_assert_eq!(now.keys().collect::<Vec<_>>(), seen.keys().collect::<Vec<_>>());
        }
        if let Some(mut overlay) = host.open() {
            overlay.commit(&[], false).unwrap();
        }
        let content = |listing: crate::support::Listing| {
            listing.into_iter().map(|(path, entry)| (path, entry.0, entry.1, entry.3)).collect::<Vec<_>>()
        };
        prop_assert_eq!(content(host.listing()), content(seen));
    }
}
