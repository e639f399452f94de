//! The daemon's rights never allow what a caller may not do by itself.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
};

use rustix::fs::OFlags;
use transom_wire::{
    Handle, NodeId, Opcode,
    ops::{
        ioctl::{IoctlIn, IoctlOut},
        open::{OPEN_KILL_SUIDGID, OpenIn, OpenOut},
        setattr::SetattrValid,
        write::WriteFlags,
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    guest::{Guest, node},
    is_root,
};
use crate::{
    Errno,
    credentials::{Credentials, Judge},
    idmap::{HostGid, HostUid, IdMap, OwnerMap, Rule},
    passthrough::Config,
};

const ROOT: NodeId = NodeId::ROOT;
const USER: u32 = 1234;

/// Returns a directory that anybody may write, for tests that need several users.
fn open_to_all() -> Option<tempfile::TempDir> {
    if !is_root() {
        println!("SKIPPED: giving files to others needs root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::chmod(dir.path(), 0o777.into()).unwrap();
    Some(dir)
}

fn put(path: &Path, owner: u32, mode: u32) {
    fs::write(path, "content").unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn create_opens_nothing_that_the_caller_might_not_open() {
    let Some(dir) = open_to_all() else { return };
    let path = dir.path().join("file");
    let mut guest = Guest::new(dir.path(), Config::default());
    let (read, write, both, trunc) = (OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::TRUNC);
    let cases = [
        // Somebody else's file, whatever the mode: only the guest can evaluate groups and lists.
        (0, 0o600, USER, both | trunc, false),
        (0, 0o600, USER, read, false),
        (0, 0o666, USER, both | trunc, false),
        (USER, 0o600, 0, both | trunc, false),
        // The caller's own, by the owner's bits.
        (USER, 0o600, USER, both | trunc, true),
        (USER, 0o400, USER, read, true),
        (USER, 0o400, USER, both, false),
        (USER, 0o400, USER, read | trunc, false),
        (USER, 0o277, USER, write, true),
        (USER, 0o277, USER, read, false),
        (0, 0o644, 0, both, true),
    ];
    for (owner, mode, caller, flags, is_opened) in cases {
        put(&path, owner, mode);
        guest.caller = (caller, caller);
        let what = format!("{caller} opens {mode:o} of {owner} with {flags:?}");
        assert_eq!(guest.create(ROOT, "file", flags | OFlags::EXCL).err(), Some(Errno::EXIST), "{what}");
        match guest.create(ROOT, "file", flags) {
            Ok((entry, open)) => {
                assert!(is_opened, "{what}");
                guest.release(node(&entry), open.fh.into());
                guest.forget(node(&entry), 1);
            }
            Err(errno) => assert!(!is_opened && errno == Errno::STALE, "{what}: {errno}"),
        }
        let is_emptied = is_opened && flags.contains(trunc);
        assert_eq!(fs::read(&path).unwrap().is_empty(), is_emptied, "{what}");
        assert_eq!(guest.fs().inode_count(), 0, "{what}: no lookup is left over");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn create_compares_owners_as_the_guest_sees_them() {
    let Some(dir) = open_to_all() else { return };
    let rules = [Rule::Map { guest: 0, host: 100_000, count: 10_000 }];
    let owners = OwnerMap { uids: IdMap::new(&rules).unwrap(), gids: IdMap::new(&rules).unwrap() };
    let mut guest = Guest::new(dir.path(), Config { owners, ..Config::default() });
    put(&dir.path().join("own"), 100_000 + USER, 0o600);
    put(&dir.path().join("other"), 100_000, 0o600);
    guest.caller = (USER, USER);
    assert!(guest.create(ROOT, "own", OFlags::RDWR).is_ok());
    assert_eq!(guest.create(ROOT, "other", OFlags::RDWR).err(), Some(Errno::STALE));
}

#[test]
fn inode_flags_are_changed_by_root_and_by_the_owner_alone() {
    let Some(dir) = open_to_all() else { return };
    const GETFLAGS: u32 = 0x8008_6601;
    const SETFLAGS: u32 = 0x4008_6602;
    const FSGETXATTR: u32 = 0x801c_581f;
    const FSSETXATTR: u32 = 0x401c_5820;
    let path = dir.path().join("file");
    put(&path, USER, 0o644);
    // To the guest, user 5 owns what belongs to 1234 on the host.
    let rules = [Rule::Map { guest: 5, host: USER, count: 1 }];
    let owners = OwnerMap { uids: IdMap::new(&rules).unwrap(), gids: IdMap::default() };
    for (config, owner, stranger) in [(Config::default(), USER, 5), (Config { owners, ..Config::default() }, 5, USER)] {
        let mut guest = Guest::new(dir.path(), config);
        let nodeid = guest.walk("file").unwrap();
        let fh = guest.open(nodeid, OFlags::RDONLY).unwrap();
        let before = match ioctl(&guest, fh, GETFLAGS, &[], 4) {
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => return println!("SKIPPED: no inode flags here"),
            flags => u32::read_from_bytes(&flags.unwrap()[..]).unwrap(),
        };
        const NOATIME: u32 = 0x80;
        let flags = (before | NOATIME).to_le_bytes();
        let attributes = ioctl(&guest, fh, FSGETXATTR, &[], 28).unwrap();
        for (caller, expected) in [(stranger, Err(Errno::PERM)), (owner, Ok(Vec::new())), (0, Ok(Vec::new()))] {
            guest.caller = (caller, owner);
            assert_eq!(ioctl(&guest, fh, SETFLAGS, &flags, 0), expected, "by {caller}");
            assert_eq!(ioctl(&guest, fh, FSSETXATTR, &attributes, 0), expected, "by {caller}");
        }
        // A guest's kernel passes these on without a check of its own, and does not need them.
        for (request, data, out_size) in [(0x8004_6601, &[][..], 4), (0x4004_6602, &flags[..], 0)] {
            assert_eq!(ioctl(&guest, fh, request, data, out_size), Err(Errno::NOTTY), "{request:#x}");
        }
    }
}

fn ioctl(guest: &Guest, fh: Handle, cmd: u32, data: &[u8], out_size: u32) -> Result<Vec<u8>, Errno> {
    let mut arg = IoctlIn::new_zeroed();
    (arg.fh, arg.cmd, arg.in_size) = (fh.into(), cmd.into(), (data.len() as u32).into());
    arg.out_size = out_size.into();
    let answer = guest.call(Opcode::Ioctl, ROOT, &[arg.as_bytes(), data], size_of::<IoctlOut>() + out_size as usize)?;
    Ok(answer[size_of::<IoctlOut>()..].to_vec())
}

/// Actions of the owner, who is in the file's group, on a file: the host itself is the oracle.
#[test]
fn set_id_bits_go_as_on_the_host() {
    let Some(dir) = open_to_all() else { return };
    let path = dir.path().join("file");
    let set = |mode: u32| put(&path, USER, mode);
    let credentials = Credentials::detect(Judge::Host).unwrap();
    for killpriv_v2 in [false, true] {
        let mut guest = Guest::new(dir.path(), Config { killpriv_v2, ..Config::default() });
        guest.caller = (USER, USER);
        set(0);
        let nodeid = guest.walk("file").unwrap();
        let own = guest.open(nodeid, OFlags::RDWR).unwrap();
        for bits in [0o6644, 0o6744, 0o6654, 0o6754, 0o2644, 0o2654, 0o4644, 0o4755] {
            set(bits);
            {
                let _owner = credentials.assume(HostUid(USER), HostGid(USER), None).unwrap();
                fs::File::options().write(true).truncate(true).open(&path).unwrap();
            }
            let expected = mode(&path);
            let is_killed = |what: &str| assert_eq!(mode(&path), expected, "{what} of {bits:o}, {killpriv_v2}");

            set(bits);
            let open_flags = if killpriv_v2 { OPEN_KILL_SUIDGID } else { 0 };
            let flags = (OFlags::WRONLY | OFlags::TRUNC).bits();
            let arg = OpenIn { flags: flags.into(), open_flags: open_flags.into() };
            let open: OpenOut = guest.ask(Opcode::Open, nodeid, &[arg.as_bytes()]).unwrap();
            guest.release(nodeid, open.fh.into());
            is_killed("OPEN with O_TRUNC");
            if !killpriv_v2 {
                set(bits);
                let (_, open) = guest.create(ROOT, "file", OFlags::WRONLY | OFlags::TRUNC).unwrap();
                guest.release(nodeid, open.fh.into());
                is_killed("CREATE with O_TRUNC");
            }
            if killpriv_v2 {
                set(bits);
                guest.write_with(own, 0, b"x", |arg| arg.write_flags = WriteFlags::KILL_SUIDGID.bits().into()).unwrap();
                is_killed("WRITE");
                set(bits);
                guest.setattr(nodeid, SetattrValid::SIZE | SetattrValid::KILL_SUIDGID, |_| {}).unwrap();
                is_killed("SETATTR of the size");
            }
        }
    }
}
