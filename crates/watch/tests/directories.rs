//! Changes in single directories, seen through fanotify without privileges.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::Errno,
};
use transom_watch::{Author, Event, Object, ObjectHandle, Strength, Watch};

/// Reads until a change of `last`. Returns `NAME KIND, AUTHOR` for each change of a name in `parent`.
fn changes_until(watch: &mut Watch, parent: &ObjectHandle, last: &str) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen: Vec<String> = Vec::new();
    while !seen.iter().any(|change| change.starts_with(last)) {
        assert!(Instant::now() < until, "only {seen:?} in a minute");
        poll(&mut [PollFd::new(&*watch, PollFlags::IN)], Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        let each = |event: Event<'_>| {
            let Event::Change(change) = event else { panic!("changes were lost") };
            let Some(place) = change.place.filter(|place| place.parent == Object::Handle(parent.as_ref())) else {
                return;
            };
            let whose = if change.author == Author::Own { "own" } else { "other" };
            let kind = format!("{:?}", change.kind).to_lowercase();
            let kind = kind.split(' ').next().unwrap_or_default();
            seen.push(format!("{} {kind}, {whose}", String::from_utf8_lossy(place.name)));
        };
        watch.read(each).unwrap();
    }
    seen
}

/// Runs a script by another process.
fn sh(dir: &Path, script: &str) {
    assert!(Command::new("sh").args(["-c", script]).current_dir(dir).status().unwrap().success(), "{script}");
}

#[test]
fn changes_in_an_observed_directory_have_names_and_authors() {
    let dir = tempfile::tempdir().unwrap();
    let path_fd = |name: &str| open(dir.path().join(name), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for name in ["seen", "unseen"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let mut watch = match Watch::open_directories(path_fd(".")) {
        Ok(watch) => watch,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    assert_eq!(watch.strength(), Strength::Directories);
    let directories = watch.directories().unwrap();
    let seen = ObjectHandle::of(path_fd("seen")).unwrap();
    sh(dir.path(), "echo before >seen/early");
    directories.observe(path_fd("seen")).unwrap();
    // Once more changes nothing.
    directories.observe(path_fd("seen")).unwrap();

    sh(dir.path(), "echo a >seen/a; chmod 600 seen/a; mv seen/a seen/b; echo x >unseen/x; rm seen/b; touch seen/end1");
    let changes = changes_until(&mut watch, &seen, "end1 created");
    let expected = [
        "a created, other",
        "a modified, other",
        "a closedwritten, other",
        "a attributes, other",
        "a renamed, other",
        "b deleted, other",
        "end1 created, other",
    ];
    let mut rest = changes.iter();
    for change in expected {
        assert!(rest.any(|seen| seen == change), "{change} is missing or out of order in {changes:?}");
    }

    sh(dir.path(), "mv seen/early unseen/early; mv unseen/x seen/x");
    fs::write(dir.path().join("seen/own"), "").unwrap();
    fs::rename(dir.path().join("seen/own"), dir.path().join("unseen/own")).unwrap();
    sh(dir.path(), "touch seen/end2");
    let changes: BTreeSet<String> = changes_until(&mut watch, &seen, "end2 created").into_iter().collect();
    for change in ["early movedout, other", "x movedin, other", "own created, own", "own movedout, own"] {
        assert!(changes.contains(change), "{change} is missing in {changes:?}");
    }

    directories.ignore(path_fd("seen")).unwrap();
    assert_eq!(directories.ignore(path_fd("seen")), Err(Errno::NOENT));
    directories.observe(path_fd("unseen")).unwrap();
    sh(dir.path(), "touch seen/ignored unseen/end3");
    let unseen = ObjectHandle::of(path_fd("unseen")).unwrap();
    changes_until(&mut watch, &unseen, "end3 created");
}
