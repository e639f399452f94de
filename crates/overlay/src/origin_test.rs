//! Overlays whose directory is gone or another, and the list of all.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    Error,
    overlay_test::filled,
    support::{Host, is_skipped},
};

/// Returns a host whose guest has made `new`, after which `file` was added and the directory renamed to `moved`.
fn moved() -> Host {
    let host = filled();
    host.guest(|dir| fs::write(dir.join("new"), "guest").unwrap());
    fs::rename(host.directory(), host.beside("moved")).unwrap();
    host
}

#[test]
fn another_directory_at_the_path_gets_nothing_without_force() {
    if is_skipped("another_directory_at_the_path") {
        return;
    }
    let host = moved();
    fs::create_dir(host.directory()).unwrap();
    let is_replaced = |error: &Error| matches!(error, Error::Replaced(directory) if *directory == host.directory());
    assert!(is_replaced(&host.try_for_run().unwrap_err()));
    let mut overlay = host.open().unwrap();
    assert!(overlay.is_replaced() && overlay.remark().unwrap().contains("not the directory"));
    assert!(is_replaced(&overlay.commit(&[], false).unwrap_err()));
    assert!(host.listing().len() == 1, "nothing was written");
    // What was forced is written, and the next overlay is of this directory.
    overlay.commit(&[PathBuf::from("new")], true).unwrap();
    assert_eq!(host.read("new"), "guest");
    overlay.discard(&[]).unwrap();
    drop(overlay);
    host.for_run();
}

#[test]
fn changes_in_a_directory_that_is_gone_are_refused_but_can_be_discarded() {
    if is_skipped("changes_in_a_directory_that_is_gone") {
        return;
    }
    let host = moved();
    assert!(host.try_for_run().is_err());
    let mut overlay = host.open().unwrap();
    assert!(matches!(overlay.changes(), Err(Error::Missing(_))));
    assert!(matches!(overlay.commit(&[], true), Err(Error::Missing(_))));
    // A part of them too.
    assert_eq!(overlay.discard(&[PathBuf::from("new")]).unwrap(), None);
    assert_eq!(overlay.discard(&[]).unwrap(), None);
    drop(overlay);
    assert_eq!(host.left(), [""; 0]);
    assert!(host.try_open().is_err(), "there is neither a directory nor an overlay");
}

#[test]
fn a_directory_that_was_moved_away_and_back_is_the_same() {
    if is_skipped("a_directory_that_was_moved") {
        return;
    }
    let host = moved();
    fs::rename(host.beside("moved"), host.directory()).unwrap();
    host.for_run();
    assert_eq!(host.open().unwrap().commit(&[], false).unwrap().sum.files, 1);
}

#[test]
fn all_overlays_are_listed_also_those_in_use() {
    if is_skipped("all_overlays_are_listed") {
        return;
    }
    let host = filled();
    host.visit_all(|directory, _| panic!("{directory:?} has no overlay yet"));
    host.guest(|dir| fs::write(dir.join("new"), "guest").unwrap());
    let mut visited = Vec::new();
    host.visit_all(|directory, overlay| {
        let overlay = overlay.unwrap();
        visited.push(directory.to_owned());
        assert!(overlay.changes().unwrap().iter().any(|change| change.path == Path::new("new")));
        assert!(!overlay.is_replaced());
        // It is locked as long as it is visited.
        host.visit_all(|_, again| assert!(matches!(again, Err(Error::InUse(_)))));
    });
    assert_eq!(visited, [host.directory()]);
    fs::write(host.beside(&format!("state/{}/origin", host.left()[0])), "damaged").unwrap();
    let mut count = 0;
    host.visit_all(|_, overlay| {
        assert!(matches!(overlay, Err(Error::Io { .. })));
        count += 1;
    });
    assert_eq!(count, 1);
}
