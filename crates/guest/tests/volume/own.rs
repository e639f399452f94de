//! What a guest of a group has cached survives its own changes, and those of no other guest.

use std::{collections::BTreeMap, path::Path, sync::Arc, thread};

use transom_guest::{
    cache::{CacheMode, CacheOptions},
    fs::{Fs, OpenOptions},
    session::SessionConfig,
    volume::SetTime,
};
use transom_host::passthrough::{Config, Passthrough};
use transom_wire::{Opcode, ops::init::InitFlags};

use crate::{
    group::{Member, member, place},
    peer::{self, Peer, Plain},
};

const LEN: usize = 20_000;

type Counts = BTreeMap<&'static str, u64>;

fn config() -> Config {
    Config { xattr: true, ..Config::default() }
}

/// A guest that nobody shares a directory with.
fn alone(dir: &Path) -> Member {
    let peer = Peer::new(Passthrough::open(dir, config()).unwrap());
    let options = CacheOptions { mode: CacheMode::Always, ..CacheOptions::default() };
    let fs = Fs::mount(peer::session(&peer), options);
    (peer, fs)
}

/// A session that asks for trailers.
fn noting() -> SessionConfig {
    SessionConfig::default().with(InitFlags::OWN_CHANGES)
}

fn in_group(place: &Path, dir: &Path, session: SessionConfig) -> Member {
    member(place, dir, config(), session, CacheOptions::default())
}

fn bytes_at(file: &transom_guest::fs::File<Plain>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = file.read_at(offset, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn names(fs: &Fs<Plain>, path: &str) -> Vec<String> {
    let entries = fs.read_dir(path).unwrap().map(|entry| String::from_utf8(entry.unwrap().name).unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

/// Changes files and looks at them in between, by every operation that changes something.
fn work(fs: &Fs<Plain>) {
    fs.metadata(".").unwrap();
    fs.create_dir("d", 0o755).unwrap();
    fs.create_dir("d/sub", 0o755).unwrap();
    for name in ["d/a", "d/b", "d/c"] {
        fs.create(name).unwrap().write_all(&[1; LEN]).unwrap();
    }
    let look = |len: u64| {
        assert_eq!(fs.metadata("d/a").unwrap().len(), len);
        assert_eq!(fs.metadata("d/b").unwrap().len(), LEN as u64);
        assert!(fs.metadata("d/sub").unwrap().is_dir() && !fs.exists("d/none").unwrap());
    };
    let file = fs.open("d/a", &OpenOptions::new().read(true).write(true)).unwrap();
    let other = fs.open("d/b", &OpenOptions::new().read(true).write(true)).unwrap();
    assert_eq!(bytes_at(&file, 0, LEN), [1; LEN]);
    for round in 2..10 {
        file.write_at(5000, &[round; 100]).unwrap();
        look(LEN as u64);
        assert_eq!(bytes_at(&file, 4999, 102), [&[1][..], &[round; 100], &[1]].concat());
        assert_eq!(bytes_at(&other, 0, LEN), [1; LEN]);
        assert_eq!(names(fs, "d").len(), 4);
    }
    fs.set_permissions("d/a", 0o600).unwrap();
    file.set_times(SetTime::Now, SetTime::At(5, 6)).unwrap();
    look(LEN as u64);
    file.set_len(30_000).unwrap();
    look(30_000);
    assert_eq!(bytes_at(&file, 19_999, 2), [1, 0]);
    file.allocate(0, 0, 40_000).unwrap();
    look(40_000);
    assert_eq!(other.copy_to(0, &file, 0, 10), Ok(10));
    look(40_000);
    fs.set_xattr("d/a", "user.x", b"value", 0, true).unwrap();
    look(40_000);
    fs.remove_xattr("d/a", "user.x", true).unwrap();
    look(40_000);
    fs.hard_link("d/a", "d/link").unwrap();
    fs.symlink("a", "d/symlink").unwrap();
    look(40_000);
    fs.rename("d/c", "d/sub/c").unwrap();
    look(40_000);
    assert!(!fs.exists("d/c").unwrap() && fs.exists("d/sub/c").unwrap());
    fs.rename("d/link", "d/symlink").unwrap();
    fs.remove_file("d/symlink").unwrap();
    look(40_000);
    fs.remove_file("d/sub/c").unwrap();
    fs.remove_dir("d/sub").unwrap();
    assert!(!fs.exists("d/sub").unwrap());
    fs.open("d/a", &OpenOptions::new().write(true).truncate(true)).unwrap();
    assert_eq!((fs.metadata("d/a").unwrap().len(), names(fs, "d")), (0, vec!["a".to_owned(), "b".to_owned()]));
}

/// Lets a guest work in an empty directory, and returns what it has asked.
fn asked(guest: impl FnOnce(&Path) -> Member) -> Counts {
    let dir = tempfile::tempdir().unwrap();
    let (peer, fs) = guest(dir.path());
    let before = peer.counts();
    work(&fs);
    let mut counts = peer.counts();
    counts.iter_mut().for_each(|(name, count)| *count -= before.get(name).copied().unwrap_or_default());
    counts
}

#[test]
fn a_guest_of_a_group_asks_no_more_than_one_alone_as_long_as_no_other_changes_anything() {
    let alone = asked(alone);
    let group = place();
    let shared = asked(|dir| in_group(group.path(), dir, noting()));
    let group = place();
    let without = asked(|dir| in_group(group.path(), dir, SessionConfig::default()));
    println!("alone: {alone:?}\nin a group: {shared:?}\nwithout the extension: {without:?}");
    // Forgets have no reply, and are sent together.
    for (name, count) in shared.iter().filter(|(name, _)| !name.ends_with("forget")) {
        let least = alone.get(name).copied().unwrap_or_default();
        assert!(*count <= least, "{name}: {count} requests in a group, {least} alone");
    }
    // A LOOKUP returns attributes too.
    for names in [&["lookup", "getattr"][..], &["read"]] {
        let sum = |counts: &Counts| names.iter().map(|name| counts[name]).sum::<u64>();
        assert!(sum(&without) > sum(&shared), "{names:?}: the extension is for nothing");
    }
}

fn two() -> (tempfile::TempDir, tempfile::TempDir, [Member; 2]) {
    let (group, dir) = (place(), tempfile::tempdir().unwrap());
    let guests = [(); 2].map(|()| in_group(group.path(), dir.path(), noting()));
    (group, dir, guests)
}

#[test]
fn anothers_change_between_ones_own_is_seen_at_once() {
    let (_group, _dir, [(peer, one), (_, two)]) = two();
    for name in ["file", "kept"] {
        one.create(name).unwrap().write_all(&[0; LEN]).unwrap();
    }
    let options = OpenOptions::new().read(true).write(true);
    let (mine, its) = (one.open("file", &options).unwrap(), two.open("file", &options).unwrap());
    for round in 1..50 {
        mine.write_at(0, &[round; 10]).unwrap();
        assert_eq!(bytes_at(&mine, 0, 12), [&[round; 10][..], &[round - 1; 1], &[0]].concat());
        its.write_at(10, &[round]).unwrap();
        one.create(format!("mine-{round}")).unwrap();
        two.create(format!("its-{round}")).unwrap();
        assert_eq!(bytes_at(&mine, 10, 1), [round], "before its next own change");
        assert!(one.exists(format!("its-{round}")).unwrap() && two.exists(format!("mine-{round}")).unwrap());
        two.remove_file(format!("mine-{round}")).unwrap();
        mine.write_at(0, &[round; 10]).unwrap();
        assert_eq!(bytes_at(&mine, 9, 2), [round, round], "and after it");
        assert!(!one.exists(format!("mine-{round}")).unwrap());
    }
    // The test is about caches that are used.
    let look = || (one.exists("kept"), bytes_at(&mine, 0, 1));
    let (first, before) = (look(), peer.messages());
    assert_eq!((look(), peer.messages()), (first, before));
}

#[test]
fn anothers_change_while_the_reply_to_ones_own_is_on_its_way_is_seen() {
    for opcode in [Opcode::Write, Opcode::Setattr, Opcode::Create] {
        let (_group, _dir, [(peer, one), (_, two)]) = two();
        one.create("file").unwrap().write_all(&[1; LEN]).unwrap();
        let options = OpenOptions::new().read(true).write(true);
        let (mine, its) = (one.open("file", &options).unwrap(), two.open("file", &options).unwrap());
        assert_eq!((bytes_at(&mine, 0, 2), one.exists("new")), (vec![1, 1], Ok(false)));
        let act = move || {
            its.write_at(0, &[3]).unwrap();
            its.set_permissions(0o640).unwrap();
            two.create("new").unwrap();
        };
        // Another guest has locks of its own.
        peer.meanwhile(opcode, || thread::spawn(act).join().unwrap());
        mine.write_at(0, &[2]).unwrap();
        mine.set_permissions(0o600).unwrap();
        one.create("other").unwrap();
        assert!(one.exists("new").unwrap(), "{opcode:?}");
        assert_eq!(bytes_at(&mine, 0, 2), [3, 1], "{opcode:?}");
        let mode = one.metadata("file").unwrap().permissions();
        assert_eq!(mode, if opcode == Opcode::Write { 0o600 } else { 0o640 }, "{opcode:?}");
    }
}

/// Between the system call of a write and its stamp, another guest may write the same bytes. What is read then must not
/// be overwritten with the older bytes of the own write.
#[test]
fn what_is_read_during_ones_own_write_is_not_kept() {
    let (_group, _dir, [(peer, one), _]) = two();
    one.create("file").unwrap().write_all(&[1; LEN]).unwrap();
    let options = OpenOptions::new().read(true).write(true);
    let (mine, reader) = (one.open("file", &options).unwrap(), Arc::new(one.open("file", &options).unwrap()));
    let reads = || peer.counts().get("read").copied().unwrap_or_default();
    let reading = Arc::clone(&reader);
    peer.meanwhile(Opcode::Write, move || drop(bytes_at(&reading, 0, 10)));
    mine.write_at(0, &[2]).unwrap();
    let before = reads();
    assert_eq!(bytes_at(&mine, 0, 2), [2, 1]);
    let after = reads();
    assert!(after > before, "it has to be read anew");
    mine.write_at(0, &[3]).unwrap();
    assert_eq!((bytes_at(&mine, 0, 2), reads()), (vec![3, 1], after), "kept over the next write");
}

/// The server appends at the end, which another guest may have moved since the writer asked for it.
#[test]
fn what_is_appended_after_anothers_append_is_read_where_the_server_has_put_it() {
    let (_group, _dir, [(peer, one), (_, two)]) = two();
    one.create("log").unwrap().write_all(&[1; 10]).unwrap();
    let append = OpenOptions::new().read(true).append(true);
    let (mine, its) = (one.open("log", &append).unwrap(), two.open("log", &append).unwrap());
    let reader = one.open_read("log").unwrap();
    assert_eq!(bytes_at(&reader, 0, 10), [1; 10]);
    // The reply says where the end was.
    peer.meanwhile(Opcode::Getattr, move || {
        thread::spawn(move || its.write_all(&[2; 5]).unwrap()).join().unwrap();
        bytes_at(&reader, 0, 15);
    });
    mine.write_all(&[3; 7]).unwrap();
    let expected = [vec![1; 10], vec![2; 5], vec![3; 7]].concat();
    assert_eq!(bytes_at(&one.open_read("log").unwrap(), 0, 22), expected);
    assert_eq!(bytes_at(&two.open_read("log").unwrap(), 0, 22), expected);
}

/// The link count of a file whose name the guest does not know changes without its knowledge of what else it has
/// cached.
#[test]
fn a_change_that_the_guest_cannot_account_for_counts_as_anothers() {
    let (_group, dir, [(_, one), _]) = two();
    let nlink = |fs: &Fs<Plain>| fs.metadata("file").unwrap().attr().nlink.get();
    one.create("file").unwrap();
    std::fs::hard_link(dir.path().join("file"), dir.path().join("unknown")).unwrap();
    one.set_permissions("file", 0o600).unwrap();
    assert_eq!(nlink(&one), 2);
    one.remove_file("unknown").unwrap();
    assert_eq!(nlink(&one), 1);
}

#[test]
fn a_session_has_trailers_only_if_it_asks_and_its_server_is_in_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let (peer, _) = alone(dir.path());
    let session = peer::session_for(&peer, noting());
    assert!(!session.negotiated().flags.contains(InitFlags::OWN_CHANGES));
    let (group, dir) = (place(), tempfile::tempdir().unwrap());
    for (config, is_asked) in [(noting(), true), (SessionConfig::default(), false)] {
        let (_, fs) = in_group(group.path(), dir.path(), config);
        assert_eq!(fs.volume().session().negotiated().flags.contains(InitFlags::OWN_CHANGES), is_asked);
    }
}
