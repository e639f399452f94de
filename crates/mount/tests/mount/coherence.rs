//! Mounts of one coherence group: each sees what the others change, though it caches everything for long.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use transom_mount::{Mount, MountError, Options};
use transom_user::share::{Builder, Share};

use crate::{common, needs_mounts, passthrough::Mapped, unmount};

/// The bound of each wait. What is waited for takes hundredths of a second; without notifications, a name would stay
/// valid for 30 s, and data for a day.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);

/// Two mounts of one directory, with a daemon each.
struct Pair {
    host: TempDir,
    mounts: [(Mount, TempDir); 2],
    _group: TempDir,
}

/// Returns a share of `host` by a daemon of the group in `group`. The daemon lets attributes and data be cached for a
/// day, so that no time-out helps.
fn share(host: &Path, group: &Path, options: &Options) -> Builder {
    member(host, group, &options.daemon_args())
}

/// Returns a share of `host` by a daemon of the group in `group` with these arguments.
pub(crate) fn member(host: &Path, group: &Path, args: &[OsString]) -> Builder {
    let mut program = common::transomd();
    program.args = vec!["--coherence-group".into(), group.join("group").into()];
    program.args.extend_from_slice(args);
    Share::builder().shared_dir(host).daemon(program)
}

pub(crate) fn coherent() -> Options {
    Options { coherent: true, threads: 2, ..Options::default() }
}

impl Pair {
    fn start() -> Self {
        let (host, group) = (common::tree(), tempfile::tempdir().unwrap());
        let mounts = [(); 2].map(|()| {
            let at = tempfile::tempdir().unwrap();
            (Mount::start(share(host.path(), group.path(), &coherent()), at.path(), coherent()).unwrap(), at)
        });
        Self { host, mounts, _group: group }
    }

    fn path(&self, mount: usize, name: &str) -> PathBuf {
        self.mounts[mount].1.path().join(name)
    }

    fn end(mut self) {
        self.mounts.iter_mut().for_each(|(mount, _)| unmount(mount));
    }
}

/// Waits until `is_so`.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WITHIN, "after {WITHIN:?} not yet: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_one_mount_changes_the_other_sees_in_an_open_file() {
    needs_mounts!();
    let pair = Pair::start();
    let path = pair.path(0, "hello");
    // An open file needs no name, which a time-out would refresh.
    let (reader, writer) =
        (File::open(&path).unwrap(), File::options().write(true).open(pair.path(1, "hello")).unwrap());
    let read = || {
        let mut bytes = vec![0; 64];
        let len = reader.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(len);
        bytes
    };
    assert_eq!(read(), b"hello, world\n");
    for round in 0..5 {
        // 1. Data of the same length, so that no attribute but the times tells.
        let line = format!("hello, {round:05}\n");
        writer.write_all_at(line.as_bytes(), 0).unwrap();
        eventually("the data are new", || read() == line.as_bytes());
        // 2. Attributes.
        let mode = 0o600 + round;
        fs::set_permissions(pair.path(1, "hello"), fs::Permissions::from_mode(mode)).unwrap();
        eventually("the mode is new", || reader.metadata().unwrap().mode() & 0o777 == mode);
    }
    // 3. A longer and a shorter file.
    for len in [9000, 3] {
        writer.set_len(len).unwrap();
        eventually("the length is new", || reader.metadata().unwrap().len() == len);
    }
    eventually("the data end where the file ends", || read() == b"hel");
    drop((reader, writer));
    pair.end();
}

#[test]
fn what_one_mount_writes_the_other_sees_in_its_mapping() {
    needs_mounts!();
    const LEN: usize = 3 * 4096;
    let pair = Pair::start();
    fs::write(pair.host.path().join("mapped"), vec![b'a'; LEN]).unwrap();
    let reader = File::options().read(true).write(true).open(pair.path(0, "mapped")).unwrap();
    let writer = File::options().write(true).open(pair.path(1, "mapped")).unwrap();
    let mapped = Mapped::new(&reader, LEN);
    // All pages are cached, and those of the mapping are in its page table.
    assert!(mapped.load(0, LEN) == vec![b'a'; LEN]);
    for (round, byte) in (b'b'..b'g').enumerate() {
        let at = (round * 4096) % LEN + 7;
        writer.write_all_at(&[byte; 16], at as u64).unwrap();
        eventually("the mapping has the new bytes", || mapped.load(at, 16) == [byte; 16]);
    }
    drop((mapped, reader, writer));
    pair.end();
}

#[test]
fn names_and_directories_follow() {
    needs_mounts!();
    let pair = Pair::start();
    let names = |mount: usize| {
        let mut names: Vec<_> =
            fs::read_dir(pair.path(mount, "")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!((names(0), names(1)), (names(1), names(0)));
    let links = || fs::metadata(pair.path(0, "")).unwrap().nlink();
    let before = links();
    fs::create_dir(pair.path(1, "new")).unwrap();
    eventually("the directory has one more link", || links() == before + 1);
    eventually("the directory lists the new name", || names(0) == names(1));
    fs::rename(pair.path(1, "hello"), pair.path(1, "new/name")).unwrap();
    eventually("the old name is gone", || !fs::exists(pair.path(0, "hello")).unwrap());
    eventually("the new name is there", || fs::exists(pair.path(0, "new/name")).unwrap());
    eventually("the directory lists what is left", || names(0) == names(1));
    pair.end();
}

#[test]
fn names_that_are_cached_follow_each_kind_of_change() {
    needs_mounts!();
    let pair = Pair::start();
    let there = |name: &str| fs::exists(pair.path(0, name)).unwrap();
    let ino = |name: &str| fs::metadata(pair.path(0, name)).map(|meta| meta.ino()).ok();
    let at = |name: &str| pair.path(1, name);
    fs::create_dir_all(pair.host.path().join("dir/sub")).unwrap();
    for round in 0..3 {
        // Each name is looked up before it is changed, so that the kernel has cached that it is there or absent.
        assert!(!there("dir/a"));
        fs::write(at("dir/a"), "a").unwrap();
        eventually("an absent name appears", || there("dir/a"));
        let first = ino("dir/a");
        fs::write(at("dir/b"), "b").unwrap();
        eventually("another appears", || there("dir/b"));
        let second = ino("dir/b");
        // A name that leads to another file.
        fs::rename(at("dir/b"), at("dir/a")).unwrap();
        eventually("a name leads to another file", || ino("dir/a") == second && second != first);
        eventually("the old name is gone", || !there("dir/b"));
        // What this mount has renamed itself is cached under its new name.
        fs::rename(pair.path(0, "dir/a"), pair.path(0, "dir/sub/c")).unwrap();
        assert!(there("dir/sub/c"));
        fs::remove_file(at("dir/sub/c")).unwrap();
        eventually("a name that this mount has made by a rename is gone", || !there("dir/sub/c"));
        fs::write(pair.path(0, "dir/sub/d"), "d").unwrap();
        fs::hard_link(pair.path(0, "dir/sub/d"), pair.path(0, "dir/sub/e")).unwrap();
        std::os::unix::fs::symlink("d", pair.path(0, "dir/sub/f")).unwrap();
        // A listing caches all names.
        assert_eq!(fs::read_dir(pair.path(0, "dir/sub")).unwrap().count(), 3);
        ["d", "e", "f"].iter().for_each(|name| fs::remove_file(at(&format!("dir/sub/{name}"))).unwrap());
        for name in ["d", "e", "f"] {
            eventually("what a listing has named is gone", || {
                fs::symlink_metadata(pair.path(0, &format!("dir/sub/{name}"))).is_err()
            });
        }
        // A directory that moves takes what is in it along.
        let moved = format!("moved{round}");
        fs::write(at("dir/sub/g"), "g").unwrap();
        eventually("a name below appears", || there("dir/sub/g"));
        fs::rename(at("dir"), at(&moved)).unwrap();
        eventually("the directory has moved", || !there("dir/sub/g") && there(&format!("{moved}/sub/g")));
        fs::remove_file(at(&format!("{moved}/sub/g"))).unwrap();
        eventually("and what was in it is gone", || !there(&format!("{moved}/sub/g")));
        fs::rename(at(&moved), at("dir")).unwrap();
        eventually("the directory is back", || there("dir/sub"));
    }
    pair.end();
}

/// Without that file, names would expire after a second instead of following.
#[test]
fn a_coherent_mount_can_abort_its_connection_whether_fusectl_is_mounted_or_not() {
    needs_mounts!();
    let pair = Pair::start();
    for (_, at) in &pair.mounts {
        let minor = rustix::fs::minor(fs::metadata(at.path()).unwrap().dev());
        let name = format!("/{minor}/abort");
        let is_it = |link: PathBuf| link.to_str().is_some_and(|link| link.ends_with(&name));
        let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        assert_eq!(links.filter(|link| is_it(link.clone())).count(), 1, "{name}");
    }
    pair.end();
}

/// Prints how long after a change by one mount the other sees it. Run it by name, on a quiet machine.
#[test]
#[ignore = "measures"]
fn delay_of_names() {
    needs_mounts!();
    const CHANGES: usize = 2000;
    let pair = Pair::start();
    let mut delays = Vec::with_capacity(CHANGES);
    let mut seen_within = |change: &dyn Fn(), is_seen: &dyn Fn() -> bool| {
        // So that there is something to expire.
        assert!(!is_seen());
        change();
        let begun = Instant::now();
        eventually("a change is seen", is_seen);
        delays.push(begun.elapsed());
    };
    let (here, there) = (pair.path(0, "name"), pair.path(1, "name"));
    for _ in 0..CHANGES / 2 {
        seen_within(&|| fs::write(&there, "").unwrap(), &|| fs::exists(&here).unwrap());
        seen_within(&|| fs::remove_file(&there).unwrap(), &|| !fs::exists(&here).unwrap());
    }
    delays.sort_unstable();
    println!(
        "{} changes: p50 {:.1?}, p99 {:.1?}, longest {:.1?}",
        delays.len(),
        delays[delays.len() / 2],
        delays[delays.len() * 99 / 100],
        delays[delays.len() - 1]
    );
    pair.end();
}

#[test]
fn a_mount_that_is_to_be_coherent_and_cannot_is_refused_with_the_reason() {
    needs_mounts!();
    let (host, group, at) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |options: Options, builder: Builder| Mount::start(builder, at.path(), options).err().unwrap();
    let reconnect = Options { reconnect: Some(Duration::from_secs(5)), ..coherent() };
    let refused = start(reconnect.clone(), share(host.path(), group.path(), &reconnect));
    assert!(matches!(refused, MountError::CoherentWithReconnect), "{refused}");
    let passthrough = Options { passthrough: true, ..coherent() };
    let refused = start(passthrough.clone(), share(host.path(), group.path(), &passthrough));
    assert!(matches!(refused, MountError::CoherentWithPassthrough), "{refused}");
    // No group, no table.
    let refused = start(coherent(), Share::builder().shared_dir(host.path()).daemon(common::transomd()));
    assert!(matches!(refused, MountError::NoVersionTable), "{refused}");
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0, "nothing stays mounted");
}

/// The mounts of the group follow the host, if a daemon may observe it.
#[test]
fn what_the_host_changes_a_mount_sees_too() {
    needs_mounts!();
    let (host, group, at) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut args = coherent().daemon_args();
    args.push("--host-changes=mandatory".into());
    let mut mount = match Mount::start(member(host.path(), group.path(), &args), at.path(), coherent()) {
        Ok(mount) => mount,
        Err(error) if format!("{error:?}").contains("--host-changes mandatory") => {
            return println!("SKIPPED: changes on the host cannot be observed: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let (ours, theirs) = (|name: &str| at.path().join(name), |name: &str| host.path().join(name));
    let file = File::open(ours("hello")).unwrap();
    let read = || {
        let mut bytes = [0; 64];
        let len = file.read_at(&mut bytes, 0).unwrap();
        bytes[..len].to_vec()
    };
    assert_eq!(read(), b"hello, world\n");
    assert!(!ours("new").exists());
    // 1. Data of the same length, and attributes.
    File::options().write(true).open(theirs("hello")).unwrap().write_all_at(b"HELLO", 0).unwrap();
    eventually("the data are new", || read() == b"HELLO, world\n");
    fs::set_permissions(theirs("hello"), fs::Permissions::from_mode(0o604)).unwrap();
    eventually("the mode is new", || file.metadata().unwrap().mode() & 0o777 == 0o604);
    // 2. Names.
    fs::rename(theirs("hello"), theirs("sub/moved")).unwrap();
    eventually("the old name is gone", || !ours("hello").exists());
    eventually("the new name is there", || ours("sub/moved").exists());
    fs::write(theirs("new"), "x").unwrap();
    eventually("the absent name is there", || ours("new").exists());
    fs::remove_file(theirs("new")).unwrap();
    eventually("the removed name is gone", || !ours("new").exists());
    drop(file);
    unmount(&mut mount);
}
