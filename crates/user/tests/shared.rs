//! Two guests of one directory that cache by the version table, each with a real daemon of its own in one group.

mod common;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use common::{transomd, tree};
use transom_user::{
    guest::{
        Errno,
        cache::{CacheMode, CacheOptions},
        dax::{Dax, DaxOptions},
        fs::{Fs, OpenOptions},
        session::SessionConfig,
        volume::SetTime,
    },
    platform::Process,
    share::Share,
};
use transom_wire::ops::init::InitFlags;

/// A private directory for a group.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    place
}

/// Starts a daemon in the group, and a guest of it in `CacheMode::Shared`.
fn member(place: &Path, share: &Path, more: &[&str]) -> (Share, Fs<Process>) {
    member_with(place, share, more, CacheMode::Shared, SessionConfig::default())
}

fn member_with(
    place: &Path,
    share: &Path,
    more: &[&str],
    mode: CacheMode,
    config: SessionConfig,
) -> (Share, Fs<Process>) {
    let mut program = transomd();
    program.args = vec!["--coherence-group".into(), place.into(), "--front-end=alioth".into()];
    program.args.extend(more.iter().map(Into::into));
    let share = Share::builder().shared_dir(share).daemon(program).connect().unwrap();
    let options = CacheOptions { mode, ..CacheOptions::default() };
    let dax = DaxOptions { dax: Dax::Always, ..DaxOptions::default() };
    let volume = share.volume(config, options, dax).unwrap();
    (share, Fs::new(Arc::new(volume)))
}

fn requests(fs: &Fs<Process>) -> u64 {
    fs.volume().session().counters().requests
}

#[test]
fn a_guest_asks_nothing_until_another_has_changed_something() {
    let (share, place) = (tree(), place());
    fs::create_dir_all(share.path().join("a/b/c")).unwrap();
    fs::write(share.path().join("a/b/c/file"), b"first").unwrap();
    let [(_one, writer), (_two, reader)] = [(); 2].map(|()| member(place.path(), share.path(), &[]));
    let file = reader.open_read("a/b/c/file").unwrap();
    let look = || {
        let mut bytes = [0; 9];
        let len = file.read_at(0, &mut bytes).unwrap();
        let names = reader.read_dir("a/b/c").unwrap().map(|entry| entry.unwrap().name).collect::<Vec<_>>();
        assert_eq!(reader.metadata("a/b/c/absent").err(), Some(Errno::NOENT));
        (bytes[..len].to_vec(), names, reader.metadata("a/b/c/file").unwrap().len())
    };
    let first = (b"first".to_vec(), vec![b"file".to_vec()], 5);
    assert_eq!((look(), look()), (first.clone(), first.clone()));
    let before = requests(&reader);
    for _ in 0..100 {
        assert_eq!(look(), first);
    }
    assert_eq!(requests(&reader), before);
    writer.open("a/b/c/file", &OpenOptions::new().write(true)).unwrap().write_at(0, b"different").unwrap();
    assert_eq!(look(), (b"different".to_vec(), vec![b"file".to_vec()], 9));
    writer.create("a/b/c/absent").unwrap();
    assert!(reader.exists("a/b/c/absent").unwrap());
    writer.rename("a/b", "a/d").unwrap();
    assert_eq!(reader.metadata("a/b/c/file").err(), Some(Errno::NOENT));
}

#[test]
fn a_guest_with_a_table_is_told_of_its_own_changes_unless_it_does_without() {
    let (share, place) = (tree(), place());
    let config = SessionConfig::default();
    let own = InitFlags::OWN_CHANGES;
    for (mode, config, is_on) in [
        (CacheMode::Shared, config, true),
        (CacheMode::Shared, config.without(own), false),
        (CacheMode::Shared, config.without(own).with(own), true),
        (CacheMode::Always, config, false),
    ] {
        let (_share, guest) = member_with(place.path(), share.path(), &[], mode, config);
        assert_eq!(guest.volume().session().negotiated().flags.contains(own), is_on, "{mode:?}");
        let file = guest.create("changed").unwrap();
        file.write_all(&[1; 5000]).unwrap();
        let look = || {
            let mut bytes = [0; 3];
            let file = guest.open_read("changed").unwrap();
            file.read_at(4000, &mut bytes).unwrap();
            bytes
        };
        look();
        for round in 2..10 {
            file.write_at(4001, &[round]).unwrap();
            assert_eq!(look(), [1, round, 1]);
        }
    }
}

#[test]
fn a_guest_whose_daemon_has_died_uses_nothing_that_it_has_cached() {
    let (share, place) = (tree(), place());
    let (connection, guest) = member(place.path(), share.path(), &[]);
    guest.metadata("hello").unwrap();
    let daemon = connection.device().transport().daemon_id().unwrap();
    let daemon = rustix::process::Pid::from_raw(daemon.cast_signed()).unwrap();
    rustix::process::kill_process_group(daemon, rustix::process::Signal::KILL).unwrap();
    while !connection.is_gone() {
        thread::yield_now();
    }
    assert_eq!(guest.metadata("hello").err(), Some(Errno::NOTCONN));
}

#[test]
fn a_file_in_the_window_shows_at_once_how_long_another_guest_has_made_it() {
    let (share, place) = (tree(), place());
    fs::write(share.path().join("mapped"), vec![1; 2 << 20]).unwrap();
    let window = ["--tag=share", "--dax-window=4M", "--dax-policy=always"];
    let [(_one, writer), (_two, reader)] = [(); 2].map(|()| member(place.path(), share.path(), &window));
    let (long, mut byte) = (writer.open("mapped", &OpenOptions::new().write(true)).unwrap(), [0]);
    let file = reader.open_read("mapped").unwrap();
    for at in 2 << 20..(2 << 20) + 20 {
        assert_eq!(file.read_at(at, &mut byte), Ok(0), "the file ends at {at}");
        long.write_at(at, b"x").unwrap();
        assert_eq!((file.read_at(at, &mut byte), byte), (Ok(1), *b"x"));
        assert_eq!(reader.metadata("mapped").unwrap().len(), at + 1);
    }
}

/// Rounds of the writer; a run takes a few seconds on a machine that does nothing else.
const ROUNDS: u64 = 1500;

/// One round: each kind of thing that a guest caches gets a new state, which counts the round.
fn change(fs: &Fs<Process>, round: u64) {
    let data = fs.open("data", &OpenOptions::new().write(true)).unwrap();
    data.write_at(0, &round.to_le_bytes()).unwrap();
    fs.rename(format!("names/{}", round - 1), format!("names/{round}")).unwrap();
    fs.set_times("times", SetTime::Keep, SetTime::At(round as i64, 0), true).unwrap();
    fs.symlink(format!("{round}"), "new").unwrap();
    fs.rename("new", "link").unwrap();
}

/// Returns the round of each kind of thing, as this guest sees it.
fn rounds(fs: &Fs<Process>, data: &transom_user::guest::fs::File<Process>, least: u64) -> [u64; 5] {
    let mut bytes = [0; 8];
    assert_eq!(data.read_at(0, &mut bytes), Ok(8));
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<u64>().unwrap();
    // Between the two looks it may be renamed again, but the old name never comes back.
    let listed = fs.read_dir("names").unwrap().next().map_or(least, |entry| number(&entry.unwrap().name));
    let is_old = least > 0 && fs.exists(format!("names/{}", least - 1)).unwrap();
    [
        u64::from_le_bytes(bytes),
        listed,
        if is_old { least - 1 } else { least },
        fs.metadata("times").unwrap().attr().mtime.get(),
        number(&fs.read_link("link").unwrap()),
    ]
}

#[test]
fn no_guest_sees_anything_from_before_a_completed_change_of_another() {
    let (share, place) = (tree(), place());
    let [(_one, writer), (_two, reader)] = [(); 2].map(|()| member(place.path(), share.path(), &[]));
    writer.create("data").unwrap().write_all(&0_u64.to_le_bytes()).unwrap();
    writer.create_dir("names", 0o755).unwrap();
    writer.create("names/0").unwrap();
    writer.create("times").unwrap();
    writer.set_times("times", SetTime::Keep, SetTime::At(0, 0), true).unwrap();
    writer.symlink("0", "link").unwrap();
    let done = AtomicU64::new(0);
    let (mut looks, before) = (0_u64, requests(&reader));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                change(&writer, round);
                done.store(round, Ordering::SeqCst);
                // The reader looks more than once at most states.
                for _ in 0..round % 64 {
                    thread::yield_now();
                }
            }
        });
        let data = reader.open_read("data").unwrap();
        let mut least = 0;
        while least < ROUNDS {
            least = done.load(Ordering::SeqCst);
            let found = rounds(&reader, &data, least);
            assert!(found.iter().all(|&round| round >= least), "{found:?} after round {least} was complete");
            looks += found.len() as u64;
        }
    });
    println!("{looks} looks, {} requests, 0 stale", requests(&reader) - before);
}
