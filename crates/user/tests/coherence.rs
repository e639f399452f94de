//! Two guests of one directory, each with a real daemon of its own in one coherence group. Each looks at the version
//! table that its daemon has had mapped; the host's own view is the oracle for inode numbers.

mod common;

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{transomd, tree};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use transom_user::{
    daemon::Program,
    guest::{
        cache::CacheOptions,
        dax::{Dax, DaxOptions},
        fs::{Fs, OpenOptions},
        session::SessionConfig,
    },
    platform::Process,
    share::Share,
};

/// A private directory for a group.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    place
}

fn member(place: &Path, more: &[&str]) -> Program {
    let mut program = transomd();
    program.args = vec!["--coherence-group".into(), place.into(), "--front-end=alioth".into()];
    program.args.extend(more.iter().map(Into::into));
    program
}

fn connect(share: &Path, program: Program) -> Share {
    Share::builder().shared_dir(share).daemon(program).connect().unwrap()
}

fn mount(share: &Share) -> Fs<Process> {
    Fs::mount(share.session(SessionConfig::default()).unwrap(), CacheOptions::default())
}

fn ino(share: &TempDir, path: &str) -> u64 {
    share.path().join(path).symlink_metadata().unwrap().ino()
}

#[test]
fn what_one_guest_changes_is_invalid_for_another_once_the_change_is_complete() {
    let (share, place) = (tree(), place());
    fs::create_dir(share.path().join("quiet")).unwrap();
    let [one, two] = [(); 2].map(|()| connect(share.path(), member(place.path(), &[])));
    let (versions, writer) = (two.versions().unwrap(), mount(&one));
    let (hello, root, quiet) = (ino(&share, "hello"), ino(&share, ""), ino(&share, "quiet"));

    let fetched = versions.now();
    assert!(versions.is_valid(hello, fetched) && versions.is_valid(root, fetched));
    writer.open("hello", &OpenOptions::new().write(true)).unwrap().write_at(0, b"HELLO").unwrap();
    assert!(!versions.is_valid(hello, fetched), "written");
    let share_a_slot = versions.slot(root) == versions.slot(hello);
    assert!(share_a_slot || versions.is_valid(root, fetched), "a write changes no name");

    let fetched = versions.now();
    writer.rename("hello", "quiet/moved").unwrap();
    let changed = [hello, root, quiet].map(|ino| !versions.is_valid(ino, fetched));
    assert_eq!(changed, [true; 3], "the file, and both directories");

    let fetched = versions.now();
    writer.remove_file("quiet/moved").unwrap();
    assert!(!versions.is_valid(hello, fetched) && !versions.is_valid(quiet, fetched));
    assert!(versions.is_valid(hello, versions.now()), "what is fetched now can be cached");
}

#[test]
fn when_a_daemon_is_killed_the_others_guests_use_nothing_that_they_have_cached() {
    let (share, place) = (tree(), place());
    let [one, two] = [(); 2].map(|()| connect(share.path(), member(place.path(), &[])));
    let versions = two.versions().unwrap();
    let fetched = versions.now();
    let daemon = Pid::from_raw(one.device().transport().daemon_id().unwrap().cast_signed()).unwrap();
    kill_process_group(daemon, Signal::KILL).unwrap();
    // The daemon that lives looks 20 times a second; a busy machine may delay it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while versions.is_valid(1, fetched) {
        assert!(Instant::now() < deadline, "nobody noticed the death");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(versions.now().epoch > fetched.epoch);
}

#[test]
fn a_daemon_that_ends_as_it_should_invalidates_nothing() {
    let (share, place) = (tree(), place());
    let [one, two] = [(); 2].map(|()| connect(share.path(), member(place.path(), &[])));
    let versions = two.versions().unwrap();
    let fetched = versions.now();
    drop(one);
    thread::sleep(Duration::from_millis(200));
    assert!(versions.is_valid(1, fetched));
}

#[test]
fn a_file_that_a_guest_may_change_through_its_window_is_hot_until_it_has_closed_it() {
    let (share, place) = (tree(), place());
    fs::write(share.path().join("mapped"), vec![1; 2 << 20]).unwrap();
    let window = ["--tag=share", "--dax-window=4M", "--dax-policy=always"];
    let one = connect(share.path(), member(place.path(), &window));
    let two = connect(share.path(), member(place.path(), &[]));
    let dax = DaxOptions { dax: Dax::Always, ..DaxOptions::default() };
    let volume = one.volume(SessionConfig::default(), CacheOptions::default(), dax).unwrap();
    let (writer, versions) = (Fs::new(Arc::new(volume)), two.versions().unwrap());
    let ino = ino(&share, "mapped");

    let before = versions.now();
    let file = writer.open("mapped", &OpenOptions::new().read(true).write(true)).unwrap();
    let mut bytes = [0; 10];
    file.read_at(0, &mut bytes).unwrap();
    let is_mapped = writer.volume().window().unwrap().counts().mapped > 0;
    assert!(is_mapped, "the test is about a mapped file");
    assert!(!versions.is_valid(ino, before) && !versions.is_valid(ino, versions.now()), "it may be stored to");

    let during = versions.now();
    file.write_at(0, b"stored").unwrap();
    file.close().unwrap();
    assert!(!versions.is_valid(ino, during) && versions.is_valid(ino, versions.now()), "no longer hot, and changed");

    // For reading only, nobody can store.
    let before = versions.now();
    let file = writer.open_read("mapped").unwrap();
    file.read_at(0, &mut bytes).unwrap();
    assert!(versions.is_valid(ino, before));
}

#[test]
fn daemons_of_a_group_that_share_different_directories_are_refused() {
    let (share, other, place) = (tree(), tree(), place());
    let _one = connect(share.path(), member(place.path(), &[]));
    let refused = Share::builder().shared_dir(other.path()).daemon(member(place.path(), &[])).connect().err().unwrap();
    let message = refused.to_string();
    let ino = other.path().metadata().unwrap().ino();
    assert!(message.contains("must share the same directory") && message.contains(&ino.to_string()), "{message}");
}

#[test]
fn there_is_a_table_only_in_a_group_and_a_mirror_where_the_front_end_may_write_it() {
    let (share, place) = (tree(), place());
    assert!(connect(share.path(), transomd()).versions().is_none(), "no group");
    let one = connect(share.path(), member(place.path(), &[]));
    let mut program = transomd();
    program.args = vec!["--coherence-group".into(), place.path().into()];
    // Any front end, so perhaps one that writes.
    let two = connect(share.path(), program);
    let (writer, versions, hello) = (mount(&one), two.versions().unwrap(), ino(&share, "hello"));
    // 1. It says what the table says.
    let change = || {
        let before = versions.now();
        writer.open("hello", &OpenOptions::new().write(true)).unwrap().write_at(0, b"HELLO").unwrap();
        assert!(!versions.is_valid(hello, before) && versions.is_valid(hello, versions.now()));
    };
    change();
    // 2. Whatever becomes of it, nobody else notices. The first mirror is that guest's.
    let mirror = fs::File::options().write(true).open(place.path().join("mirror.0")).unwrap();
    let table = one.versions().unwrap();
    for spoil in [|file: &fs::File| file.write_all_at(&[0xff; 4096], 4096), |file: &fs::File| file.set_len(0)] {
        spoil(&mirror).unwrap();
        let before = table.now();
        writer.open("hello", &OpenOptions::new().write(true)).unwrap().write_at(0, b"hello").unwrap();
        assert!(!table.is_valid(hello, before) && table.is_valid(hello, table.now()));
        assert!(mount(&two).exists("hello").unwrap(), "its daemon lives");
    }
}
