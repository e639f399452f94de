//! Changes of real files, made by this process and by another one, seen through fanotify.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
};
use transom_watch::{Author, ChangeKind, Event, Object, ObjectHandle, Options, Watch, WatchError};

/// What is known about the test's directory: the names of the objects in it.
struct Names {
    root: ObjectHandle,
    names: HashMap<ObjectHandle, String>,
}

impl Names {
    /// Returns a change of the test's directory as text: what, under which name, by whom. Other changes of the file
    /// system are not described.
    fn describe(&mut self, event: Event<'_>) -> Option<String> {
        let Event::Change(change) = event else { return Some("overflow".into()) };
        let object = change.object.and_then(|object| match object {
            Object::Handle(handle) => Some(handle.to_owned()),
            Object::Held(_) => None,
        });
        let name = match change.place {
            Some(place) if place.parent == Object::Handle(self.root.as_ref()) => {
                String::from_utf8_lossy(place.name).into_owned()
            }
            Some(_) => return None,
            None if object.as_ref() == Some(&self.root) => ".".into(),
            None => self.names.get(object.as_ref()?)?.clone(),
        };
        self.names.insert(object?, name.clone());
        let what = match change.kind {
            ChangeKind::Renamed { to } => format!("renamed to {}", String::from_utf8_lossy(to.name)),
            kind => format!("{kind:?}").to_lowercase(),
        };
        let whose = match change.author {
            Author::Own => "own",
            Author::Other(_) => "other",
            Author::Unknown => "unknown",
        };
        let kind = if change.is_dir { "/" } else { "" };
        Some(format!("{name}{kind} {what}, {whose}"))
    }
}

/// Observes `dir`, or says why that is not possible here.
fn watch(dir: &Path) -> Option<(Watch, Names)> {
    let root = open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    match Watch::open(&root, Options::default()) {
        Ok(watch) => Some((watch, Names { root: ObjectHandle::of(&root).unwrap(), names: HashMap::new() })),
        Err(error @ (WatchError::Privilege(_) | WatchError::Kernel(_) | WatchError::FileSystem(_))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads until a change of `last` is there.
fn changes_until(watch: &mut Watch, names: &mut Names, last: &str) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen: Vec<String> = Vec::new();
    while !seen.iter().any(|change| change.starts_with(last)) {
        assert!(Instant::now() < until, "only {seen:?} in a minute");
        let mut fds = [PollFd::new(&*watch, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        while watch.read(|event| seen.extend(names.describe(event))).unwrap() {}
    }
    seen
}

#[test]
fn each_kind_of_change_by_another_process_is_reported_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some((mut watch, mut names)) = watch(dir.path()) else { return };
    let script = "echo a >x; chmod 600 x; mv x y; ln y z; rm y; mkdir d; chmod 700 d; rmdir d; chmod 750 .; rm z";
    assert!(Command::new("sh").args(["-c", script]).current_dir(dir.path()).status().unwrap().success());

    let seen = changes_until(&mut watch, &mut names, "z deleted");

    let expected = [
        "x created, other",
        "x modified, other",
        "x closedwritten, other",
        "x attributes, other",
        "x renamed to y, other",
        "z created, other",
        "y deleted, other",
        "d/ created, other",
        "d/ attributes, other",
        "d/ deleted, other",
        "./ attributes, other",
        "z deleted, other",
    ];
    let mut rest = seen.iter();
    for change in expected {
        assert!(rest.any(|seen| seen == change), "{change} is missing or out of order in {seen:#?}");
    }
}

#[test]
fn our_own_changes_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let Some((mut watch, mut names)) = watch(dir.path()) else { return };
    fs::write(dir.path().join("ours"), "").unwrap();
    assert!(Command::new("touch").arg(dir.path().join("theirs")).status().unwrap().success());
    fs::remove_file(dir.path().join("ours")).unwrap();

    let seen = changes_until(&mut watch, &mut names, "ours deleted");

    assert!(
        seen.iter().filter(|change| change.starts_with("ours")).all(|change| change.ends_with(", own")),
        "{seen:?}"
    );
    assert!(seen.contains(&"theirs created, other".into()), "{seen:?}");
}
