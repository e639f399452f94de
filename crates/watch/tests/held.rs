//! Changes in directories that are held, by this process and by another one, seen through inotify.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transom_watch::{
    Announcement, Author, Change, ChangeKind, ChangeOutcome, Event, Object, Options, Strength, Watch, WatchError,
};

const DIR: u64 = 7;
const OTHER_DIR: u64 = 8;

/// A change as text: what, under which name, by whom.
fn describe(change: Change<'_>) -> String {
    let name = |place: transom_watch::EntryName<'_>| {
        let Object::Held(id) = place.parent else { panic!("{place:?} has a handle") };
        format!("{id}/{}", String::from_utf8_lossy(place.name))
    };
    let what = match change.kind {
        ChangeKind::Renamed { to } => format!("renamed to {}", name(to)),
        kind => format!("{kind:?}").to_lowercase(),
    };
    let whose = match change.author {
        Author::Own => "own",
        Author::Other(None) => "other",
        Author::Other(Some(_)) => "a pid",
        Author::Unknown => "unknown",
    };
    let kind = if change.is_dir { "/" } else { "" };
    format!("{}{kind} {what}, {whose}", change.place.map_or("itself".into(), name))
}

/// Reads until there is a change that begins with `last`.
fn changes_until(watch: &mut Watch, last: &str) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen: Vec<String> = Vec::new();
    while !seen.iter().any(|change| change.starts_with(last)) {
        assert!(Instant::now() < until, "only {seen:?} in a minute");
        let mut fds = [PollFd::new(&*watch, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        let each = |event: Event<'_>| match event {
            Event::Change(change) => seen.push(describe(change)),
            Event::Overflow => seen.push("overflow".into()),
        };
        watch.read(each).unwrap();
    }
    seen
}

#[test]
fn changes_in_held_directories_are_reported_and_in_no_others() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut watch = Watch::open_held(&Options::default()).unwrap();
    watch.hold(DIR, dir.path()).unwrap();
    watch.hold(OTHER_DIR, other.path()).unwrap();
    let script = format!(
        "echo a >x; chmod 600 x; mv x y; mv y {0}/z; mkdir d; echo a >d/unseen; mv d/unseen in; rm in; \
         chmod 750 .; mv {0}/z d/z; touch end",
        other.path().display()
    );
    assert!(Command::new("sh").args(["-c", &script]).current_dir(dir.path()).status().unwrap().success());

    let seen = changes_until(&mut watch, "7/end created");

    let expected = [
        "7/x created, other",
        "7/x modified, other",
        "7/x closedwritten, other",
        "7/x attributes, other",
        "7/x renamed to 7/y, other",
        "7/y renamed to 8/z, other",
        "7/d/ created, other",
        "7/in movedin, other",
        "7/in deleted, other",
        "itself/ attributes, other",
        "8/z movedout, other",
        "7/end created, other",
    ];
    let mut rest = seen.iter();
    for change in expected {
        assert!(rest.any(|seen| seen == change), "{change} is missing or out of order in {seen:#?}");
    }
    assert!(!seen.iter().any(|change| change.contains("unseen")), "{seen:#?}");
}

#[test]
fn announced_changes_are_our_own_and_those_of_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = Watch::open_held(&Options::default()).unwrap();
    watch.hold(DIR, dir.path()).unwrap();
    let journal = watch.journal().unwrap();

    let announced = journal.announce(Announcement::Appears(DIR, b"ours"));
    fs::create_dir(dir.path().join("ours")).unwrap();
    announced.end(ChangeOutcome::Done);
    assert!(Command::new("mkdir").arg(dir.path().join("theirs")).status().unwrap().success());
    assert_eq!(changes_until(&mut watch, "7/theirs"), ["7/ours/ created, own", "7/theirs/ created, other"]);

    let announced = journal.announce(Announcement::Disappears(DIR, b"ours"));
    fs::remove_dir(dir.path().join("ours")).unwrap();
    assert_eq!(
        changes_until(&mut watch, "7/ours"),
        ["7/ours/ deleted, unknown"],
        "the call is not known to be ours yet"
    );
    announced.end(ChangeOutcome::Done);
}

#[test]
fn a_released_directory_and_one_that_is_gone_make_room_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["a", "b", "c", "d"] {
        fs::create_dir(path(name)).unwrap();
    }
    let mut watch = Watch::open_held(&Options { watches_max: 2, ..Options::default() }).unwrap();
    watch.hold(1, path("a")).unwrap();
    watch.hold(2, path("b")).unwrap();
    watch.release(1);
    watch.hold(3, path("c")).unwrap();
    assert_eq!(watch.strength(), Strength::Held);
    fs::remove_dir(path("b")).unwrap();
    while watch.read(|_| {}).unwrap() {}
    watch.hold(4, path("d")).unwrap();
    assert_eq!(watch.strength(), Strength::Held);

    assert!(matches!(watch.hold(1, path("a")), Err(WatchError::Watches(2, _))));
    assert_eq!(watch.strength(), Strength::SomeHeld);
    assert_eq!(watch.hold(1, path("a")), Ok(()), "the warning is given once");
    fs::write(path("c").join("x"), "").unwrap();
    assert!(!changes_until(&mut watch, "3/x created").is_empty());
}
