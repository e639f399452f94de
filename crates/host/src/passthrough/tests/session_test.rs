use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
};

use rustix::fs::OFlags;
use transom_wire::{
    NodeId, Opcode,
    attr::EntryOut,
    ops::{
        init::InitFlags,
        link::LinkIn,
        lk::{FileLock, LK_FLOCK, LkIn, LkOut},
        mknod::MknodIn,
        setattr::SetattrValid,
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    each_way,
    guest::{Guest, node},
};
use crate::{
    Errno,
    passthrough::{CachePolicy, Config, Error, Negotiation, Passthrough},
};

const ROOT: NodeId = NodeId::ROOT;

fn settled(config: Config, offered: InitFlags) -> InitFlags {
    let dir = tempfile::tempdir().unwrap();
    let init = Guest::with_flags(dir.path(), config, offered).init;
    InitFlags::from_bits_retain(u64::from(init.flags.get()) | u64::from(init.flags2.get()) << 32)
}

#[test]
fn what_is_settled_follows_the_configuration_and_the_guest() {
    let all = InitFlags::all();
    let plain = settled(Config::default(), all);
    let optional = [
        (Config { writeback: true, ..Config::default() }, InitFlags::WRITEBACK_CACHE),
        (Config { killpriv_v2: true, ..Config::default() }, InitFlags::HANDLE_KILLPRIV_V2),
        (Config { allow_mmap: true, ..Config::default() }, InitFlags::DIRECT_IO_ALLOW_MMAP),
        (Config { posix_lock: true, ..Config::default() }, InitFlags::POSIX_LOCKS),
        (Config { flock: true, ..Config::default() }, InitFlags::FLOCK_LOCKS),
        (Config { security_label: Negotiation::Auto, ..Config::default() }, InitFlags::SECURITY_CTX),
        (Config { posix_acl: Negotiation::Auto, ..Config::default() }, InitFlags::POSIX_ACL | InitFlags::DONT_MASK),
    ];
    for (config, flags) in optional {
        assert!(!plain.intersects(flags), "{flags:?} without being asked for");
        assert_eq!(settled(config.clone(), all), plain | flags);
        assert_eq!(settled(config, all - flags), plain, "the guest lacks {flags:?}");
    }
    let never = settled(Config { cache: CachePolicy::Never, readdirplus: false, ..Config::default() }, all);
    assert!(!never.intersects(InitFlags::CACHE_SYMLINKS | InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO));
    let one = settled(Config { announce_submounts: false, ..Config::default() }, all);
    assert_eq!(plain - one, InitFlags::SUBMOUNTS);
    // Never offered: features that would make promises that are not kept.
    let unkept = InitFlags::EXPORT_SUPPORT | InitFlags::ALLOW_IDMAP | InitFlags::PASSTHROUGH | InitFlags::HAS_INODE_DAX;
    assert!(!plain.intersects(unkept));
}

#[test]
fn a_guest_that_lacks_what_is_demanded_is_refused() {
    for config in [
        Config { posix_acl: Negotiation::Always, ..Config::default() },
        Config { security_label: Negotiation::Always, ..Config::default() },
    ] {
        let dir = tempfile::tempdir().unwrap();
        let fs = Passthrough::open(dir.path(), config).unwrap();
        assert_eq!(Guest::begin(fs, InitFlags::INIT_EXT).err(), Some(Errno::PROTO));
    }
}

#[test]
fn a_new_session_has_nothing_of_the_old_one() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "").unwrap();
        fs::write(dir.join("gone"), "").unwrap();
        let (file, gone) = (guest.walk("file").unwrap(), guest.walk("gone").unwrap());
        let fh = guest.open(file, OFlags::RDWR).unwrap();
        guest.unlink(ROOT, "gone").unwrap();
        guest.initialise(InitFlags::all()).unwrap();
        assert_eq!((guest.fs().inode_count(), guest.fs().inodes.pinned_count()), (0, 0));
        for nodeid in [file, gone] {
            assert_eq!(guest.getattr(nodeid).err(), Some(Errno::STALE));
        }
        assert_eq!(guest.read(fh, 0, 1).err(), Some(Errno::BADF));
        assert_ne!(guest.walk("file").unwrap(), file);
        assert_eq!(guest.fs().inodes.held_count(), guest.fs().inodes.kept_count());
    });
}

#[test]
fn a_read_only_share_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    let guest = Guest::new(dir.path(), Config { readonly: true, xattr: true, ..Config::default() });
    let file = guest.walk("file").unwrap();
    let rofs = Some(Errno::ROFS);
    assert_eq!(guest.create(ROOT, "new", OFlags::RDWR).err(), rofs);
    assert_eq!(guest.create(ROOT, "file", OFlags::RDONLY).err(), rofs);
    assert_eq!(guest.tmpfile(ROOT).err(), rofs);
    assert_eq!(guest.mkdir(ROOT, "new").err(), rofs);
    assert_eq!(guest.ask::<EntryOut>(Opcode::Symlink, ROOT, &[b"new\0x\0"]).err(), rofs);
    let mknod = MknodIn::new_zeroed();
    assert_eq!(guest.ask::<EntryOut>(Opcode::Mknod, ROOT, &[mknod.as_bytes(), b"new\0"]).err(), rofs);
    let link = LinkIn { oldnodeid: file.into() };
    assert_eq!(guest.ask::<EntryOut>(Opcode::Link, ROOT, &[link.as_bytes(), b"new\0"]).err(), rofs);
    assert_eq!(guest.unlink(ROOT, "file").err(), rofs);
    assert_eq!(guest.rmdir(ROOT, "dir").err(), rofs);
    assert_eq!(guest.rename((ROOT, "file"), (ROOT, "new"), 0).err(), rofs);
    assert_eq!(guest.setattr(file, SetattrValid::MODE, |_| {}).err(), rofs);
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
        assert_eq!(guest.open(file, flags).err(), rofs);
    }
    let xattr = [&[0; 16][..], b"user.a\0"];
    assert_eq!(guest.tell(Opcode::Setxattr, file, &xattr).err(), rofs);
    assert_eq!(guest.tell(Opcode::Removexattr, file, &[b"user.a\0"]).err(), rofs);
    let fh = guest.open(file, OFlags::RDONLY).unwrap();
    assert_eq!(guest.read(fh, 0, 100).unwrap(), b"content");
    assert_eq!(guest.write(fh, 0, b"x").err(), Some(Errno::BADF));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn an_upper_layer_has_white_outs_and_no_hard_links() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    let guest = Guest::new(dir.path(), Config { is_upper_layer: true, xattr: true, ..Config::default() });
    let link = LinkIn { oldnodeid: guest.walk("file").unwrap().into() };
    let linked = guest.ask::<EntryOut>(Opcode::Link, ROOT, &[link.as_bytes(), b"new\0"]);
    assert_eq!(linked.err(), Some(Errno::PERM));
    assert_eq!(guest.tmpfile(ROOT).err(), Some(Errno::NOSYS));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let white_out = rustix::fs::RenameFlags::WHITEOUT.bits();
    guest.rename((ROOT, "file"), (ROOT, "moved"), white_out).unwrap();
    assert_eq!(fs::read(dir.path().join("moved")).unwrap(), b"content");
    let left = fs::metadata(dir.path().join("file")).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0);
}

#[test]
fn a_single_file_is_a_share() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "content").unwrap();
    let guest = Guest::new(file.path(), Config::default());
    let fh = guest.open(ROOT, OFlags::RDWR).unwrap();
    assert_eq!(guest.read(fh, 0, 100).unwrap(), b"content");
    assert_eq!(guest.setattr(ROOT, SetattrValid::SIZE, |_| {}).unwrap().size.get(), 0);
    assert_eq!(guest.lookup(ROOT, "x").err(), Some(Errno::NOTDIR));
    let null = std::path::Path::new("/dev/null");
    assert!(matches!(Passthrough::open(null, Config::default()), Err(Error::Kind(_))));
    let nowhere = Passthrough::open(&file.path().join("x"), Config::default());
    assert!(matches!(nowhere, Err(Error::Open { source: Errno::NOTDIR, .. })));
}

#[test]
fn locks_of_two_owners_meet_on_the_host() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    let config = Config { posix_lock: true, flock: true, ..Config::default() };
    let guest = Guest::new(dir.path(), config);
    let file = guest.walk("file").unwrap();
    let (one, two) = (guest.open(file, OFlags::RDWR).unwrap(), guest.open(file, OFlags::RDWR).unwrap());
    let lock = |fh: transom_wire::Handle, owner: u64, type_: i32, flags: u32| {
        let lk = FileLock { start: 0.into(), end: 9.into(), type_: (type_ as u32).into(), pid: 1.into() };
        LkIn { fh: fh.into(), owner: owner.into(), lk, lk_flags: flags.into(), padding: 0.into() }
    };
    let set = |arg: LkIn| guest.tell(Opcode::Setlk, file, &[arg.as_bytes()]);
    set(lock(one, 1, libc::F_WRLCK, 0)).unwrap();
    assert_eq!(set(lock(two, 2, libc::F_RDLCK, 0)), Err(Errno::AGAIN));
    let found: LkOut = guest.ask(Opcode::Getlk, file, &[lock(two, 2, libc::F_RDLCK, 0).as_bytes()]).unwrap();
    assert_eq!(found.lk.type_.get(), libc::F_WRLCK as u32);
    guest.flush(file, one).unwrap();
    set(lock(two, 2, libc::F_RDLCK, 0)).unwrap_err();
    set(lock(one, 1, libc::F_UNLCK, 0)).unwrap();
    set(lock(two, 2, libc::F_RDLCK, 0)).unwrap();
    set(lock(one, 1, libc::F_WRLCK, LK_FLOCK)).unwrap();
    assert_eq!(set(lock(two, 2, libc::F_WRLCK, LK_FLOCK)), Err(Errno::AGAIN));
    // A lock of the open file description has an owner that no FLUSH names.
    set(lock(two, 2, libc::F_UNLCK, 0)).unwrap();
    set(lock(one, 77, libc::F_WRLCK, 0)).unwrap();
    guest.flush(file, one).unwrap();
    assert_eq!(set(lock(two, 2, libc::F_RDLCK, 0)), Err(Errno::AGAIN));
    guest.release(file, one);
    set(lock(two, 2, libc::F_RDLCK, 0)).unwrap();
    set(lock(two, 2, libc::F_WRLCK, LK_FLOCK)).unwrap();
    assert_eq!(node(&guest.lookup(ROOT, "file").unwrap()), file);
}
