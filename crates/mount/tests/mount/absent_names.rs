//! Names that the kernel has cached as absent.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::ErrorKind,
    path::Path,
    time::{Duration, Instant},
};

use transom_mount::{Mount, Options};
use transom_user::share::Share;

use crate::{common, needs_mounts, own_changes::served, unmount};

fn mount(host: &Path, at: &Path, args: &[&str]) -> Mount {
    let mut program = common::transomd();
    program.args = args.iter().map(OsString::from).collect();
    Mount::start(Share::builder().shared_dir(host).daemon(program), at, Options::default()).unwrap()
}

#[test]
fn an_absent_name_is_looked_up_once_until_it_is_created_or_the_time_is_over() {
    needs_mounts!();
    let (host, at, sockets) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let metrics = sockets.path().join("metrics");
    let argument = format!("--metrics-socket={}", metrics.display());
    let mut mounted = mount(host.path(), at.path(), &[&argument, "--cache=always", "--negative-timeout=86400"]);
    let path = |name: &str| at.path().join(name);
    let is_absent = |name: &str| fs::metadata(path(name)).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let lookups = || served(&metrics, &["lookup"]);

    // 1. One request for any number of looks; the kernel may forget some if it needs the memory.
    for name in ["one", "two", "sub/three", "four", "five", "six", "seven"] {
        assert!(is_absent(name));
    }
    let before = lookups();
    for name in ["one", "two", "sub/three"] {
        assert!((0..100).all(|_| is_absent(name)));
        assert_eq!(File::open(path(name)).unwrap_err().kind(), ErrorKind::NotFound);
    }
    let more = lookups() - before;
    assert!(more < 30, "{more} requests for 303 looks");

    // 2. What this mount creates, it sees, in each way that a name comes into being.
    fs::write(path("one"), "1").unwrap();
    assert_eq!(fs::read(path("one")).unwrap(), b"1");
    fs::create_dir(path("two")).unwrap();
    assert!(path("two").is_dir());
    fs::rename(path("one"), path("sub/three")).unwrap();
    assert_eq!(fs::read(path("sub/three")).unwrap(), b"1");
    assert!(is_absent("one"));
    fs::hard_link(path("sub/three"), path("four")).unwrap();
    assert_eq!(fs::read(path("four")).unwrap(), b"1");
    std::os::unix::fs::symlink("four", path("five")).unwrap();
    assert_eq!(fs::read(path("five")).unwrap(), b"1");

    // 3. What somebody else creates is there for O_EXCL, and for O_TRUNC, whose size is the new one.
    fs::write(host.path().join("seven"), "host's").unwrap();
    assert_eq!(File::create(path("seven")).unwrap().metadata().unwrap().len(), 0);
    assert_eq!(fs::metadata(path("seven")).unwrap().len(), 0);
    fs::write(host.path().join("six"), "host's").unwrap();
    let error = File::options().write(true).create_new(true).open(path("six")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(host.path().join("six")).unwrap(), b"host's");
    assert_eq!(fs::read(path("six")).unwrap(), b"host's");
    unmount(&mut mounted);

    // 4. The time is over at some point. That it has begun shows in one of some attempts, on the busiest machine.
    let mut mounted = mount(host.path(), at.path(), &["--negative-timeout=1"]);
    let stays_absent = |name: &String| {
        assert!(is_absent(name));
        fs::write(host.path().join(name), "").unwrap();
        is_absent(name)
    };
    assert!((0..100).map(|index| format!("late-{index}")).any(|name| stays_absent(&name)));
    assert!(is_absent("late"));
    fs::write(host.path().join("late"), "").unwrap();
    let begun = Instant::now();
    while is_absent("late") {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays absent");
        std::thread::yield_now();
    }
    unmount(&mut mounted);
}

#[test]
fn without_a_timeout_a_new_name_is_seen_at_once() {
    needs_mounts!();
    for cache in ["--cache=auto", "--cache=always", "--cache=metadata"] {
        let (host, at) = (common::tree(), tempfile::tempdir().unwrap());
        let mut mounted = mount(host.path(), at.path(), &[cache]);
        assert!(!fs::exists(at.path().join("new")).unwrap());
        fs::write(host.path().join("new"), "").unwrap();
        assert!(fs::exists(at.path().join("new")).unwrap(), "{cache}");
        unmount(&mut mounted);
    }
}
