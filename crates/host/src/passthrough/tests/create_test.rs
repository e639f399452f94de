use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
};

use rustix::fs::OFlags;
use transom_wire::{
    NodeId, Opcode,
    attr::EntryOut,
    ops::{create::CreateIn, link::LinkIn, mknod::MknodIn},
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    each_way, each_way_with,
    guest::{Guest, node},
    is_root,
};
use crate::{
    Errno,
    idmap::{IdMap, OwnerMap, Rule},
    passthrough::{Config, Negotiation},
};

const ROOT: NodeId = NodeId::ROOT;

#[test]
fn create_makes_a_file_or_opens_the_one_that_is_there() {
    each_way(|guest, dir| {
        let (entry, open) = guest.create(ROOT, "new", OFlags::RDWR | OFlags::EXCL).unwrap();
        guest.write(open.fh.into(), 0, b"content").unwrap();
        assert_eq!(fs::read(dir.join("new")).unwrap(), b"content");
        assert_eq!(guest.walk("new").unwrap(), node(&entry));
        assert_eq!(guest.getattr(node(&entry)).unwrap().size.get(), 7);
        assert_eq!(guest.create(ROOT, "new", OFlags::RDWR | OFlags::EXCL).err(), Some(Errno::EXIST));
        let (again, open) = guest.create(ROOT, "new", OFlags::RDWR).unwrap();
        assert_eq!((node(&again), again.attr.size.get()), (node(&entry), 7));
        assert_eq!(guest.read(open.fh.into(), 0, 10).unwrap(), b"content");
        let (again, _) = guest.create(ROOT, "new", OFlags::RDWR | OFlags::TRUNC).unwrap();
        assert_eq!((node(&again), again.attr.size.get()), (node(&entry), 0));
        assert_eq!(fs::read(dir.join("new")).unwrap(), b"");
        assert_eq!(guest.create(NodeId(9), "x", OFlags::RDWR).err(), Some(Errno::STALE));
    });
}

#[test]
fn create_follows_no_link_and_opens_nothing_but_files() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    each_way(|guest, dir| {
        symlink(&target, dir.join("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), 0o666.into()).unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        for name in ["link", "fifo", "dir"] {
            // The guest believed that the name was absent; it has to look it up again.
            assert_eq!(guest.create(ROOT, name, OFlags::RDWR).err(), Some(Errno::STALE), "{name}");
            assert_eq!(guest.create(ROOT, name, OFlags::RDWR | OFlags::EXCL).err(), Some(Errno::EXIST), "{name}");
        }
        assert!(!target.exists());
        assert_eq!(guest.fs().inode_count(), 0, "no lookup is left over");
    });
}

#[test]
fn all_kinds_of_inodes_are_made() {
    each_way(|guest, dir| {
        let directory = guest.mkdir(ROOT, "dir").unwrap();
        assert_eq!(guest.mkdir(ROOT, "dir").err(), Some(Errno::EXIST));
        let link: EntryOut = guest.ask(Opcode::Symlink, node(&directory), &[b"link\0../anything\0"]).unwrap();
        assert_eq!(fs::read_link(dir.join("dir/link")).unwrap().to_str(), Some("../anything"));
        assert_eq!(link.attr.size.get(), 11);
        let mknod = |name: &[u8], mode: u32, rdev: u32| -> Result<EntryOut, Errno> {
            let arg = MknodIn { mode: mode.into(), rdev: rdev.into(), umask: 0.into(), padding: 0.into() };
            guest.ask(Opcode::Mknod, ROOT, &[arg.as_bytes(), name, b"\0"])
        };
        mknod(b"fifo", libc::S_IFIFO | 0o640, 0).unwrap();
        mknod(b"socket", libc::S_IFSOCK | 0o600, 0).unwrap();
        mknod(b"file", 0o4711, 0).unwrap();
        assert!(dir.join("fifo").metadata().unwrap().file_type().is_fifo());
        assert_eq!(dir.join("fifo").metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert!(dir.join("socket").metadata().unwrap().file_type().is_socket());
        assert!(dir.join("file").metadata().unwrap().is_file());
        assert_eq!(mknod(b"d", libc::S_IFDIR | 0o700, 0).err(), Some(Errno::PERM));
        assert_eq!(mknod(b"l", libc::S_IFLNK | 0o700, 0).err(), Some(Errno::INVAL));
        assert_eq!(mknod(b"?", 0o170000, 0).err(), Some(Errno::INVAL));
        match mknod(b"null", libc::S_IFCHR | 0o666, 0x103) {
            Err(Errno::PERM) => println!("SKIPPED: device files need CAP_MKNOD"),
            entry => {
                assert_eq!(entry.unwrap().attr.rdev.get(), 0x103);
                assert_eq!(dir.join("null").metadata().unwrap().rdev(), rustix::fs::makedev(1, 3));
            }
        }
    });
}

#[test]
fn a_file_without_a_name_can_get_one() {
    each_way(|guest, dir| {
        let (entry, open) = match guest.tmpfile(ROOT) {
            Err(Errno::OPNOTSUPP) => return println!("SKIPPED: no O_TMPFILE here"),
            made => made.unwrap(),
        };
        guest.write(open.fh.into(), 0, b"content").unwrap();
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(node(&entry)).unwrap().size.get(), 7);
        assert_eq!(guest.fs().inodes.pinned_count(), 1);
        let arg = LinkIn { oldnodeid: entry.nodeid };
        let named: EntryOut = guest.ask(Opcode::Link, ROOT, &[arg.as_bytes(), b"name\0"]).unwrap();
        assert_eq!((node(&named), named.attr.nlink.get()), (node(&entry), 1));
        assert_eq!(fs::read(dir.join("name")).unwrap(), b"content");
        assert_eq!(guest.fs().inodes.pinned_count(), 0);
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(node(&entry)).unwrap().size.get(), 7);
    });
}

#[test]
fn what_is_created_belongs_to_the_caller() {
    if !is_root() {
        return println!("SKIPPED: giving files to others needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::chmod(dir.path(), 0o777.into()).unwrap();
    let mut guest = Guest::new(dir.path(), Config::default());
    guest.caller = (1234, 5678);
    let (entry, open) = guest.create_mode(ROOT, "file", OFlags::RDWR, 0o600).unwrap();
    assert_eq!((entry.attr.uid.get(), entry.attr.gid.get(), entry.attr.mode.get() & 0o7777), (1234, 5678, 0o600));
    guest.write(open.fh.into(), 0, b"x").unwrap();
    let directory = guest.mkdir(ROOT, "dir").unwrap();
    assert_eq!((directory.attr.uid.get(), directory.attr.gid.get()), (1234, 5678));
    let link: EntryOut = guest.ask(Opcode::Symlink, ROOT, &[b"link\0x\0"]).unwrap();
    assert_eq!((link.attr.uid.get(), link.attr.gid.get()), (1234, 5678));
    // The thread has its own rights again.
    assert!(is_root());
    guest.caller = (u32::MAX, 0);
    assert_eq!(guest.mkdir(ROOT, "nobody's").err(), Some(Errno::INVAL));
}

#[test]
fn ids_are_translated_both_ways() {
    if !is_root() {
        return println!("SKIPPED: giving files to others needs root");
    }
    let rules =
        [Rule::Map { guest: 0, host: 100_000, count: 1000 }, Rule::ForbidGuest { guest: 2000, count: u32::MAX - 2000 }];
    let owners = OwnerMap { uids: IdMap::new(&rules).unwrap(), gids: IdMap::new(&rules).unwrap() };
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::chmod(dir.path(), 0o777.into()).unwrap();
    let mut guest = Guest::new(dir.path(), Config { owners, ..Config::default() });
    guest.caller = (5, 6);
    let (entry, _) = guest.create(ROOT, "file", OFlags::RDWR).unwrap();
    assert_eq!((entry.attr.uid.get(), entry.attr.gid.get()), (5, 6));
    let host = dir.path().join("file").metadata().unwrap();
    assert_eq!((host.uid(), host.gid()), (100_005, 100_006));
    let valid = transom_wire::ops::setattr::SetattrValid::UID;
    let attr = guest.setattr(node(&entry), valid, |arg| arg.uid = 7.into()).unwrap();
    assert_eq!((attr.uid.get(), dir.path().join("file").metadata().unwrap().uid()), (7, 100_007));
    assert_eq!(guest.setattr(node(&entry), valid, |arg| arg.uid = 2000.into()).err(), Some(Errno::PERM));
    guest.caller = (2000, 6);
    assert_eq!(guest.mkdir(ROOT, "dir").err(), Some(Errno::PERM));
}

#[test]
fn the_umask_counts_on_the_host_where_access_control_lists_are_served() {
    let make = |config: Config| {
        let dir = tempfile::tempdir().unwrap();
        let guest = Guest::new(dir.path(), config);
        let arg = CreateIn { flags: 2.into(), mode: 0o666.into(), umask: 0o027.into(), open_flags: 0.into() };
        guest.call(Opcode::Create, ROOT, &[arg.as_bytes(), b"file\0"], 256).unwrap();
        dir.path().join("file").metadata().unwrap().mode() & 0o777
    };
    // Otherwise the guest has applied the umask, and sends the resulting mode.
    assert_eq!(make(Config::default()), 0o666);
    let config = Config { xattr: true, posix_acl: Negotiation::Always, ..Config::default() };
    assert_eq!(make(config), 0o640);
}

#[test]
fn a_label_is_on_the_file_or_the_file_is_not_there() {
    let config = Config { xattr: true, security_label: Negotiation::Auto, ..Config::default() };
    each_way_with(config, |guest, dir| {
        let create = |name: &[u8], label: &str| {
            // One block of contexts: header, one context of five bytes, its name and its value.
            let mut block = vec![0u8; 16];
            block.extend_from_slice(label.as_bytes());
            block.extend_from_slice(b"\0value");
            block.resize(block.len().next_multiple_of(8), 0);
            block[0] = block.len() as u8;
            (block[4], block[8]) = (1, 5);
            let mut arg = CreateIn::new_zeroed();
            (arg.flags, arg.mode) = (2.into(), 0o644.into());
            guest.call(Opcode::Create, ROOT, &[arg.as_bytes(), name, b"\0", &block], 256)
        };
        match create(b"labelled", "user.label") {
            Err(Errno::OPNOTSUPP) => return println!("SKIPPED: no extended attributes here"),
            made => drop(made.unwrap()),
        }
        let mut value = [0u8; 16];
        let len = rustix::fs::getxattr(dir.join("labelled"), "user.label", &mut value).unwrap();
        assert_eq!(&value[..len], b"value");
        assert!(create(b"unlabelled", "nonsense.label").is_err());
        assert!(!dir.join("unlabelled").exists());
    });
}
