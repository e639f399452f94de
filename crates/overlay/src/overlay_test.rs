//! What a guest changes is listed, committed and discarded; what the host changes meanwhile is a conflict.

use std::{
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
    Difference, Error, Sum, patch,
    support::{Host, fifo, is_skipped, set_mode},
};

fn differences(host: &Host) -> Vec<(String, Difference)> {
    let overlay = host.open().expect("an overlay");
    let changes = overlay.changes().unwrap().into_iter().filter(|change| change.difference != Difference::Times);
    changes.map(|change| (change.path.to_string_lossy().into_owned(), change.difference)).collect()
}

/// A tree with a bit of everything.
fn filled() -> Host {
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
    assert_eq!(sum, Sum { files: 1, directories: 0, bytes: 1 });
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
    let error = crate::Overlay::for_run_in(run.layers().parent().unwrap(), &host.directory()).unwrap_err();
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

#[test]
fn a_patch_is_what_git_and_patch_read() {
    if is_skipped("a_patch_is_what_git_and_patch_read") {
        return;
    }
    let host = filled();
    host.guest(|dir| {
        fs::write(dir.join("a"), "one\nand more").unwrap();
        fs::remove_file(dir.join("b")).unwrap();
        fs::write(dir.join("data"), b"\0\x01").unwrap();
        fs::write(dir.join("new\x1b"), "new\n").unwrap();
    });
    let overlay = host.open().unwrap();
    let mut text = Vec::new();
    patch(&overlay, &overlay.changes().unwrap(), &mut text).unwrap();
    let expected = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+and more\n\
                    \\ No newline at end of file\ndiff --git a/b b/b\ndeleted file mode 100644\n--- a/b\n\
                    +++ /dev/null\n\
                    @@ -1 +0,0 @@\n-two\ndiff --git a/data b/data\nnew file mode 100644\n\
                    Binary files /dev/null and b/data differ\ndiff --git \"a/new\\033\" \"b/new\\033\"\n\
                    new file mode 100644\n--- /dev/null\n+++ \"b/new\\033\"\n@@ -0,0 +1 @@\n+new\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn a_name_in_a_patch_cannot_look_like_another() {
    if is_skipped("a_name_in_a_patch_cannot_look_like_another") {
        return;
    }
    let host = Host::new();
    host.guest(|dir| fs::write(dir.join("txt.\u{202e}hs\u{2069}"), "x\n").unwrap());
    let overlay = host.open().unwrap();
    let mut text = Vec::new();
    patch(&overlay, &overlay.changes().unwrap(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(r#"+++ "b/txt.\342\200\256hs\342\201\251""#) && text.is_ascii(), "{text}");
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

#[test]
fn what_is_mounted_in_the_directory_is_neither_read_nor_written() {
    if is_skipped("what_is_mounted_in_the_directory") {
        return;
    }
    let host = filled();
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(other.path().join("x"), "other").unwrap();
    host.guest(|dir| fs::write(dir.join("dir/x"), "guest").unwrap());
    rustix::mount::mount_bind(other.path(), host.path("dir")).unwrap();
    let is_checked = std::panic::catch_unwind(|| {
        let error = host.open().unwrap().commit(&[], true).unwrap_err().to_string();
        // A bind mount of the same file system is another mount.
        assert!(error.contains("unmount"), "{error}");
        assert_eq!(host.read("dir/x"), "other");
    });
    rustix::mount::unmount(host.path("dir"), rustix::mount::UnmountFlags::DETACH).unwrap();
    is_checked.unwrap();
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(host.read("dir/x"), "guest");
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
fn a_patch_makes_of_the_directory_what_the_guest_saw() {
    if is_skipped("a_patch_makes_of_the_directory") {
        return;
    }
    let host = Host::new();
    let files: [(&str, &[u8], &[u8]); 8] = [
        ("with space", b"one\ntwo\n", b"one\nthree\n"),
        ("dir with space/two  words", b"one\n", b"one\nmore"),
        ("carriage", b"a\rb\nc\r\nd\n", b"a\rb\nC\rc\r\nd\re"),
        ("ends in carriage", b"x\ny\r", b"x\nz\r"),
        ("latin", b"caf\xe9\nx\n", b"caf\xe9\ny\xff\n"),
        ("separators", b"a\xe2\x80\xa8b\x0bc\x0cd\n", b"a\xe2\x80\xa8b\x0bc\x0cD\n"),
        ("no newline", b"last", b"last\n"),
        ("new file with space", b"", b"first\r\nsecond"),
    ];
    for (name, before, _) in files.iter().filter(|(_, before, _)| !before.is_empty()) {
        fs::create_dir_all(host.path(name).parent().unwrap()).unwrap();
        fs::write(host.path(name), before).unwrap();
    }
    host.write("one", "decoy\n");
    host.guest(|dir| files.iter().for_each(|(name, _, after)| fs::write(dir.join(name), after).unwrap()));
    let overlay = host.open().unwrap();
    let mut text = Vec::new();
    patch(&overlay, &overlay.changes().unwrap(), &mut text).unwrap();
    let file = host.directory().with_file_name("patch");
    fs::write(&file, &text).unwrap();
    let programs: [&[&str]; 2] =
        [&["git", "apply", "--whitespace=nowarn"], &["patch", "-p1", "--binary", "--batch", "-i"]];
    for words in programs {
        let copy = tempfile::tempdir_in("/var/tmp").unwrap();
        let copied = std::process::Command::new("cp").arg("-R").arg(host.path(".")).arg(copy.path()).status();
        assert!(copied.unwrap().success());
        let mut program = std::process::Command::new(words[0]);
        let program = program.args(&words[1..]).arg(&file).current_dir(copy.path());
        let output = match program.stdin(std::process::Stdio::null()).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: a_patch_makes_of_the_directory: there is no program {}", words[0]);
                continue;
            }
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", String::from_utf8_lossy(&text));
        for (name, _, after) in files {
            assert_eq!(fs::read(copy.path().join(name)).unwrap(), after, "{words:?} {name}");
        }
        assert_eq!(fs::read(copy.path().join("one")).unwrap(), b"decoy\n");
    }
}
