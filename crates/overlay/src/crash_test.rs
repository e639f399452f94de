//! A commit that is stopped before any of its steps is finished by the next command, and nothing is lost.

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
        // Before the intent is written, nothing has happened.
        if at == 0 {
            host.open().unwrap().commit(&[], false).unwrap();
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
    let overlay = host.open().unwrap();
    assert!(overlay.remark().is_some_and(|remark| remark.contains("cannot be finished")), "{:?}", overlay.remark());
    drop(overlay);
    assert_eq!(host.read("a"), "host");
    assert!(matches!(host.open().unwrap().commit(&[], false), Err(Error::Conflicts(_))));
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
