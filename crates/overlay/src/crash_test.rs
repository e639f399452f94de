//! A commit that is stopped before any of its steps is finished by the next one, and nothing is lost.

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::{
    Error,
    support::{Host, is_skipped, set_mode},
};

fn host() -> Host {
    let host = Host::new();
    for name in ["a", "b", "c", "dir/x", "dir/y", "old/one", "old/deep/two", "file", "replaced/z"] {
        host.write(name, name);
    }
    fs::hard_link(host.path("b"), host.path("b2")).unwrap();
    host
}

fn work(dir: &Path) {
    fs::write(dir.join("a"), "guest").unwrap();
    fs::write(dir.join("new"), "guest").unwrap();
    fs::hard_link(dir.join("new"), dir.join("dir/new")).unwrap();
    fs::remove_file(dir.join("b2")).unwrap();
    fs::hard_link(dir.join("a"), dir.join("b2")).unwrap();
    set_mode(&dir.join("c"), 0o600);
    fs::remove_dir_all(dir.join("old")).unwrap();
    fs::create_dir(dir.join("old")).unwrap();
    fs::write(dir.join("old/three"), "3").unwrap();
    fs::remove_file(dir.join("file")).unwrap();
    fs::create_dir(dir.join("file")).unwrap();
    fs::write(dir.join("file/inside"), "i").unwrap();
    fs::remove_dir_all(dir.join("replaced")).unwrap();
    symlink("nowhere", dir.join("replaced")).unwrap();
    set_mode(&dir.join("dir"), 0o500);
}

/// Commits `paths`, and stops before the step with this number. Returns whether there is such a step.
fn stopped(host: &Host, paths: &[&str], at: usize) -> bool {
    let mut steps = 0;
    let mut stop = |_: &str, path: &Path| {
        steps += 1;
        if steps > at { Err(Error::Meanwhile(path.to_owned())) } else { Ok(()) }
    };
    let paths: Vec<_> = paths.iter().map(Into::into).collect();
    let result = host.open().unwrap().commit_stepwise(&paths, false, &mut stop);
    result.is_err()
}

#[test]
fn a_commit_that_is_stopped_anywhere_is_finished() {
    if is_skipped("a_commit_that_is_stopped_anywhere") {
        return;
    }
    let mut at = 0;
    loop {
        let host = host();
        let seen = host.guest(work);
        let is_stopped = stopped(&host, &[], at);
        if let Some(mut overlay) = host.open() {
            overlay.commit(&[], false).unwrap();
        }
        let remark = host.open();
        assert!(remark.is_none(), "step {at}: {:?}", remark.unwrap().remark());
        assert_eq!(host.listing(), seen, "step {at}");
        assert!(host.left().is_empty(), "step {at}");
        if !is_stopped {
            break;
        }
        at += 1;
    }
    assert!(at > 25, "{at} steps");
}

#[test]
fn a_run_after_a_stopped_commit_sees_the_same() {
    if is_skipped("a_run_after_a_stopped_commit") {
        return;
    }
    for paths in [&[][..], &["a", "dir", "old"][..]] {
        for at in (1..40).step_by(3) {
            let host = host();
            let seen = host.guest(work);
            stopped(&host, paths, at);
            let now = host.guest(|_| ());
            let content = |listing: crate::support::Listing| {
                listing.into_iter().map(|(path, entry)| (path, entry.0, entry.1, entry.3)).collect::<Vec<_>>()
            };
            assert_eq!(content(now), content(seen), "{paths:?} {at}");
        }
    }
}

#[test]
fn what_the_host_changes_after_a_stop_is_not_overwritten() {
    if is_skipped("what_the_host_changes_after_a_stop") {
        return;
    }
    let host = host();
    host.guest(work);
    // Before anything but the intent.
    assert!(stopped(&host, &[], 1));
    host.write("a", "host");
    let mut overlay = host.open().unwrap();
    assert!(matches!(overlay.commit(&[], false), Err(Error::Conflicts(_))));
    assert!(overlay.remark().is_some_and(|remark| remark.contains("cannot be finished")), "{:?}", overlay.remark());
    drop(overlay);
    assert_eq!(host.read("a"), "host");
    host.open().unwrap().commit(&[], true).unwrap();
    assert_eq!(host.read("a"), "guest");
}

#[test]
fn a_file_that_the_host_makes_during_a_commit_stops_it() {
    if is_skipped("a_file_that_the_host_makes_during_a_commit") {
        return;
    }
    let host = host();
    host.guest(work);
    let mut intrude = |step: &str, path: &Path| {
        if (step, path) == ("remove", Path::new("replaced")) {
            host.write("replaced/new", "host");
        }
        if (step, path) == ("replace", Path::new("a")) {
            host.write("a", "of the host");
        }
        Ok(())
    };
    let error = host.open().unwrap().commit_stepwise(&[], false, &mut intrude).unwrap_err();
    assert!(matches!(&error, Error::Meanwhile(path) if path == Path::new("replaced")), "{error}");
    assert_eq!(host.read("replaced/new"), "host");
    fs::remove_file(host.path("replaced/new")).unwrap();
}

/// Returns the names at the top of the directory that a commit has made for itself.
fn workshops(host: &Host) -> Vec<String> {
    let names = fs::read_dir(host.directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".transom-commit")).collect()
}

#[test]
fn only_a_commit_goes_on_with_a_stopped_one() {
    if is_skipped("only_a_commit_goes_on") {
        return;
    }
    for at in 1..20 {
        let host = host();
        host.guest(work);
        assert!(stopped(&host, &[], at));
        let before = host.listing();
        let overlay = host.open().unwrap();
        assert!(overlay.remark().is_some_and(|remark| remark.contains("was stopped")), "{:?}", overlay.remark());
        overlay.changes().unwrap();
        drop(overlay);
        assert_eq!(host.listing(), before, "{at}: looking changes nothing");
        let mut overlay = host.open().unwrap();
        overlay.discard(&[]).unwrap();
        drop(overlay);
        let mut expected = before;
        expected.retain(|path, _| !path.to_string_lossy().starts_with(".transom-commit"));
        let content = |listing: crate::support::Listing| {
            let inside = listing.into_iter().filter(|(path, _)| path != Path::new(""));
            inside.map(|(path, entry)| (path, entry.0, entry.1, entry.2, entry.3)).collect::<Vec<_>>()
        };
        assert_eq!(content(host.listing()), content(expected), "{at}: a discard writes nothing");
        assert!(host.open().is_none() && host.left().is_empty(), "{at}");
    }
}

#[test]
fn a_discard_of_a_path_does_not_go_on_with_a_stopped_commit_either() {
    if is_skipped("a_discard_of_a_path") {
        return;
    }
    let host = host();
    host.guest(work);
    assert!(stopped(&host, &[], 1));
    host.open().unwrap().discard(&["a".into()]).unwrap();
    assert_eq!((host.read("a"), host.path("new").exists()), ("a".into(), false));
    let overlay = host.open().unwrap();
    assert!(overlay.remark().is_none(), "{:?}", overlay.remark());
    assert!(!overlay.changes().unwrap().iter().any(|change| change.path == Path::new("a")));
}

#[test]
fn a_forced_commit_that_was_stopped_is_not_forced_later() {
    if is_skipped("a_forced_commit_that_was_stopped") {
        return;
    }
    let host = host();
    host.guest(work);
    host.write("c", "host");
    let mut steps = 0;
    let mut stop = |_: &str, path: &Path| {
        steps += 1;
        if steps > 1 { Err(Error::Meanwhile(path.to_owned())) } else { Ok(()) }
    };
    host.open().unwrap().commit_stepwise(&[], true, &mut stop).unwrap_err();
    host.write("a", "host");
    let error = host.open().unwrap().commit(&[], false).unwrap_err();
    assert!(matches!(error, Error::Conflicts(_)), "{error}");
    assert_eq!((host.read("a"), host.read("c")), ("host".into(), "host".into()));
}

#[test]
fn a_commit_that_can_never_be_finished_blocks_nothing() {
    if is_skipped("a_commit_that_can_never_be_finished") {
        return;
    }
    let host = host();
    host.guest(work);
    assert!(stopped(&host, &[], 25));
    // Whatever is written there fails.
    let mut fails = |step: &str, path: &Path| match step {
        "write to the disk" => Err(Error::io(|| format!("{path:?}"))(rustix::io::Errno::NOSPC)),
        _ => Ok(()),
    };
    let mut overlay = host.open().unwrap();
    overlay.commit_stepwise(&[], true, &mut fails).unwrap_err();
    let remark = overlay.remark().unwrap().to_owned();
    assert!(remark.contains("cannot be finished") && remark.contains("No space"), "{remark}");
    drop(overlay);
    host.open().unwrap().changes().unwrap();
    host.open().unwrap().discard(&[]).unwrap();
    assert!(host.open().is_none() && host.left().is_empty() && workshops(&host).is_empty());
}

#[test]
fn a_damaged_note_blocks_nothing() {
    if is_skipped("a_damaged_note") {
        return;
    }
    let host = host();
    host.guest(work);
    fs::write(host.open().unwrap().intent_path(), "{").unwrap();
    let overlay = host.open().unwrap();
    assert!(overlay.remark().is_some_and(|remark| remark.contains("cannot be finished")), "{:?}", overlay.remark());
    drop(overlay);
    assert!(host.open().unwrap().remark().is_none());
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(host.read("a"), "guest");
}

#[test]
fn a_stopped_commit_of_a_path_is_finished_with_another_and_the_same() {
    if is_skipped("a_stopped_commit_of_a_path") {
        return;
    }
    for named in ["a", "new"] {
        let host = host();
        host.guest(work);
        assert!(stopped(&host, &["a"], 1));
        host.open().unwrap().commit(&[named.into()], false).unwrap();
        assert_eq!((host.read("a"), host.path("new").exists()), ("guest".into(), named == "new"));
        assert_eq!(host.read("c"), "c");
        assert!(host.open().unwrap().remark().is_none());
    }
}

#[test]
fn what_a_stopped_discard_has_taken_away_is_deleted() {
    if is_skipped("what_a_stopped_discard_has_taken_away") {
        return;
    }
    let host = host();
    host.guest(work);
    host.open().unwrap().leave().unwrap();
    assert_eq!(host.left().len(), 1);
    assert!(host.open().is_none() && host.left().is_empty(), "{:?}", host.left());
}

#[test]
fn a_guest_cannot_take_the_name_of_unfinished_files() {
    if is_skipped("a_guest_cannot_take_the_name") {
        return;
    }
    let host = host();
    let name = format!(".transom-commit-{}", std::process::id());
    let seen = host.guest(|dir| {
        fs::create_dir(dir.join(&name)).unwrap();
        fs::write(dir.join(&name).join("kept"), "kept").unwrap();
        work(dir);
    });
    host.open().unwrap().commit(&[], false).unwrap();
    assert_eq!(host.listing(), seen);

    // What takes it between the note and the first step is neither used nor removed.
    host.guest(|dir| fs::write(dir.join("a"), "more").unwrap());
    let mut taken = None;
    let mut intrude = |step: &str, path: &Path| {
        if step == "make directory" {
            fs::create_dir(host.path(path.to_str().unwrap())).unwrap();
            fs::write(host.path(path.to_str().unwrap()).join("host"), "").unwrap();
            taken = Some(path.to_owned());
        }
        Ok(())
    };
    let error = host.open().unwrap().commit_stepwise(&[], false, &mut intrude).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert!(host.directory().join(taken.unwrap()).join("host").exists());
    assert_eq!(host.read("a"), "guest");
}
