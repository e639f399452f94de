//! Changes of real files, made by this process and by another one, seen through fanotify.
//!
//! What other processes do to the file system meanwhile may fill the kernel's queue. A test then starts again.

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
use transom_watch::{Author, ChangeKind, Event, Object, ObjectHandle, Options, Strength, Tree, Watch, WatchError};

/// How lost changes are described.
const OVERFLOW: &str = "overflow";

/// What is known about the test's directory: the names of the objects in it.
struct Names {
    root: ObjectHandle,
    names: HashMap<ObjectHandle, String>,
}

impl Names {
    /// Returns a change of the test's directory as text: what, under which name, by whom. Other changes of the file
    /// system are not described.
    fn describe(&mut self, event: Event<'_>) -> Option<String> {
        let Event::Change(change) = event else { return Some(OVERFLOW.into()) };
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
    match Watch::open(&root, &Options { weakest: Strength::FileSystem, ..Options::default() }) {
        Ok(watch) => Some((watch, Names { root: ObjectHandle::of(&root).unwrap(), names: HashMap::new() })),
        Err(error @ (WatchError::Privilege(_) | WatchError::Kernel(_) | WatchError::FileSystem(_))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The kernel's queue was full.
#[derive(Debug)]
struct Overflowed;

/// Runs `test` until the kernel's queue has room for it.
fn with_room(test: impl Fn() -> Result<(), Overflowed>) {
    if !(0..20).any(|_| test().is_ok()) {
        println!("SKIPPED: too much happens on this file system");
    }
}

/// Reads until a change of `last` is there.
fn changes_until(watch: &mut Watch, names: &mut Names, last: &str) -> Result<Vec<String>, Overflowed> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen: Vec<String> = Vec::new();
    while !seen.iter().any(|change| change.starts_with(last)) {
        assert!(Instant::now() < until, "only {seen:?} in a minute");
        let mut fds = [PollFd::new(&*watch, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        while watch.read(|event| seen.extend(names.describe(event))).unwrap() {}
        if last != OVERFLOW && seen.iter().any(|change| change == OVERFLOW) {
            return Err(Overflowed);
        }
    }
    Ok(seen)
}

#[test]
fn each_kind_of_change_by_another_process_is_reported_in_order() {
    with_room(each_kind_of_change);
}

fn each_kind_of_change() -> Result<(), Overflowed> {
    let dir = tempfile::tempdir().unwrap();
    let Some((mut watch, mut names)) = watch(dir.path()) else { return Ok(()) };
    let script = "echo a >x; chmod 600 x; mv x y; ln y z; rm y; mkdir d; chmod 700 d; rmdir d; chmod 750 .; rm z";
    assert!(Command::new("sh").args(["-c", script]).current_dir(dir.path()).status().unwrap().success());

    let seen = changes_until(&mut watch, &mut names, "z deleted")?;

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
    Ok(())
}

#[test]
fn our_own_changes_are_told_apart() {
    with_room(changes_of_two_processes);
}

fn changes_of_two_processes() -> Result<(), Overflowed> {
    let dir = tempfile::tempdir().unwrap();
    let Some((mut watch, mut names)) = watch(dir.path()) else { return Ok(()) };
    fs::write(dir.path().join("ours"), "").unwrap();
    assert!(Command::new("touch").arg(dir.path().join("theirs")).status().unwrap().success());
    fs::remove_file(dir.path().join("ours")).unwrap();

    let seen = changes_until(&mut watch, &mut names, "ours deleted")?;

    assert!(
        seen.iter().filter(|change| change.starts_with("ours")).all(|change| change.ends_with(", own")),
        "{seen:?}"
    );
    assert!(seen.contains(&"theirs created, other".into()), "{seen:?}");
    Ok(())
}

/// Runs `script` in `dir`, then creates `in/tree-end`. Returns what is seen of that in the tree `dir/in`.
fn seen_in(tree: &mut Tree, watch: &mut Watch, dir: &Path, script: &str) -> Result<Vec<String>, Overflowed> {
    let script = format!("{script}; touch in/tree-end; rm in/tree-end");
    assert!(Command::new("sh").args(["-c", &script]).current_dir(dir).status().unwrap().success());
    let until = Instant::now() + Duration::from_secs(60);
    let (mut seen, mut is_overflow): (Vec<String>, bool) = Default::default();
    while !seen.iter().any(|change| change == "tree-end deleted") {
        assert!(Instant::now() < until, "only {seen:?} in a minute");
        let mut fds = [PollFd::new(&*watch, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        let each = |event: Event<'_>| {
            let Event::Change(change) = event else { return is_overflow = true };
            let Some(change) = tree.narrow(&change) else { return };
            let Some(place) = change.place else { return };
            let name = String::from_utf8_lossy(place.name).into_owned();
            let kind = if change.is_dir { "/" } else { "" };
            seen.push(format!("{name}{kind} {:?}", change.kind).to_lowercase());
        };
        watch.read(each).unwrap();
        if is_overflow {
            return Err(Overflowed);
        }
    }
    // Changes of other tests in directories that are gone have no place, and therefore are seen here.
    seen.retain(|change| change.starts_with("tree-") && !change.starts_with("tree-end"));
    seen.retain(|change| !change.ends_with("closedwritten") && !change.ends_with("attributes"));
    Ok(seen)
}

#[test]
fn a_tree_keeps_what_is_below_its_root() {
    with_room(moves_across_a_border);
}

fn moves_across_a_border() -> Result<(), Overflowed> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("in/deep/er")).unwrap();
    fs::create_dir_all(dir.path().join("tree-out")).unwrap();
    let Some((mut watch, _)) = watch(dir.path()) else { return Ok(()) };
    let mut tree = Tree::new(fs::File::open(dir.path().join("in")).unwrap()).unwrap();
    let mut seen = |script| seen_in(&mut tree, &mut watch, dir.path(), script);

    assert_eq!(seen("touch in/tree-a in/deep/er/tree-b tree-out/tree-no")?, ["tree-a created", "tree-b created"]);
    assert_eq!(seen("mv in/deep/er/tree-b tree-out/tree-c")?, ["tree-b movedout"]);
    assert_eq!(seen("mv tree-out/tree-c in/deep/tree-d")?, ["tree-d movedin"]);
    assert_eq!(seen("mv tree-out in/tree-in; touch in/tree-in/tree-e")?, ["tree-in/ movedin", "tree-e created"]);
    assert_eq!(seen("mv in/tree-in tree-out; touch tree-out/tree-no2")?, ["tree-in/ movedout"]);
    Ok(())
}

#[test]
fn changes_that_find_no_room_are_reported_as_lost() {
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap_or_default();
    let Ok(limit) = limit.trim().parse::<usize>() else { return println!("SKIPPED: no fanotify here") };
    if limit > 50_000 {
        return println!("SKIPPED: the queue has room for {limit} changes");
    }
    // Another file system than that of other tests, whose queues would overflow too.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let Some((mut watch, mut names)) = watch(dir.path()) else { return };
    for number in 0..=limit {
        fs::write(dir.path().join(number.to_string()), "").unwrap();
    }

    let seen = changes_until(&mut watch, &mut names, OVERFLOW).unwrap();

    assert!(seen.contains(&"0 created, own".into()), "changes before the overflow are still reported");
    fs::write(dir.path().join("after"), "").unwrap();
    changes_until(&mut watch, &mut names, "after created").unwrap();
}
