use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt as _},
};

use rustix::fs::{OFlags, StatxFlags};
use transom_wire::{
    NodeId, Opcode,
    attr::AttrOut,
    ops::{
        access::AccessIn,
        getattr::{GETATTR_FH, GetattrIn},
        ioctl::{IoctlIn, IoctlOut},
        setattr::SetattrValid,
        statfs::StatfsOut,
        statx::{StatxIn, StatxOut},
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{each_way, each_way_with, guest::Guest};
use crate::{
    Errno,
    passthrough::{CachePolicy, Config},
};

const ROOT: NodeId = NodeId::ROOT;

#[test]
fn attributes_are_those_of_the_host() {
    each_way_with(Config { birth_times: true, ..Config::default() }, |guest, dir| {
        fs::write(dir.join("file"), vec![1; 10_000]).unwrap();
        let nodeid = guest.walk("file").unwrap();
        guest.fs().inodes.close_all();
        let (attr, host) = (guest.getattr(nodeid).unwrap(), dir.join("file").metadata().unwrap());
        assert_eq!((attr.ino.get(), attr.size.get(), attr.blocks.get()), (host.ino(), host.size(), host.blocks()));
        assert_eq!((attr.mode.get(), attr.nlink.get()), (host.mode(), host.nlink() as u32));
        assert_eq!((attr.uid.get(), attr.gid.get()), (host.uid(), host.gid()));
        assert_eq!((attr.mtime.get() as i64, i64::from(attr.mtimensec.get())), (host.mtime(), host.mtime_nsec()));
        assert_eq!((attr.ctime.get() as i64, i64::from(attr.ctimensec.get())), (host.ctime(), host.ctime_nsec()));
        assert_eq!(u64::from(attr.blksize.get()), host.blksize());
        let root = guest.getattr(ROOT).unwrap();
        assert_eq!(root.ino.get(), dir.metadata().unwrap().ino());
        let arg = StatxIn { sx_mask: u32::MAX.into(), ..StatxIn::new_zeroed() };
        let statx: StatxOut = guest.ask(Opcode::Statx, nodeid, &[arg.as_bytes()]).unwrap();
        assert_eq!((statx.stat.ino.get(), u32::from(statx.stat.mode.get())), (host.ino(), host.mode()));
        assert_eq!(statx.stat.ctime.tv_sec.get(), host.ctime());
    });
}

#[test]
fn the_time_of_birth_is_told_where_it_costs_nothing_or_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let told = |cache, birth_times| {
        let guest = Guest::new(dir.path(), Config { cache, birth_times, ..Config::default() });
        let arg = StatxIn { sx_mask: u32::MAX.into(), ..StatxIn::new_zeroed() };
        guest.ask::<StatxOut>(Opcode::Statx, ROOT, &[arg.as_bytes()]).map(|out| out.stat.btime.tv_sec.get() > 0)
    };
    assert_eq!(told(CachePolicy::Auto, false), Err(Errno::NOSYS));
    assert_eq!(told(CachePolicy::Always, false), Err(Errno::NOSYS));
    assert_eq!(told(CachePolicy::Never, false), told(CachePolicy::Auto, true));
    assert!(told(CachePolicy::Never, false).is_ok());
}

#[test]
fn a_guest_that_does_not_ask_for_the_time_of_birth_is_told_the_attributes_of_statx() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new(dir.path(), Config::default());
    let arg = StatxIn { sx_mask: StatxFlags::BASIC_STATS.bits().into(), ..StatxIn::new_zeroed() };
    let out: StatxOut = guest.ask(Opcode::Statx, ROOT, &[arg.as_bytes()]).unwrap();
    assert_eq!(out.stat.ino.get(), dir.path().metadata().unwrap().ino());
    assert_ne!(out.stat.attributes_mask.get(), 0);
}

#[test]
fn each_attribute_is_set_and_the_others_stay() {
    each_way(|guest, dir| {
        let path = dir.join("file");
        fs::write(&path, "0123456789").unwrap();
        let nodeid = guest.walk("file").unwrap();
        guest.fs().inodes.close_all();
        let attr = guest.setattr(nodeid, SetattrValid::MODE, |arg| arg.mode = 0o104_751.into()).unwrap();
        assert_eq!((attr.mode.get() & 0o7777, path.metadata().unwrap().mode() & 0o7777), (0o4751, 0o4751));
        let attr = guest.setattr(nodeid, SetattrValid::SIZE, |arg| arg.size = 4.into()).unwrap();
        assert_eq!((attr.size.get(), fs::read(&path).unwrap()), (4, b"0123".to_vec()));
        // Both times, one of them to the present.
        let attr = guest.setattr(nodeid, SetattrValid::ATIME | SetattrValid::MTIME | SetattrValid::ATIME_NOW, |arg| {
            (arg.mtime, arg.mtimensec) = (u64::MAX.into(), 5.into());
        });
        assert_eq!((attr.unwrap().mtime.get() as i64, path.metadata().unwrap().mtime_nsec()), (-1, 5));
        assert!(path.metadata().unwrap().atime() > 1_000_000_000);
        guest.setattr(nodeid, SetattrValid::ATIME, |arg| arg.atime = 77.into()).unwrap();
        assert_eq!((path.metadata().unwrap().atime(), path.metadata().unwrap().mtime()), (77, -1));
        let too_many = guest.setattr(nodeid, SetattrValid::ATIME, |arg| arg.atimensec = 1_000_000_000.into());
        assert_eq!(too_many.err(), Some(Errno::INVAL));
        match guest.setattr(nodeid, SetattrValid::UID | SetattrValid::GID, |arg| {
            (arg.uid, arg.gid) = (1234.into(), 5678.into());
        }) {
            Err(Errno::PERM) => println!("SKIPPED: giving a file away needs CAP_CHOWN"),
            attr => assert_eq!((attr.as_ref().unwrap().uid.get(), attr.unwrap().gid.get()), (1234, 5678)),
        }
        let nobody = guest.setattr(nodeid, SetattrValid::UID, |arg| arg.uid = u32::MAX.into());
        assert_eq!(nobody.err(), Some(Errno::INVAL));
    });
}

#[test]
fn an_open_file_is_truncated_through_itself() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "0123456789").unwrap();
        let nodeid = guest.walk("file").unwrap();
        let (reader, writer) = (guest.open(nodeid, OFlags::RDONLY).unwrap(), guest.open(nodeid, OFlags::RDWR).unwrap());
        let truncate = |fh: transom_wire::Handle, size: u64| {
            guest.setattr(nodeid, SetattrValid::SIZE | SetattrValid::FH, |arg| {
                (arg.fh, arg.size) = (fh.into(), size.into());
            })
        };
        assert_eq!(truncate(writer, 3).unwrap().size.get(), 3);
        assert_eq!(truncate(reader, 1).err(), Some(Errno::INVAL));
        assert_eq!(truncate(transom_wire::Handle(3), 1).err(), Some(Errno::BADF));
        assert_eq!(truncate(writer, u64::MAX).err(), Some(Errno::INVAL));
        fs::remove_file(dir.join("file")).unwrap();
        let arg = GetattrIn { getattr_flags: GETATTR_FH.into(), dummy: 0.into(), fh: reader.into() };
        let out: AttrOut = guest.ask(Opcode::Getattr, nodeid, &[arg.as_bytes()]).unwrap();
        assert_eq!((out.attr.size.get(), out.attr.nlink.get()), (3, 0));
    });
}

#[test]
fn validity_follows_the_cache_policy() {
    let cases =
        [(CachePolicy::Never, 0), (CachePolicy::Auto, 1), (CachePolicy::Metadata, 86400), (CachePolicy::Always, 86400)];
    for (cache, seconds) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let guest = Guest::new(dir.path(), Config { cache, ..Config::default() });
        let entry = guest.lookup(ROOT, "file").unwrap();
        assert_eq!((entry.entry_valid.get(), entry.attr_valid.get()), (seconds, seconds), "{cache:?}");
        let out: AttrOut = guest.ask(Opcode::Getattr, ROOT, &[GetattrIn::new_zeroed().as_bytes()]).unwrap();
        assert_eq!(out.attr_valid.get(), seconds, "{cache:?}");
        assert_eq!(guest.lookup(ROOT, "absent").err(), Some(Errno::NOENT));
    }
    let dir = tempfile::tempdir().unwrap();
    let negative_timeout = std::time::Duration::from_millis(1500);
    let guest = Guest::new(dir.path(), Config { negative_timeout, ..Config::default() });
    let absent = guest.lookup(ROOT, "absent").unwrap();
    assert_eq!((absent.nodeid.get(), absent.entry_valid.get(), absent.entry_valid_nsec.get()), (0, 1, 500_000_000));
}

#[test]
fn attributes_of_set_id_programs_expire_at_once_and_their_names_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new(dir.path(), Config { cache: CachePolicy::Always, ..Config::default() });
    // Mandatory locks, not rights: set-group-id without execution by the group.
    for (mode, expires) in [(0o4755, true), (0o2755, true), (0o6711, true), (0o2745, false), (0o755, false)] {
        let name = format!("{mode:o}");
        let path = dir.path().join(&name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let seconds = if expires { 0 } else { 86400 };
        let entry = guest.lookup(ROOT, &name).unwrap();
        assert_eq!((entry.entry_valid.get(), entry.attr_valid.get()), (86400, seconds), "{name}");
        let out: AttrOut =
            guest.ask(Opcode::Getattr, entry.nodeid.into(), &[GetattrIn::new_zeroed().as_bytes()]).unwrap();
        assert_eq!(out.attr_valid.get(), seconds, "{name}");
    }
    // Directories pass their group on, and nobody executes them.
    fs::create_dir(dir.path().join("directory")).unwrap();
    fs::set_permissions(dir.path().join("directory"), fs::Permissions::from_mode(0o2775)).unwrap();
    assert_eq!(guest.lookup(ROOT, "directory").unwrap().attr_valid.get(), 86400);
}

#[test]
fn statfs_tells_of_the_hosts_file_system() {
    each_way(|guest, dir| {
        let out: StatfsOut = guest.ask(Opcode::Statfs, ROOT, &[]).unwrap();
        let host = rustix::fs::statvfs(dir).unwrap();
        assert_eq!((out.blocks.get(), u64::from(out.frsize.get())), (host.f_blocks, host.f_frsize));
        assert_eq!(u64::from(out.namelen.get()), host.f_namemax);
    });
}

#[test]
fn access_goes_by_owner_group_and_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    rustix::fs::chmod(&path, 0o640.into()).unwrap();
    let (uid, gid) = (path.metadata().unwrap().uid(), path.metadata().unwrap().gid());
    let mut guest = Guest::new(dir.path(), Config::default());
    let nodeid = guest.walk("file").unwrap();
    let cases = [
        ((4000, 4000), 4, false),
        ((4000, gid), 4, true),
        ((4000, gid), 2, false),
        ((0, 0), 6, true),
        ((0, 0), 1, false),
        ((uid, 4000), 0, true),
        ((0, 0), 0, true),
    ];
    for (caller, mask, is_allowed) in cases {
        guest.caller = caller;
        let arg = AccessIn { mask: mask.into(), padding: 0.into() };
        let expected = if is_allowed { Ok(()) } else { Err(Errno::ACCESS) };
        assert_eq!(guest.tell(Opcode::Access, nodeid, &[arg.as_bytes()]), expected, "{caller:?} {mask}");
    }
    let arg = AccessIn { mask: 8.into(), padding: 0.into() };
    assert_eq!(guest.tell(Opcode::Access, nodeid, &[arg.as_bytes()]), Err(Errno::INVAL));
}

#[test]
fn inode_flags_are_read_and_set_and_no_other_ioctl_reaches_the_host() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "").unwrap();
        let nodeid = guest.walk("file").unwrap();
        let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
        let ioctl = |cmd: u32, data: &[u8], out_size: u32| {
            let mut arg = IoctlIn::new_zeroed();
            (arg.fh, arg.cmd, arg.in_size) = (fh.into(), cmd.into(), (data.len() as u32).into());
            arg.out_size = out_size.into();
            let answer = guest.call(Opcode::Ioctl, nodeid, &[arg.as_bytes(), data], 16 + out_size as usize)?;
            Ok::<_, Errno>(answer[size_of::<IoctlOut>()..].to_vec())
        };
        assert_eq!(ioctl(0x5401, &[], 64), Err(Errno::NOTTY), "TCGETS");
        assert_eq!(ioctl(0xc020_660b, &[0; 32], 32), Err(Errno::NOTTY), "FS_IOC_FIEMAP");
        const NOATIME: u32 = 0x80;
        let before = match ioctl(0x8008_6601, &[], 4) {
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => return println!("SKIPPED: no inode flags here"),
            flags => u32::read_from_bytes(&flags.unwrap()[..]).unwrap(),
        };
        ioctl(0x4008_6602, (before | NOATIME).as_bytes(), 0).unwrap();
        assert_eq!(ioctl(0x8008_6601, &[], 4).unwrap(), (before | NOATIME).as_bytes());
        let xattr = ioctl(0x801c_581f, &[], 28).unwrap();
        assert_eq!(u32::read_from_prefix(&xattr).unwrap().0 & 0x40, 0x40, "FS_XFLAG_NOATIME");
        ioctl(0x401c_5820, &[0; 28], 0).unwrap();
        assert_eq!(ioctl(0x8008_6601, &[], 4).unwrap()[0] & NOATIME as u8, 0);
        assert_eq!(ioctl(0x8008_6601, &[], 3), Err(Errno::INVAL), "no room for the answer");
        assert_eq!(ioctl(0x4008_6602, &[0; 3], 0), Err(Errno::INVAL));
    });
}
