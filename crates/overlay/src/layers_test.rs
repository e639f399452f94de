//! A guest that mounts its overlay itself can do anything to the layers. Whatever is there when it ends is read,
//! refused or thrown away, and changes nothing else on the host.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, makedev, mknodat, setxattr};

use crate::{
    Difference, Error,
    overlay_test::{differences, filled},
    support::{Host, fifo, is_skipped, set_mode},
};

/// Lets a guest that hides `hidden` write to the layers as it likes.
fn hostile(host: &Host, hidden: &[&str], work: impl FnOnce(&Path)) {
    let overlay = host.for_run();
    let hidden: Vec<_> = hidden.iter().map(PathBuf::from).collect();
    overlay.for_guest(&hidden).unwrap();
    work(&overlay.layers());
}

fn note(path: &Path, name: &std::ffi::CStr, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn is_unprivileged(test: &str) -> bool {
    let is_unprivileged = !rustix::process::geteuid().is_root();
    if is_unprivileged {
        eprintln!("SKIPPED: {test}: it makes devices, which needs root");
    }
    is_unprivileged
}

#[test]
fn an_upper_layer_that_is_gone_or_a_link_is_told_and_discarded() {
    let victim = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(victim.path().join("a"), "untouched").unwrap();
    set_mode(victim.path(), 0o750);
    let destroy: [&dyn Fn(&Path); 5] = [
        &|layers| fs::remove_dir(layers.join("upper")).unwrap(),
        &|layers| {
            fs::remove_dir(layers.join("upper")).unwrap();
            symlink(victim.path(), layers.join("upper")).unwrap();
        },
        &|layers| {
            fs::remove_dir(layers.join("upper")).unwrap();
            symlink("/proc/self/cwd", layers.join("upper")).unwrap();
        },
        &|layers| {
            fs::remove_dir(layers.join("upper")).unwrap();
            fs::write(layers.join("upper"), "").unwrap();
        },
        &|layers| {
            fs::remove_dir(layers.join("upper")).unwrap();
            fifo(&layers.join("upper"));
        },
    ];
    for destroy in destroy {
        let host = Host::new();
        host.write("a", "host");
        hostile(&host, &[], destroy);
        let is_told = |error: Error| assert!(matches!(error, Error::Layers(_)), "{error}");
        is_told(host.open().unwrap().changes().unwrap_err());
        is_told(host.open().unwrap().commit(&[], true).unwrap_err());
        is_told(host.try_for_run().unwrap_err());
        assert_eq!(host.open().unwrap().discard(&[]).unwrap(), None);
        assert!(host.open().is_none() && host.left().is_empty());
        assert_eq!(host.read("a"), "host");
        assert_eq!(fs::read_to_string(victim.path().join("a")).unwrap(), "untouched");
        assert_eq!(fs::metadata(victim.path()).unwrap().mode() & 0o777, 0o750);
    }
}

#[test]
fn what_a_guest_has_put_beside_the_upper_layer_does_not_last() {
    let victim = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(victim.path().join("a"), "untouched").unwrap();
    set_mode(victim.path(), 0o750);
    let host = Host::new();
    hostile(&host, &[], |layers| {
        fs::write(layers.join("upper/kept"), "kept").unwrap();
        fs::create_dir_all(layers.join("store/deep")).unwrap();
        fs::write(layers.join("intent"), "{").unwrap();
        fs::remove_dir_all(layers.join("work")).unwrap();
        symlink(victim.path(), layers.join("work")).unwrap();
        symlink(victim.path(), layers.join("link")).unwrap();
        set_mode(layers, 0o777);
    });
    let overlay = host.for_run();
    let mut names: Vec<_> = fs::read_dir(overlay.layers()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["upper", "work"]);
    assert!(fs::symlink_metadata(overlay.layers().join("work")).unwrap().is_dir());
    assert_eq!(fs::metadata(overlay.layers()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(victim.path()).unwrap().mode() & 0o777, 0o750);
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 1);
    drop(overlay);
    assert_eq!(differences(&host), [("kept".to_owned(), Difference::Added)]);
}

#[test]
fn notes_that_are_forged_lead_nowhere() {
    let host = Host::new();
    for (name, content) in [("secret/key", "secret"), ("dir/x", "x"), ("big", "host")] {
        host.write(name, content);
    }
    hostile(&host, &[], |layers| {
        let upper = layers.join("upper");
        // A directory that claims to be another one, and files that claim to have the content of the lower layer's.
        fs::create_dir(upper.join("stolen")).unwrap();
        note(&upper.join("stolen"), c"user.overlay.redirect", b"/secret");
        note(&upper.join("stolen"), c"user.overlay.origin", &[0, 0xfb, 0x1d, 1, 0x81]);
        fs::write(upper.join("big"), "").unwrap();
        note(&upper.join("big"), c"user.overlay.metacopy", b"");
        note(&upper.join("big"), c"user.overlay.redirect", b"/secret/key");
        fs::write(upper.join("climbs"), "").unwrap();
        note(&upper.join("climbs"), c"user.overlay.redirect", b"/../../../etc/shadow");
        note(&upper.join("climbs"), c"user.overlay.whiteout", b"y");
        fs::create_dir(upper.join("dir")).unwrap();
        note(&upper.join("dir"), c"user.overlay.opaque", b"x");
    });
    host.open().unwrap().commit(&[], false).unwrap();
    // Only what is in the upper layer itself has arrived, and no notes.
    assert_eq!((host.read("big"), host.read("climbs"), host.read("dir/x")), (String::new(), String::new(), "x".into()));
    assert_eq!(fs::read_dir(host.path("stolen")).unwrap().count(), 0);
    for (name, attribute) in [("stolen", c"user.overlay.redirect"), ("big", c"user.overlay.metacopy")] {
        assert!(getxattr(host.path(name), attribute, &mut [0; 64][..]).is_err(), "{name}");
    }
}

#[test]
fn links_devices_and_programs_in_the_layer_do_no_harm() {
    if is_unprivileged("links_devices_and_programs") {
        return;
    }
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    let host = Host::new();
    host.write("dir/victim", "inside");
    hostile(&host, &[], |layers| {
        let upper = layers.join("upper");
        symlink(outside.path(), upper.join("dir")).unwrap();
        fs::write(upper.join("program"), "#!/bin/sh\n").unwrap();
        set_mode(&upper.join("program"), 0o6755);
        // Another name of it where no walk comes.
        fs::hard_link(upper.join("program"), layers.join("twin")).unwrap();
        fs::write(layers.join("elsewhere"), "elsewhere").unwrap();
        fs::hard_link(layers.join("elsewhere"), upper.join("linked")).unwrap();
        mknodat(CWD, upper.join("disk"), FileType::BlockDevice, Mode::RWXU, makedev(8, 0)).unwrap();
        for name in ["white", "dir2"] {
            mknodat(CWD, upper.join(name), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        }
        fs::hard_link(upper.join("white"), upper.join("white too")).unwrap();
    });
    let error = host.open().unwrap().commit(&[], true).unwrap_err();
    assert!(matches!(&error, Error::Device { path } if path == Path::new("disk")), "{error}");
    host.open().unwrap().discard(&["disk".into()]).unwrap();
    let committed = host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!((committed.without_set_id, host.read("linked")), (1, "elsewhere".into()));
    assert_eq!(fs::metadata(host.path("program")).unwrap().mode() & 0o7777, 0o755);
    assert!(fs::symlink_metadata(host.path("dir")).unwrap().is_symlink() && !host.path("white").exists());
    assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "untouched");
    let names = fs::read_dir(host.directory()).unwrap();
    assert!(!names.into_iter().any(|entry| entry.unwrap().file_type().unwrap().is_char_device()));
}

#[test]
fn what_was_hidden_is_neither_replaced_nor_removed() {
    let host = Host::new();
    for (name, content) in [("dir/.env", "TOKEN"), ("dir/plain", "plain"), (".key", "KEY"), ("free", "free")] {
        host.write(name, content);
    }
    let hidden = ["dir/.env", ".key"];
    let layers: [&dyn Fn(&Path); 4] = [
        &|upper| fs::write(upper.join(".key"), "evil").unwrap(),
        // The same content does not help, nor does a second name for it.
        &|upper| {
            fs::write(upper.join(".key"), "KEY").unwrap();
            fs::hard_link(upper.join(".key"), upper.join("second")).unwrap();
        },
        &|upper| note(&upper.join("dir"), c"user.overlay.opaque", b"y"),
        &|upper| {
            fs::remove_dir(upper.join("dir")).unwrap();
            fs::write(upper.join("dir"), "a file").unwrap();
        },
    ];
    for (number, change) in layers.iter().enumerate() {
        hostile(&host, &hidden, |layers| {
            change(&layers.join("upper"));
            fs::write(layers.join("upper/new"), "new").unwrap();
        });
        // No force helps.
        for is_forced in [false, true] {
            let error = host.open().unwrap().commit(&[], is_forced).unwrap_err();
            assert!(matches!(error, Error::Hidden { .. }), "{number}: {error}");
        }
        assert_eq!((host.read("dir/.env"), host.read(".key")), ("TOKEN".into(), "KEY".into()), "{number}");
        // What has nothing to do with it is committed.
        host.open().unwrap().commit(&["new".into()], false).unwrap();
        assert_eq!(host.read("new"), "new");
        fs::remove_file(host.path("new")).unwrap();
        host.open().unwrap().discard(&[]).unwrap();
    }
    assert_eq!(fs::metadata(host.path(".key")).unwrap().nlink(), 1);
}

#[test]
fn hidden_paths_are_remembered_until_the_overlay_ends() {
    let host = filled();
    hostile(&host, &["dir/sub/y"], |_| ());
    // Its directories are there, as they are below, so that a daemon that guards the path lets the guest use them.
    assert!(host.open().unwrap().layers().join("upper/dir/sub").is_dir());
    assert_eq!(differences(&host), []);
    hostile(&host, &[], |layers| fs::write(layers.join("upper/dir/sub/y"), "evil").unwrap());
    let error = host.open().unwrap().commit(&[], true).unwrap_err();
    assert!(matches!(&error, Error::Hidden { path } if path == Path::new("dir/sub/y")), "{error}");
    host.open().unwrap().discard(&["dir/sub/y".into()]).unwrap();
    assert_eq!(differences(&host), []);
    assert_eq!(host.read("dir/sub/y"), "y");
}

#[test]
fn notes_of_an_earlier_session_are_forgotten() {
    if is_skipped("notes_of_an_earlier_session") {
        return;
    }
    let host = filled();
    host.guest(|dir| {
        fs::write(dir.join("b"), "guest").unwrap();
        set_mode(&dir.join("b"), 0o000);
    });
    let upper = host.open().unwrap().layers().join("upper");
    let has_origin = || getxattr(upper.join("b"), c"user.overlay.origin", &mut [0; 256][..]).is_ok();
    assert!(has_origin());
    hostile(&host, &[], |_| ());
    assert!(!has_origin());
    assert_eq!(fs::metadata(upper.join("b")).unwrap().mode() & 0o777, 0);
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(host.read("b"), "guest");
}

#[test]
fn the_layers_of_a_version_that_had_them_elsewhere_are_found_and_changes_are_kept() {
    if is_skipped("the_layers_of_a_version") {
        return;
    }
    let host = filled();
    host.guest(|dir| fs::write(dir.join("new"), "guest").unwrap());
    let expected = differences(&host);
    for is_renamed_half in [false, true] {
        let layers = host.open().unwrap().layers();
        let state = layers.parent().unwrap();
        let back = if is_renamed_half { &["upper"][..] } else { &["upper", "work"] };
        back.iter().for_each(|name| fs::rename(layers.join(name), state.join(name)).unwrap());
        if !is_renamed_half {
            fs::remove_dir(&layers).unwrap();
        }
        assert_eq!(differences(&host), expected);
        host.guest(|dir| assert_eq!(fs::read(dir.join("new")).unwrap(), b"guest"));
    }
}

#[test]
fn a_guest_that_takes_all_rights_from_the_layers_does_not_hide_its_changes() {
    if is_skipped("a_guest_that_takes_all_rights") {
        return;
    }
    let host = filled();
    host.guest(|dir| fs::write(dir.join("new"), "guest").unwrap());
    let expected = differences(&host);
    let layers = host.open().unwrap().layers();
    set_mode(&layers, 0);
    assert_eq!(differences(&host), expected);
    assert_eq!(fs::metadata(layers).unwrap().mode() & 0o777, 0o700);
}
