use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use super::*;
use crate::cases;
use crate::client::{Errno, OFlags};
use crate::report::Status;
use crate::runner::{self, Subject};
use crate::syscalls::Syscalls;

#[test]
fn the_cases_that_are_left_out_exist_and_are_few() {
    let all = cases::all().count();
    let (split, whole) = divide(cases::all());
    assert_eq!(split.len() + whole.len(), all);
    assert!(whole.len() * 4 < all, "{} of {all} are left out", whole.len());
    for entry in parse_allowed(known::SPLIT).unwrap() {
        let covers = |case: Definition| ["status", "atime-moves"].iter().any(|what| entry.covers(case.name, what));
        assert!(cases::all().any(covers), "{entry:?} is about no case");
    }
}

/// Two directories in place of two mounts show which of them each call goes to.
#[test]
fn one_client_acts_and_the_other_looks() {
    let [acting, looking] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::write(looking.path().join("there"), "looked at").unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            crate::syscalls::own_descriptors().unwrap();
            std::env::set_current_dir(acting.path()).unwrap();
            let beneath = format!("{}/", looking.path().display());
            let split = Split::new(&Syscalls, &Syscalls, beneath.as_bytes(), None);
            split.mkdir(b"made", 0o755).unwrap();
            split.symlink(b"x", b"link").unwrap();
            assert_eq!(split.stat(b"made", true).err(), Some(Errno::NOENT));
            assert_eq!(split.stat(b"there", true).unwrap().size, 9);
            assert_eq!(split.chmod(b"there", 0o600).err(), Some(Errno::NOENT));
            // Only one of them can open it: a stale name.
            assert_eq!(split.open(b"there", OFlags::RDONLY, 0).err(), Some(Errno::STALE));
            let file = split.open(b"new", OFlags::RDWR | OFlags::CREATE, 0o644).unwrap();
            split.write_at(file, b"acted", 0).unwrap();
            // There is no second file to look at, so one client has it.
            assert_eq!(split.read_at(file, &mut [0; 9], 0), Ok(5));
            split.close(file).unwrap();
        });
        thread.join().unwrap();
    });
    assert_eq!(fs::metadata(acting.path().join("new")).unwrap().size(), 5);
    assert_eq!(fs::read_dir(looking.path()).unwrap().count(), 1);
}

#[test]
fn what_is_never_seen_is_waited_for_and_then_told() {
    let [acting, looking] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let paths = [&acting, &looking].map(|dir| format!("{}/", dir.path().display()));
    fs::write(acting.path().join("new"), "").unwrap();
    let patience = Duration::from_millis(30);
    let begun = Instant::now();
    let split = Split::new(&Syscalls, &Syscalls, paths[1].as_bytes(), Some(patience));
    let path = format!("{}new", paths[0]);
    // The acting client's paths are from the current directory, which a test does not have to itself.
    let looking = || Syscalls.stat(&split.seen(b"new"), true);
    assert_eq!(split.settled(looking, || Syscalls.stat(path.as_bytes(), true), looks::same).err(), Some(Errno::NOENT));
    assert!(begun.elapsed() >= patience);
}

/// The list on one directory by two ways: whatever differs from the list itself is the division's fault.
#[test]
fn the_list_split_on_a_bare_directory_gives_what_the_list_gives() {
    let place = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
    let (cases, _) = divide(cases::all());
    let subjects: [Arc<dyn Subject>; 2] = [
        Arc::new(runner::Directory::new(place.path()).unwrap()),
        Arc::new(Mounts::new(place.path(), place.path(), true).unwrap()),
    ];
    let [whole, split] =
        subjects.map(|subject| runner::run(&subject, &cases, 2, Duration::from_secs(120), &mut |_| {}));
    let allowed = parse_allowed(known::SPLIT).unwrap();
    let unknown: Vec<_> = crate::compare::differences(&whole, &split, &allowed, false)
        .into_iter()
        .filter(|difference| difference.allowed.is_none())
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(split.iter().filter(|report| report.status == Status::Pass).count() > 100);
}
