//! Caches that a version table keeps: a guest, and a host that changes files with and without stamps.

use std::{
    fs::{self, File as HostFile},
    os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use tempfile::TempDir;
use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions, TableWord, Versions},
    fs::Fs,
    volume::{Regions, Volume},
};
use transom_host::passthrough::{Config, Passthrough};
use transom_versions::{Keys, Writer, layout};
use transom_wire::Opcode;

use crate::peer::{self, Peer, Plain};

#[derive(Clone)]
struct Words(Arc<[TableWord]>);

impl AsRef<[TableWord]> for Words {
    fn as_ref(&self) -> &[TableWord] {
        &self.0
    }
}

/// A table that the test stamps.
#[derive(Clone)]
struct Table(Writer<Words>);

impl Table {
    fn new() -> (Self, Versions) {
        let len_words = layout::len_bytes(layout::SLOTS_LOG2) / size_of::<u64>();
        let words = Words((0..len_words).map(|_| AtomicU64::new(0)).collect());
        let writer = Writer::format(words.clone(), layout::SLOTS_LOG2, Keys(1, 2)).unwrap();
        (Self(writer), Versions::new(Arc::new(words)).unwrap())
    }

    fn stamp(&self, path: impl AsRef<Path>) {
        let slot = self.0.reader().slot(fs::symlink_metadata(path).unwrap().ino());
        self.0.raise(slot, self.0.next_stamp());
    }
}

/// A guest in `CacheMode::Shared`, whose table only the test stamps.
struct Guest {
    dir: TempDir,
    peer: Arc<Peer<Passthrough>>,
    fs: Fs<Plain>,
    table: Table,
}

const LEN: usize = 300_000;

impl Guest {
    /// Creates a share of `a/b/file` (full of the byte 1), `a/b/link` and `a/b/old`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), vec![1; LEN]).unwrap();
        fs::write(dir.path().join("a/b/old"), b"old").unwrap();
        symlink("file", dir.path().join("a/b/link")).unwrap();
        let peer = Peer::new(Passthrough::open(dir.path(), Config::default()).unwrap());
        let (table, versions) = Table::new();
        let options = CacheOptions { mode: CacheMode::Shared, ..CacheOptions::default() };
        let regions = Regions { versions: Some(versions), ..Regions::default() };
        let volume = Volume::with_regions(peer::session(&peer), options, regions);
        Self { dir, peer, fs: Fs::new(Arc::new(volume)), table }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Runs `act` and returns how many messages it took.
    fn messages(&self, act: impl FnOnce()) -> u64 {
        let before = self.peer.messages();
        act();
        self.peer.messages() - before
    }

    fn names(&self) -> Vec<String> {
        let entries = self.fs.read_dir("a/b").unwrap().map(|entry| String::from_utf8(entry.unwrap().name).unwrap());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }

    fn len(&self) -> u64 {
        self.fs.metadata("a/b/file").unwrap().len()
    }

    fn has(&self, path: &str) -> bool {
        self.fs.symlink_metadata(path).is_ok()
    }

    /// Makes the guest cache one thing of each kind.
    fn look_at_everything(&self, file: &transom_guest::fs::File<Plain>) {
        assert_eq!(self.names(), ["file", "link", "old"]);
        assert_eq!(self.len(), LEN as u64);
        assert!(self.has("a/b/old") && !self.has("a/b/new"));
        assert_eq!(&*self.fs.read_link("a/b/link").unwrap(), b"file");
        assert_eq!(bytes_of(file), vec![1; LEN]);
    }
}

fn bytes_of(file: &transom_guest::fs::File<Plain>) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    assert_eq!(file.read_at(0, &mut bytes), Ok(LEN));
    bytes
}

/// Replaces the bytes of a file, without a change of its size.
fn overwrite(path: &Path, byte: u8) {
    HostFile::options().write(true).open(path).unwrap().write_all_at(&vec![byte; LEN], 0).unwrap();
}

#[test]
fn what_nobody_has_changed_is_used_without_a_request() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    // The first look asks, and what the second one still asks may be the price of the first.
    guest.look_at_everything(&file);
    guest.look_at_everything(&file);
    for _ in 0..3 {
        assert_eq!(guest.messages(|| guest.look_at_everything(&file)), 0);
    }
    let readdir = guest.messages(|| drop(guest.fs.read_dir("a/b").unwrap().collect::<Vec<_>>()));
    assert_eq!(readdir, 0, "not even to open the directory");
}

#[test]
fn a_change_without_a_stamp_stays_hidden_and_is_seen_with_it() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    guest.look_at_everything(&file);
    // Data.
    overwrite(&guest.path("a/b/file"), 2);
    assert_eq!(bytes_of(&file), vec![1; LEN]);
    guest.table.stamp(guest.path("a/b/file"));
    assert_eq!(bytes_of(&file), vec![2; LEN]);
    // Attributes.
    HostFile::options().write(true).open(guest.path("a/b/file")).unwrap().set_len(7).unwrap();
    assert_eq!(guest.len(), LEN as u64);
    guest.table.stamp(guest.path("a/b/file"));
    assert_eq!(guest.len(), 7);
    // Names, absent ones, and the listing.
    fs::rename(guest.path("a/b/old"), guest.path("a/b/new")).unwrap();
    assert!(guest.has("a/b/old") && !guest.has("a/b/new"));
    assert_eq!(guest.names(), ["file", "link", "old"]);
    guest.table.stamp(guest.path("a/b"));
    assert!(!guest.has("a/b/old") && guest.has("a/b/new"));
    assert_eq!(guest.names(), ["file", "link", "new"]);
    // A name somewhere above.
    fs::rename(guest.path("a"), guest.path("c")).unwrap();
    assert!(guest.has("a/b/new"));
    guest.table.stamp(guest.dir.path());
    assert!(!guest.has("a/b/new") && guest.has("c/b/new"));
}

#[test]
fn a_stamp_on_a_link_has_it_read_again_and_leaves_the_rest_alone() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    guest.look_at_everything(&file);
    guest.look_at_everything(&file);
    guest.table.stamp(guest.path("a/b/link"));
    let read = || assert_eq!(&*guest.fs.read_link("a/b/link").unwrap(), b"file");
    assert_eq!(guest.messages(read), 1);
    assert_eq!(guest.messages(|| guest.look_at_everything(&file)), 0);
}

#[test]
fn nothing_of_a_hot_file_is_used_and_everything_again_afterwards() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    guest.look_at_everything(&file);
    let writer = &guest.table.0;
    let slot = writer.reader().slot(fs::metadata(guest.path("a/b/file")).unwrap().ino());
    writer.set_hot(slot);
    for byte in 2..5 {
        overwrite(&guest.path("a/b/file"), byte);
        assert_eq!(bytes_of(&file), vec![byte; LEN]);
        HostFile::options()
            .write(true)
            .open(guest.path("a/b/file"))
            .unwrap()
            .set_len((LEN + byte as usize) as u64)
            .unwrap();
        assert_eq!(guest.len(), (LEN + byte as usize) as u64);
    }
    assert!(writer.clear_hot(slot, || false).is_some());
    overwrite(&guest.path("a/b/file"), 9);
    assert_eq!(bytes_of(&file), vec![9; LEN]);
    guest.len();
    assert_eq!(guest.messages(|| assert_eq!(bytes_of(&file), vec![9; LEN])), 0);
}

#[test]
fn another_epoch_invalidates_everything() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    guest.look_at_everything(&file);
    overwrite(&guest.path("a/b/file"), 2);
    fs::write(guest.path("a/b/new"), b"").unwrap();
    fs::remove_file(guest.path("a/b/link")).unwrap();
    symlink("old", guest.path("a/b/link")).unwrap();
    guest.table.0.raise_epoch();
    assert_eq!(bytes_of(&file), vec![2; LEN]);
    assert!(guest.has("a/b/new"));
    assert_eq!(guest.names(), ["file", "link", "new", "old"]);
    assert_eq!(&*guest.fs.read_link("a/b/link").unwrap(), b"old");
    let again = || assert!(guest.has("a/b/new") && bytes_of(&file) == vec![2; LEN]);
    again();
    assert_eq!(guest.messages(again), 0, "the new epoch's answers are cached");
}

/// Runs `look` while the host makes a change, and stamps it, after the reply to an `opcode` was made and before the
/// guest sees it. `look` then has to show the change.
fn race(opcode: Opcode, change: fn(&Path), stamped: &str, look: impl Fn(&Guest) -> bool) {
    let guest = Guest::new();
    let (dir, path, table) = (guest.dir.path().to_owned(), guest.path(stamped), guest.table.clone());
    guest.peer.meanwhile(opcode, move || {
        change(&dir);
        table.stamp(path);
    });
    look(&guest);
    assert!(look(&guest), "{opcode:?}: an answer from before the change was used after it");
    look(&guest);
    assert_eq!(guest.messages(|| assert!(look(&guest))), 0, "{opcode:?}: the new answer is cached");
}

#[test]
fn an_answer_that_a_change_overtakes_is_not_used() {
    race(Opcode::Lookup, |dir| fs::rename(dir.join("a"), dir.join("z")).unwrap(), "", |guest| !guest.has("a"));
    race(Opcode::Lookup, |dir| fs::create_dir(dir.join("n")).unwrap(), "", |guest| guest.has("n"));
    race(
        Opcode::Readdirplus,
        |dir| fs::write(dir.join("a/b/n"), b"").unwrap(),
        "a/b",
        |guest| guest.names().contains(&"n".into()),
    );
    race(Opcode::Readlink, replace_link, "a/b", |guest| *guest.fs.read_link("a/b/link").unwrap() == *b"old");
    race(Opcode::Lookup, |dir| cut(&dir.join("a/b/file")), "a/b/file", |guest| guest.len() == 5);
    race(Opcode::Getattr, cut, "", |guest| guest.fs.metadata("/").unwrap().permissions() == 0o705);
}

fn replace_link(dir: &Path) {
    fs::remove_file(dir.join("a/b/link")).unwrap();
    symlink("old", dir.join("a/b/link")).unwrap();
}

/// Cuts a file, or changes the mode of a directory.
fn cut(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    match path.is_dir() {
        true => fs::set_permissions(path, fs::Permissions::from_mode(0o705)).unwrap(),
        false => HostFile::options().write(true).open(path).unwrap().set_len(5).unwrap(),
    }
}

#[test]
fn data_that_a_change_overtakes_is_not_used() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    let (path, table) = (guest.path("a/b/file"), guest.table.clone());
    guest.peer.meanwhile(Opcode::Read, move || {
        overwrite(&path, 2);
        table.stamp(path);
    });
    // This read began before the change, so it may see either state.
    bytes_of(&file);
    assert_eq!(bytes_of(&file), vec![2; LEN]);
}

#[test]
fn data_that_was_read_ahead_of_a_change_is_not_used() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    let mut page = vec![0; 4096];
    // A sequential reader: what follows is fetched ahead, and nobody has waited for it yet.
    for at in 0..2 {
        assert_eq!(file.read_at(at * 4096, &mut page), Ok(4096));
    }
    overwrite(&guest.path("a/b/file"), 2);
    guest.table.stamp(guest.path("a/b/file"));
    for at in 2..70 {
        assert_eq!(file.read_at(at * 4096, &mut page), Ok(4096));
        assert_eq!(page, [2; 4096], "page {at}");
    }
}

#[test]
fn without_its_daemon_a_guest_uses_nothing() {
    let guest = Guest::new();
    let file = guest.fs.open_read("a/b/file").unwrap();
    guest.look_at_everything(&file);
    guest.peer.hang_up();
    let mut byte = [0];
    assert_eq!(file.read_at(0, &mut byte), Err(Errno::NOTCONN));
    assert_eq!(guest.fs.metadata("a/b/file").err(), Some(Errno::NOTCONN));
    assert_eq!(guest.fs.symlink_metadata("a/b/new").err(), Some(Errno::NOTCONN));
    assert_eq!(guest.fs.read_link("a/b/link").err(), Some(Errno::NOTCONN));
    assert!(guest.fs.read_dir("a/b").and_then(Iterator::collect::<Result<Vec<_>, _>>).is_err());
}

#[test]
fn without_a_table_nothing_is_cached() {
    let (dir, fs) = crate::on_host(CacheMode::Shared);
    std::fs::write(dir.path().join("file"), b"one").unwrap();
    assert_eq!(fs.metadata("file").unwrap().len(), 3);
    std::fs::write(dir.path().join("file"), b"three").unwrap();
    assert_eq!(fs.metadata("file").unwrap().len(), 5);
}
