//! What a guest can add to a share with a quota, on the file systems that this machine has for temporary files.
//!
//! `quota_model_test.rs` has the property. The oracle is the host's file system: what its inodes take, those that have
//! lost their names and are still open among them, beyond what they took before the guest came.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use rustix::fs::{FallocateFlags, OFlags, fstat};
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::EntryOut,
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        fallocate::FallocateIn,
        link::LinkIn,
        mknod::MknodIn,
        setattr::SetattrValid,
        statfs::StatfsOut,
        xattr::SetxattrIn,
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::guest::{Guest, node};
use crate::{
    Errno,
    passthrough::{Config, QuotaLimits, handles::Open},
};

const ROOT: NodeId = NodeId::ROOT;
pub(super) const LIMIT: u64 = 4 << 20;
/// What the last request may not use: the greatest of a request's own blocks that no test can predict.
const SLACK: u64 = 64 << 10;
const BLOCK: usize = 64 << 10;

/// Runs `case` on a disk and in memory, where these are.
fn each_place(files: Option<u64>, case: impl Fn(&Guest, &Path)) {
    for place in ["/var/tmp", "/dev/shm"] {
        let Ok(dir) = tempfile::tempdir_in(place) else {
            println!("SKIPPED: {place} cannot be written");
            continue;
        };
        println!("in {place}");
        case(&guest(dir.path(), files), dir.path());
    }
}

pub(super) fn guest(dir: &Path, files: Option<u64>) -> Guest {
    let quota = Some(QuotaLimits { bytes: LIMIT, files });
    Guest::new(dir, Config { quota, xattr: true, ..Config::default() })
}

/// Returns what the inodes of a tree take, and those that the guest has open; by number, so that each counts once.
pub(super) fn taken(guest: &Guest, dir: &Path) -> u64 {
    fn walk(dir: &Path, taken: &mut HashMap<u64, u64>) {
        let found = fs::symlink_metadata(dir).unwrap();
        taken.insert(found.ino(), found.blocks() * 512);
        if found.is_dir() {
            fs::read_dir(dir).unwrap().for_each(|entry| walk(&entry.unwrap().path(), taken));
        }
    }
    let mut sizes = HashMap::new();
    walk(dir, &mut sizes);
    for (_, open) in guest.fs().handles.all() {
        if let Open::File(file) = open {
            let stat = fstat(&file.fd).unwrap();
            sizes.insert(stat.st_ino, stat.st_blocks as u64 * 512);
        }
    }
    sizes.values().sum()
}

pub(super) fn used(guest: &Guest) -> u64 {
    guest.fs().quota_gauges().unwrap().bytes
}

fn fill(guest: &Guest, fh: Handle, from: u64) -> u64 {
    let data = vec![1; BLOCK];
    let mut at = from;
    while guest.write(fh, at, &data).is_ok() {
        at += data.len() as u64;
    }
    assert_eq!(guest.write(fh, at, &data), Err(Errno::NOSPC));
    at - from
}

pub(super) fn fallocate(
    guest: &Guest,
    nodeid: NodeId,
    fh: Handle,
    mode: FallocateFlags,
    len: u64,
) -> Result<(), Errno> {
    let mut arg = FallocateIn::new_zeroed();
    (arg.fh, arg.length, arg.mode) = (fh.into(), len.into(), mode.bits().into());
    guest.tell(Opcode::Fallocate, nodeid, &[arg.as_bytes()])
}

pub(super) fn link(guest: &Guest, old: NodeId, name: &str) -> Result<EntryOut, Errno> {
    let arg = LinkIn { oldnodeid: old.into() };
    guest.ask(Opcode::Link, ROOT, &[arg.as_bytes(), name.as_bytes(), b"\0"])
}

fn file(guest: &Guest, name: &str) -> (NodeId, Handle) {
    let (entry, open) = guest.create(ROOT, name, OFlags::RDWR | OFlags::EXCL).unwrap();
    (node(&entry), open.fh.into())
}

#[test]
fn a_guest_can_add_the_quota_and_no_more_and_freed_space_is_usable_again() {
    each_place(None, |guest, dir| {
        let before = taken(guest, dir);
        let (a, fh) = file(guest, "a");
        for _ in 0..3 {
            let written = fill(guest, fh, 0);
            assert!(written + 2 * SLACK + BLOCK as u64 >= LIMIT, "{written} bytes of {LIMIT}");
            assert!(taken(guest, dir) - before <= LIMIT);
            // What is there can be written again, also when nothing is left.
            assert_eq!(guest.write(fh, 0, &[2; BLOCK]), Ok(BLOCK as u32));
            guest.setattr(a, SetattrValid::SIZE, |arg| arg.size = 0.into()).unwrap();
            assert!(used(guest) <= SLACK);
        }
        // A file without a name counts until nobody has it open and nobody knows it.
        fill(guest, fh, 0);
        guest.unlink(ROOT, "a").unwrap();
        assert!(used(guest) > LIMIT - 3 * SLACK);
        guest.forget(a, 1);
        assert!(used(guest) > LIMIT - 3 * SLACK);
        guest.release(a, fh);
        let (b, fh) = file(guest, "b");
        fill(guest, fh, 0);
        // The same the other way round.
        guest.release(b, fh);
        guest.unlink(ROOT, "b").unwrap();
        assert!(used(guest) > LIMIT / 2);
        guest.forget(b, 1);
        assert!(used(guest) <= SLACK, "{}", used(guest));
        assert!(guest.fs().quota_gauges().unwrap().refused > 0);
    });
}

#[test]
fn blocks_that_the_file_system_takes_when_it_writes_back_are_within_the_limit() {
    each_place(None, |guest, dir| {
        let before = taken(guest, dir);
        // On ext4, each file takes a sixth block once its five pieces are on the disk.
        for number in 0.. {
            let (nodeid, fh) = file(guest, &format!("f{number}"));
            let written = (0..5).map(|piece| guest.write(fh, piece << 20, &[1; 4096]));
            let is_full = written.fold(false, |is_full, written| is_full | (written == Err(Errno::NOSPC)));
            guest.release(nodeid, fh);
            guest.forget(nodeid, 1);
            if is_full {
                break;
            }
        }
        for entry in fs::read_dir(dir).unwrap() {
            fs::File::open(entry.unwrap().path()).unwrap().sync_all().unwrap();
        }
        let added = taken(guest, dir) - before;
        assert!(added <= LIMIT, "{added} bytes were added");
        assert!(added >= LIMIT / 4 * 3, "{added} bytes were added");
    });
}

#[test]
fn what_was_there_before_does_not_count_and_its_growth_does() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(dir.path().join("old"), vec![1; LIMIT as usize * 2]).unwrap();
    let guest = guest(dir.path(), None);
    let old = guest.walk("old").unwrap();
    let fh = guest.open(old, OFlags::RDWR).unwrap();
    assert_eq!(guest.write(fh, 0, &[2; BLOCK]), Ok(BLOCK as u32));
    assert_eq!(used(&guest), 0);
    // Shrunk and written again, it takes what it took.
    guest.setattr(old, SetattrValid::SIZE, |arg| arg.size = 0.into()).unwrap();
    let written = fill(&guest, fh, 0);
    assert!((LIMIT * 3 - 2 * SLACK - BLOCK as u64..=LIMIT * 3).contains(&written), "{written}");
    // The guest cannot use the space of what it did not add.
    guest.release(old, fh);
    guest.unlink(ROOT, "old").unwrap();
    guest.forget(old, 1);
    assert!(used(&guest) <= SLACK);
    let (_, fh) = file(&guest, "new");
    assert!(fill(&guest, fh, 0) <= LIMIT);
}

#[test]
fn attributes_of_what_was_there_before_take_nothing() {
    const FILES: u64 = LIMIT / 4096;
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    (0..FILES).for_each(|number| fs::write(dir.path().join(format!("old{number}")), [1; 20 << 10]).unwrap());
    let guest = guest(dir.path(), None);
    for number in 0..FILES {
        let old = guest.walk(&format!("old{number}")).unwrap();
        guest.setattr(old, SetattrValid::MTIME, |_| ()).unwrap();
        guest.forget(old, 1);
    }
    let (_, fh) = file(&guest, "new");
    assert!(fill(&guest, fh, 0) >= LIMIT / 2);
}

#[test]
fn holes_preallocation_copies_and_attributes_count_as_what_they_take() {
    each_place(None, |guest, dir| {
        let before = taken(guest, dir);
        let (a, fh) = file(guest, "a");
        // A long file of holes costs nothing, and filling them does.
        guest.setattr(a, SetattrValid::SIZE, |arg| arg.size = (1 << 40).into()).unwrap();
        assert!(used(guest) <= SLACK);
        let mut at = 0;
        while guest.write(fh, at, &[1; 4096]).is_ok() {
            at += 1 << 30;
        }
        assert!(taken(guest, dir) - before <= LIMIT);
        assert!(used(guest) >= LIMIT - 4 * SLACK, "{}", used(guest));
        guest.setattr(a, SetattrValid::SIZE, |arg| arg.size = 0.into()).unwrap();

        let keep = FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(guest, a, fh, keep, LIMIT + 1), Err(Errno::NOSPC));
        assert_eq!(fallocate(guest, a, fh, keep, 1 << 62), Err(Errno::NOSPC));
        assert_eq!(fallocate(guest, a, fh, keep, LIMIT / 2), Ok(()));
        assert!(used(guest) >= LIMIT / 2);
        assert_eq!(fallocate(guest, a, fh, keep, LIMIT - SLACK), Err(Errno::NOSPC));

        assert_eq!(guest.write(fh, 0, &[3; BLOCK]), Ok(BLOCK as u32));
        let (b, to) = file(guest, "b");
        let mut copied = 0;
        let failed = loop {
            let mut arg = CopyFileRangeIn::new_zeroed();
            (arg.fh_in, arg.nodeid_out, arg.fh_out) = (fh.into(), b.into(), to.into());
            (arg.off_out, arg.len) = (copied.into(), (BLOCK as u64).into());
            match guest.ask::<CopyFileRangeOut>(Opcode::CopyFileRange64, a, &[arg.as_bytes()]) {
                Ok(out) => copied += out.bytes_copied.get(),
                Err(errno) => break errno,
            }
        };
        assert_eq!(failed, Errno::NOSPC);
        assert!(taken(guest, dir) - before <= LIMIT);
        assert!(copied >= LIMIT / 2 - 4 * SLACK, "{copied}");

        // Another name adds nothing; a value does where the file system says so.
        let with_links = used(guest);
        assert_eq!(guest.write(to, 0, b"x"), Ok(1));
        let mut arg = SetxattrIn::new_zeroed();
        arg.size = (60_u32 << 10).into();
        let value = vec![1; 60 << 10];
        let set = guest.tell(Opcode::Setxattr, b, &[arg.as_bytes(), b"user.a\0", &value]);
        assert!(set.is_err(), "{set:?}");
        assert_eq!(used(guest), with_links);
        guest.setattr(b, SetattrValid::SIZE, |arg| arg.size = 0.into()).unwrap();
        link(guest, b, "c").unwrap();
        guest.unlink(ROOT, "b").unwrap();
        assert!(fill(guest, to, 0) > LIMIT / 4);
        assert!(taken(guest, dir) - before <= LIMIT);
    });
}

#[test]
fn a_request_for_more_than_there_can_be_is_refused_in_an_overlay_too() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), [1; BLOCK]).unwrap();
    let quota = Some(QuotaLimits { bytes: LIMIT, files: None });
    let guest = Guest::new(dir.path(), Config { quota, is_layered: true, ..Config::default() });
    // Open for reading, so that the overlay has not copied it, and its copy counts on top of the length.
    let entry = guest.lookup(ROOT, "file").unwrap();
    let fh = guest.open(node(&entry), OFlags::RDONLY).unwrap();
    assert_eq!(fallocate(&guest, node(&entry), fh, FallocateFlags::empty(), u64::MAX), Err(Errno::NOSPC));
    assert_eq!(used(&guest), 0);
}

#[test]
fn a_file_that_another_replaces_and_one_that_never_had_a_name_are_given_back() {
    each_place(None, |guest, dir| {
        let before = taken(guest, dir);
        for round in 0..20 {
            let name = format!("f{round}");
            let (nodeid, fh) = file(guest, &name);
            fallocate(guest, nodeid, fh, FallocateFlags::empty(), LIMIT / 3).unwrap();
            guest.release(nodeid, fh);
            guest.forget(nodeid, 1);
            guest.rename((ROOT, &name), (ROOT, "last"), 0).unwrap();

            let (entry, open) = match guest.tmpfile(ROOT) {
                Err(Errno::OPNOTSUPP) => continue,
                made => made.unwrap(),
            };
            fallocate(guest, node(&entry), open.fh.into(), FallocateFlags::empty(), LIMIT / 3).unwrap();
            // Unknown first, then closed.
            guest.forget(node(&entry), 1);
            assert!(used(guest) >= LIMIT / 3 * 2);
            guest.release(node(&entry), open.fh.into());
        }
        assert!(taken(guest, dir) - before <= LIMIT);
        assert!(used(guest) <= LIMIT / 3 + SLACK);
    });
}

#[test]
fn files_are_counted_whatever_they_are() {
    each_place(Some(10), |guest, dir| {
        for number in 0..5 {
            guest.mkdir(ROOT, &format!("d{number}")).unwrap();
            file(guest, &format!("f{number}"));
        }
        assert_eq!(guest.mkdir(ROOT, "more").map(drop), Err(Errno::NOSPC));
        assert_eq!(guest.create(ROOT, "more", OFlags::RDWR).map(drop), Err(Errno::NOSPC));
        assert_eq!(guest.tmpfile(ROOT).map(drop), Err(Errno::NOSPC));
        assert_eq!(
            guest.ask::<EntryOut>(Opcode::Symlink, ROOT, &[b"more\0", b"target\0"]).map(drop),
            Err(Errno::NOSPC)
        );
        // One that is there can be opened, and another name is no other file.
        guest.create(ROOT, "f0", OFlags::RDWR).unwrap();
        link(guest, guest.walk("f0").unwrap(), "another").unwrap();
        let statfs: StatfsOut = guest.ask(Opcode::Statfs, ROOT, &[]).unwrap();
        assert_eq!((statfs.files.get(), statfs.ffree.get()), (10, 0));
        assert!(statfs.blocks.get() * u64::from(statfs.frsize.get()) <= LIMIT);
        let d0 = guest.walk("d0").unwrap();
        guest.rmdir(ROOT, "d0").unwrap();
        // `mkdir` and `walk` have both counted a reference.
        guest.forget(d0, 2);
        guest.mkdir(ROOT, "more").unwrap();
        assert!(dir.join("more").is_dir());
    });
}

#[test]
fn a_session_that_ends_gives_back_what_has_no_name() {
    each_place(None, |guest, _| {
        let ((_, fh), _) = (file(guest, "a"), file(guest, "b"));
        fill(guest, fh, 0);
        guest.unlink(ROOT, "a").unwrap();
        guest.tell(Opcode::Destroy, NodeId(0), &[]).unwrap();
        let gauges = guest.fs().quota_gauges().unwrap();
        assert!(gauges.bytes <= SLACK && gauges.files == 1, "{gauges:?}");
    });
}

/// As the kernel of a guest does in an overlay that it mounts: a white-out, moved to the name.
fn white_out(guest: &Guest, name: &str) -> Result<(), Errno> {
    let mut arg = MknodIn::new_zeroed();
    arg.mode = libc::S_IFCHR.into();
    guest.ask::<EntryOut>(Opcode::Mknod, ROOT, &[arg.as_bytes(), b"#1\0"])?;
    guest.rename((ROOT, "#1"), (ROOT, name), 0)
}

#[test]
fn what_is_full_can_be_removed_from_an_upper_layer_too() {
    let dir = tempfile::tempdir().unwrap();
    // No multiple of a block, so that less is left than a removal reserves.
    let quota = Some(QuotaLimits { bytes: LIMIT - 512, files: Some(10) });
    let fill_up = |config| {
        let guest = Guest::new(dir.path(), config);
        let (nodeid, fh) = file(&guest, "large");
        let mut at = fill(&guest, fh, 0);
        while guest.write(fh, at, b"x").is_ok() {
            at += BLOCK as u64;
        }
        guest.release(nodeid, fh);
        (guest, nodeid)
    };
    let (plain, _) = fill_up(Config { quota, xattr: true, ..Config::default() });
    assert_eq!(white_out(&plain, "lower"), Err(Errno::NOSPC));
    plain.unlink(ROOT, "large").unwrap();
    drop(plain);

    let (guest, large) = fill_up(Config { quota, xattr: true, is_upper_layer: true, ..Config::default() });
    match white_out(&guest, "lower") {
        Err(Errno::PERM) => return println!("SKIPPED: this user cannot make white-outs"),
        outcome => outcome.unwrap(),
    }
    // The file is in the lower layer too.
    white_out(&guest, "large").unwrap();
    assert!(fs::metadata(dir.path().join("large")).unwrap().file_type().is_char_device());
    guest.forget(large, 1);
    assert!(used(&guest) < LIMIT / 2, "there is space again");
    guest.mkdir(ROOT, "directory").unwrap();

    // It is no way around the limits.
    let made = (0..).take_while(|number| guest.mkdir(ROOT, &format!("{number}")).is_ok()).count();
    assert!(made <= 10 + 4096, "{made}");
    assert_eq!(guest.create(ROOT, "more", OFlags::RDWR).err(), Some(Errno::NOSPC));
}
