//! A session that goes on with another file system, as after a migration. The host's own view is the oracle.

use std::{borrow::Cow, fs, path::Path};

use rustix::fs::OFlags;
use transom_wire::{Handle, NodeId, Opcode, attr::EntryOut, ops::init::InitFlags};

use super::{
    each_way,
    guest::{Guest, node},
};
use crate::{
    Errno,
    migration::{self, Error, FileHandle, Inode, Location, Mode, Negotiated, OnError, Options, State},
    passthrough::{CachePolicy, Config, HiddenPaths, Passthrough},
};

const ROOT: NodeId = NodeId::ROOT;

fn by_handles() -> Config {
    with(Options { mode: Mode::FileHandles, ..Options::default() })
}

fn with(migration: Options) -> Config {
    Config { migration, ..Config::default() }
}

fn load(dir: &Path, config: Config, state: &[u8]) -> Result<Guest, Error> {
    Guest::load(Passthrough::open(dir, config).unwrap(), state)
}

fn file(id: u64, path: &'static [u8]) -> Inode<'static> {
    Inode { id, refcount: 1, location: Location::Path(Cow::Borrowed(path)), handle: None }
}

/// A state as virtiofsd writes it, with small numbers and without our records.
fn virtiofsds(mut inodes: Vec<Inode<'static>>, handles: Vec<migration::Handle>) -> State<'static> {
    inodes.insert(0, Inode { id: 1, refcount: 2, location: Location::Root, handle: None });
    let negotiated = Negotiated { announce_submounts: true, sup_group_extension: true, ..Negotiated::default() };
    State { inodes, handles, next_inode: 100, next_handle: 50, negotiated, ..State::default() }
}

/// Whether handles can be opened here.
fn opens_handles(dir: &Path) -> bool {
    let has = Guest::new(dir, Config::default()).fs().inodes.holds_handles();
    if !has {
        println!("SKIPPED: file handles cannot be opened here");
    }
    has
}

#[test]
fn a_guest_goes_on_with_its_inodes_files_and_directories() {
    each_way(|guest, dir| {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "content").unwrap();
        fs::write(dir.join("moved"), "moved").unwrap();
        let (nodeid, moved) = (guest.walk("a/b/file").unwrap(), guest.walk("moved").unwrap());
        let directory = guest.walk("a/b").unwrap();
        let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
        let listing = guest.opendir(directory).unwrap();
        fs::rename(dir.join("moved"), dir.join("a/elsewhere")).unwrap();
        let state = guest.save().unwrap();
        let there = load(dir, guest.fs().config.clone(), &state).unwrap();
        for guest in [guest, &there] {
            guest.write(fh, 7, b" more").unwrap();
            assert_eq!(guest.read(fh, 0, 100).unwrap(), b"content more");
            assert_eq!(guest.getattr(moved).unwrap().size.get(), 5);
            assert!(guest.readdir(directory, listing, 0, 4096).unwrap().iter().any(|entry| entry.0 == b"file"));
            assert_eq!(guest.walk("a/b/file").unwrap(), nodeid, "one inode has one number");
        }
        let new = there.create(directory, "new", OFlags::RDWR).unwrap();
        assert!(node(&new.0) > nodeid && node(&new.0) > directory, "numbers are not given out twice");
        assert_ne!(Handle::from(new.1.fh), fh);
        there.release(nodeid, fh);
        assert_eq!(there.read(fh, 0, 1).err(), Some(Errno::BADF));
        // Two lookups by the walks before the save, and one after it.
        there.forget(nodeid, 2);
        assert_eq!(there.getattr(nodeid).err(), Some(Errno::STALE));
    });
}

#[test]
fn a_rename_above_an_inode_that_was_loaded_by_path_does_not_lose_it() {
    each_way(|guest, dir| {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "content").unwrap();
        let nodeid = guest.walk("a/b/file").unwrap();
        let there = load(dir, guest.fs().config.clone(), &guest.save().unwrap()).unwrap();
        there.rename((ROOT, "a"), (ROOT, "renamed"), 0).unwrap();
        // As if other inodes had needed the descriptors since.
        there.fs().inodes.close_all();
        assert_eq!(there.getattr(nodeid).unwrap().size.get(), 7);
        assert!(there.open(nodeid, OFlags::RDONLY).is_ok());
    });
}

#[test]
fn a_guest_of_virtiofsd_keeps_its_small_numbers() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    fs::write(dir.path().join("dir/file"), "content").unwrap();
    let child = |id, refcount, parent, name: &'static [u8]| Inode {
        id,
        refcount,
        location: Location::Child { parent, name: Cow::Borrowed(name) },
        handle: None,
    };
    // The directory comes after its entry, and has one reference for it.
    let inodes = vec![child(7, 2, 6, b"file"), child(6, 2, 1, b"dir")];
    let flags = libc::O_RDWR | libc::O_NOFOLLOW;
    let state = virtiofsds(inodes, vec![migration::Handle { id: 3, inode: 7, flags }]);
    let guest = load(dir.path(), Config::default(), &migration::encode(&state)).unwrap();
    assert_eq!(guest.read(Handle(3), 0, 100).unwrap(), b"content");
    assert_eq!(guest.walk("dir/file").unwrap(), NodeId(7));
    assert_eq!(guest.getattr(NodeId(6)).unwrap().nlink.get(), 2);
    let listing = guest.opendir(NodeId(6)).unwrap();
    let listed = guest.readdirplus(NodeId(6), listing, 0, 4096).unwrap();
    let listed = listed.iter().find(|entry| entry.name == b"file").unwrap();
    assert_eq!(node(&listed.entry), NodeId(7));
    guest.rename((NodeId(6), "file"), (ROOT, "renamed"), 0).unwrap();
    guest.rename((ROOT, "renamed"), (NodeId(6), "file"), 0).unwrap();
    let (entry, open) = guest.create(NodeId(6), "new", OFlags::RDWR).unwrap();
    assert!(node(&entry).0 >= 100 && open.fh.get() >= 50);
    // One reference was the child's; two lookups are of the walk and of the state.
    guest.forget(NodeId(6), 1);
    assert!(guest.getattr(NodeId(6)).is_ok());
    guest.forget(NodeId(6), 1);
    assert_eq!(guest.getattr(NodeId(6)).err(), Some(Errno::STALE));
    let back = migration::decode(&guest.save().unwrap(), migration::Limits { inodes: 100, handles: 100 })
        .unwrap()
        .inodes
        .len();
    assert_eq!(back, 3, "the root, the file, and the new file");
}

#[test]
fn a_removed_open_file_travels_by_handle_and_is_refused_by_path() {
    let dir = tempfile::tempdir().unwrap();
    if !opens_handles(dir.path()) {
        return;
    }
    for config in [Config::default(), by_handles()] {
        let guest = Guest::new(dir.path(), config.clone());
        let (entry, open) = guest.create(ROOT, "file", OFlags::RDWR).unwrap();
        guest.write(open.fh.into(), 0, b"content").unwrap();
        guest.unlink(ROOT, "file").unwrap();
        if config.migration.mode == Mode::FindPaths {
            let error = guest.save().unwrap_err();
            assert!(error.to_string().contains("--migration-mode=file-handles"), "{error}");
            assert_eq!(guest.read(open.fh.into(), 0, 100).unwrap(), b"content", "the guest goes on here");
            let config = with(Options { on_error: OnError::GuestError, ..config.migration });
            let lossy = Guest::new(dir.path(), config.clone());
            let (_, lost) = lossy.create(ROOT, "other", OFlags::RDWR).unwrap();
            lossy.unlink(ROOT, "other").unwrap();
            let there = load(dir.path(), config, &lossy.save().unwrap()).unwrap();
            assert_eq!(there.read(lost.fh.into(), 0, 100).err(), Some(Errno::BADF));
            continue;
        }
        let state = guest.save().unwrap();
        let there = load(dir.path(), config, &state).unwrap();
        let error = load(dir.path(), Config::default(), &state).err().unwrap();
        assert!(matches!(error, Error::HandlesNotAllowed), "{error}");
        drop(guest);
        assert_eq!(there.read(open.fh.into(), 0, 100).unwrap(), b"content");
        assert_eq!(there.getattr(node(&entry)).unwrap().nlink.get(), 0);
        assert!(there.open(node(&entry), OFlags::RDONLY).is_ok(), "it is still known");
    }
}

#[test]
fn what_was_removed_and_is_not_open_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new(dir.path(), Config::default());
    for name in ["removed", "replaced", "new"] {
        let (entry, open) = guest.create(ROOT, name, OFlags::RDWR).unwrap();
        guest.release(node(&entry), open.fh.into());
    }
    let removed = [guest.walk("removed").unwrap(), guest.walk("replaced").unwrap()];
    let kept = guest.walk("new").unwrap();
    guest.unlink(ROOT, "removed").unwrap();
    guest.rename((ROOT, "new"), (ROOT, "replaced"), 0).unwrap();
    let there = load(dir.path(), Config::default(), &guest.save().unwrap()).unwrap();
    for nodeid in removed {
        assert_eq!(there.getattr(nodeid).err(), Some(Errno::STALE));
        there.forget(nodeid, 2);
    }
    assert_eq!(there.walk("replaced").unwrap(), kept);
    // virtiofsd calls it invalid.
    let lost = Inode { location: Location::Lost, ..file(2, b"") };
    let theirs = virtiofsds(vec![lost.clone()], vec![]);
    assert!(load(dir.path(), Config::default(), &migration::encode(&theirs)).is_ok());
    let theirs = virtiofsds(vec![lost], vec![migration::Handle { id: 3, inode: 2, flags: 0 }]);
    assert!(matches!(
        load(dir.path(), Config::default(), &migration::encode(&theirs)).err().unwrap(),
        Error::Lost { inode: 2, .. }
    ));
}

#[test]
fn a_handle_that_leads_nowhere_is_left_behind_unless_all_do() {
    let dir = tempfile::tempdir().unwrap();
    if !opens_handles(dir.path()) {
        return;
    }
    fs::write(dir.path().join("file"), "").unwrap();
    let guest = Guest::new(dir.path(), by_handles());
    guest.walk("file").unwrap();
    let bytes = guest.save().unwrap();
    let mut state = migration::decode(&bytes, migration::Limits { inodes: 10, handles: 10 }).unwrap();
    let mut gone = state.inodes[1].clone();
    let Location::Handle(handle) = &mut gone.location else { panic!("{gone:?}") };
    handle.bytes = handle.bytes.iter().map(|byte| !byte).collect();
    gone.id += 32;
    state.inodes.push(gone);
    assert!(load(dir.path(), by_handles(), &migration::encode(&state)).is_ok());
    state.inodes.remove(1);
    let error = load(dir.path(), by_handles(), &migration::encode(&state)).err().unwrap();
    assert!(matches!(error, Error::Lost { cause: Errno::STALE, .. }), "{error}");
}

#[test]
fn paths_of_the_source_do_not_leave_the_share() {
    let outside = tempfile::tempdir().unwrap();
    let share = outside.path().join("share");
    fs::create_dir(&share).unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("..", share.join("up")).unwrap();
    for path in [b"../secret".as_slice(), b"/etc/passwd", b"up/secret", b"nothing", b"", b"a\0b"] {
        let state = virtiofsds(vec![file(2, path)], vec![]);
        let error = load(&share, Config::default(), &migration::encode(&state)).err().unwrap();
        assert!(matches!(error, Error::Lost { inode: 2, .. }), "{path:?}: {error}");
    }
    // The link itself may be known.
    assert!(load(&share, Config::default(), &migration::encode(&virtiofsds(vec![file(2, b"up")], vec![]))).is_ok());
}

#[test]
fn a_file_that_was_replaced_is_noticed_by_its_handle() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "old").unwrap();
    let config = with(Options { verify_handles: true, ..Options::default() });
    let guest = Guest::new(dir.path(), config.clone());
    guest.walk("file").unwrap();
    let state = guest.save().unwrap();
    let limits = migration::Limits { inodes: 10, handles: 10 };
    if migration::decode(&state, limits).unwrap().inodes.iter().all(|inode| inode.handle.is_none()) {
        return println!("SKIPPED: the file system has no file handles");
    }
    assert!(load(dir.path(), Config::default(), &state).is_ok());
    fs::write(dir.path().join("new"), "new").unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("file")).unwrap();
    let error = load(dir.path(), Config::default(), &state).err().unwrap();
    assert!(matches!(error, Error::Lost { cause: Errno::STALE, .. }), "{error}");
}

#[test]
fn what_was_moved_out_of_the_share_and_is_not_open_is_left_behind() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("file"), "x").unwrap();
    let guest = Guest::new(dir.path(), Config::default());
    guest.walk("file").unwrap();
    fs::rename(dir.path().join("file"), elsewhere.path().join("file")).unwrap();
    let state = guest.save().unwrap();
    let limits = migration::Limits { inodes: 10, handles: 10 };
    assert_eq!(migration::decode(&state, limits).unwrap().inodes.len(), 1, "the root alone");
    assert!(load(dir.path(), Config::default(), &state).is_ok());
}

#[test]
fn hostile_states_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    let child = |id, parent| Inode {
        id,
        refcount: u64::MAX,
        location: Location::Child { parent, name: Cow::Borrowed(b"dir".as_slice()) },
        handle: None,
    };
    let circle = virtiofsds(vec![child(2, 3), child(3, 2)], vec![]);
    let itself = virtiofsds(vec![child(2, 2)], vec![]);
    let orphan = virtiofsds(vec![child(2, 9)], vec![]);
    for state in [circle, itself, orphan] {
        let error = load(dir.path(), Config::default(), &migration::encode(&state)).err().unwrap();
        assert!(matches!(error, Error::Malformed(_)), "{error}");
    }
    let many = virtiofsds(vec![file(2, b"dir"), file(3, b"dir")], vec![]);
    let config = Config { max_inodes: 1, ..Config::default() };
    let error = load(dir.path(), config, &migration::encode(&many)).err().unwrap();
    assert!(matches!(error, Error::TooMany { what: "inodes", count: 3, limit: 2 }), "{error}");
    let twice = load(dir.path(), Config::default(), &migration::encode(&many)).unwrap();
    assert!(twice.getattr(NodeId(2)).is_ok() && twice.getattr(NodeId(3)).is_ok(), "two numbers of one inode");
    // Numbers that are used up soon would let a slot for each inode pile up.
    for next_inode in [u64::MAX, 0xffff_ffff_0000_0000] {
        let state = State { next_inode, ..virtiofsds(vec![], vec![]) };
        let error = load(dir.path(), Config::default(), &migration::encode(&state)).err().unwrap();
        assert!(error.to_string().contains("leave too few"), "{error}");
    }
    // A device is not opened, whatever the source says.
    let handle = FileHandle { mount: 1, type_: 1, bytes: Cow::Borrowed(&[1; 8]) };
    let inode = Inode { location: Location::Handle(handle), ..file(2, b"") };
    let state = State { mounts: vec![(1, "../..".into())], ..virtiofsds(vec![inode], vec![]) };
    let error = load(dir.path(), by_handles(), &migration::encode(&state)).err().unwrap();
    assert!(matches!(error, Error::Lost { cause: Errno::NODEV, .. }), "{error}");
}

#[test]
fn features_that_are_not_allowed_here_and_things_that_do_not_travel_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let writeback = Config { writeback: true, ..Config::default() };
    let state = Guest::new(dir.path(), writeback).save().unwrap();
    let error = load(dir.path(), Config::default(), &state).err().unwrap();
    assert!(matches!(error, Error::Features(flags) if flags == InitFlags::WRITEBACK_CACHE), "{error}");
    let mut theirs = virtiofsds(vec![], vec![]);
    theirs.negotiated.posix_acl = true;
    let error = load(dir.path(), Config::default(), &migration::encode(&theirs)).err().unwrap();
    assert!(matches!(error, Error::Features(flags) if flags.contains(InitFlags::POSIX_ACL)), "{error}");
    let mut hidden = HiddenPaths::default();
    hidden.hide_name(b"hidden");
    let error = Guest::new(dir.path(), Config { hidden, ..Config::default() }).save().err().unwrap();
    assert!(matches!(error, Error::Obstacle(_)), "{error}");
    let flock = Guest::new(dir.path(), Config { flock: true, ..Config::default() });
    assert!(flock.save().is_ok(), "nothing is open");
    flock.create(ROOT, "file", OFlags::RDWR).unwrap();
    assert!(matches!(flock.save().err().unwrap(), Error::Refused(_)));
}

#[test]
fn without_a_session_there_is_none_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new(dir.path(), Config { cache: CachePolicy::Never, ..Config::default() });
    guest.tell(Opcode::Destroy, ROOT, &[]).unwrap();
    let there = load(dir.path(), Config::default(), &guest.save().unwrap()).unwrap();
    assert_eq!(there.lookup(ROOT, "x").err(), Some(Errno::NOTCONN));
    assert!(there.initialise(InitFlags::all()).is_ok());
    let _: EntryOut = there.mkdir(ROOT, "dir").unwrap();
}

#[test]
fn a_state_for_another_process_of_this_host_is_not_loaded_from_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let carried = vec![migration::Carried::Inode(5)];
    let state = State { carried, ..virtiofsds(vec![file(5, b"file")], vec![]) };
    let error = load(dir.path(), Config::default(), &migration::encode(&state)).err().unwrap();
    assert!(matches!(error, Error::Malformed(_)), "{error}");
}

#[test]
fn locks_of_another_host_are_taken_only_if_the_options_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let waiting = vec![migration::WaitingRequest { queue: 1, head: 0 }];
    let state = migration::encode(&State { waiting, ..virtiofsds(vec![], vec![]) });
    let error = load(dir.path(), Config::default(), &state).err().unwrap();
    assert!(error.to_string().contains("--migration-locks=carry"), "{error}");
    let carries = with(Options { carries_locks: true, ..Options::default() });
    assert!(load(dir.path(), carries, &state).is_ok());
}
