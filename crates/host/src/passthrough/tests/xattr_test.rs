use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use rustix::{
    fs::OFlags,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use transom_wire::{
    NodeId, Opcode,
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        fallocate::FallocateIn,
        init::InitFlags,
        setattr::{SetattrIn, SetattrValid},
        xattr::{GetxattrIn, GetxattrOut, SetxattrIn},
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{each_way_with, guest::Guest, is_root};
use crate::{
    Errno,
    passthrough::{Config, Negotiation},
};

const ROOT: NodeId = NodeId::ROOT;

fn set(guest: &Guest, nodeid: NodeId, name: &str, value: &[u8], flags: u32) -> Result<(), Errno> {
    let arg = SetxattrIn {
        size: (value.len() as u32).into(),
        flags: flags.into(),
        setxattr_flags: 0.into(),
        padding: 0.into(),
    };
    guest.tell(Opcode::Setxattr, nodeid, &[arg.as_bytes(), name.as_bytes(), b"\0", value])
}

fn get(guest: &Guest, nodeid: NodeId, name: &str, size: u32) -> Result<Vec<u8>, Errno> {
    let arg = GetxattrIn { size: size.into(), padding: 0.into() };
    guest.call(Opcode::Getxattr, nodeid, &[arg.as_bytes(), name.as_bytes(), b"\0"], (size as usize).max(8))
}

fn list(guest: &Guest, nodeid: NodeId, size: u32) -> Result<Vec<u8>, Errno> {
    let arg = GetxattrIn { size: size.into(), padding: 0.into() };
    guest.call(Opcode::Listxattr, nodeid, &[arg.as_bytes()], (size as usize).max(8))
}

fn size(answer: &[u8]) -> u32 {
    GetxattrOut::read_from_bytes(answer).unwrap().size.get()
}

/// Returns whether the host has extended attributes; prints a line if not.
fn has_xattrs(dir: &std::path::Path) -> bool {
    let outcome = rustix::fs::setxattr(dir, "user.probe", b"", rustix::fs::XattrFlags::empty());
    if outcome == Err(Errno::OPNOTSUPP) {
        println!("SKIPPED: no extended attributes in {}", dir.display());
        return false;
    }
    rustix::fs::removexattr(dir, "user.probe").unwrap();
    true
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    each_way_with(Config { xattr: true, ..Config::default() }, |guest, dir| {
        if !has_xattrs(dir) {
            return;
        }
        fs::write(dir.join("file"), "").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        for name in ["file", "dir"] {
            let nodeid = guest.walk(name).unwrap();
            guest.fs().inodes.close_all();
            set(guest, nodeid, "user.a", b"value", 1).unwrap();
            assert_eq!(set(guest, nodeid, "user.a", b"", 1), Err(Errno::EXIST));
            assert_eq!(set(guest, nodeid, "user.b", b"", 2), Err(Errno::NODATA));
            assert_eq!(set(guest, nodeid, "user.b", b"", 8), Err(Errno::INVAL));
            assert_eq!(size(&get(guest, nodeid, "user.a", 0).unwrap()), 5);
            assert_eq!(get(guest, nodeid, "user.a", 100).unwrap(), b"value");
            assert_eq!(get(guest, nodeid, "user.a", 4), Err(Errno::RANGE));
            assert_eq!(get(guest, nodeid, "user.none", 4), Err(Errno::NODATA));
            assert_eq!(get(guest, nodeid, "system.posix_acl_access", 0), Err(Errno::OPNOTSUPP));
            let listed = list(guest, nodeid, 1000).unwrap();
            assert!(listed.split(|&byte| byte == 0).any(|name| name == b"user.a"));
            assert_eq!(size(&list(guest, nodeid, 0).unwrap()) as usize, listed.len());
            assert_eq!(list(guest, nodeid, 3), Err(Errno::RANGE));
            guest.tell(Opcode::Removexattr, nodeid, &[b"user.a\0"]).unwrap();
            assert_eq!(get(guest, nodeid, "user.a", 100), Err(Errno::NODATA));
        }
        symlink("nowhere", dir.join("link")).unwrap();
        let link = guest.walk("link").unwrap();
        assert_eq!(set(guest, link, "user.a", b"", 0), Err(Errno::PERM), "user attributes are not for links");
    });
}

#[test]
fn without_the_option_there_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new(dir.path(), Config::default());
    assert_eq!(get(&guest, ROOT, "user.a", 0), Err(Errno::NOSYS));
    assert_eq!(set(&guest, ROOT, "user.a", b"", 0), Err(Errno::NOSYS));
    assert_eq!(list(&guest, ROOT, 0), Err(Errno::NOSYS));
}

#[test]
fn names_are_translated_by_the_rules() {
    let rules = ":map::user.guest.:".parse().unwrap();
    let config = Config { xattr: true, xattr_map: Some(rules), ..Config::default() };
    each_way_with(config, |guest, dir| {
        if !has_xattrs(dir) {
            return;
        }
        fs::write(dir.join("file"), "").unwrap();
        rustix::fs::setxattr(dir.join("file"), "user.hidden", b"", rustix::fs::XattrFlags::empty()).unwrap();
        let nodeid = guest.walk("file").unwrap();
        set(guest, nodeid, "security.capability", b"value", 0).unwrap();
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(dir.join("file"), "user.guest.security.capability", &mut value).unwrap();
        assert_eq!(&value[..len], b"value");
        assert_eq!(get(guest, nodeid, "security.capability", 10).unwrap(), b"value");
        assert_eq!(list(guest, nodeid, 1000).unwrap(), b"security.capability\0");
        assert_eq!(size(&list(guest, nodeid, 0).unwrap()), 20);
    });
}

/// A request that changes a file.
type Change<'a> = &'a dyn Fn() -> Result<(), Errno>;

/// The host does not recognise the attribute under its other name, and would leave it on a changed file.
#[test]
fn capabilities_by_another_name_go_with_every_change_of_a_file() {
    let rules = ":map::user.guest.:".parse().unwrap();
    let config = Config { xattr: true, xattr_map: Some(rules), ..Config::default() };
    each_way_with(config, |guest, dir| {
        if !has_xattrs(dir) {
            return;
        }
        let path = dir.join("file");
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        fs::write(&path, "content").unwrap();
        fs::write(dir.join("source"), "source").unwrap();
        let nodeid = guest.walk("file").unwrap();
        let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
        let source = guest.open(guest.walk("source").unwrap(), OFlags::RDONLY).unwrap();
        let truncating = |flags: OFlags| flags | OFlags::TRUNC;
        let by_handle = |arg: &mut SetattrIn| (arg.fh, arg.size) = (fh.into(), 3.into());
        let fallocate = || {
            let mut arg = FallocateIn::new_zeroed();
            (arg.fh, arg.length) = (fh.into(), 8192.into());
            guest.tell(Opcode::Fallocate, nodeid, &[arg.as_bytes()])
        };
        let copy = || {
            let mut arg = CopyFileRangeIn::new_zeroed();
            (arg.fh_in, arg.nodeid_out, arg.fh_out) = (source.into(), nodeid.into(), fh.into());
            arg.len = 6.into();
            guest.call(Opcode::CopyFileRange64, ROOT, &[arg.as_bytes()], size_of::<CopyFileRangeOut>()).map(drop)
        };
        let setattr = |valid, fill: &dyn Fn(&mut SetattrIn)| guest.setattr(nodeid, valid, fill).map(drop);
        let changes: [(&str, Change<'_>); 10] = [
            ("WRITE", &|| guest.write(fh, 0, b"changed").map(drop)),
            ("OPEN", &|| guest.open(nodeid, truncating(OFlags::WRONLY)).map(drop)),
            ("OPEN for reading", &|| guest.open(nodeid, truncating(OFlags::RDONLY)).map(drop)),
            ("CREATE", &|| guest.create(ROOT, "file", truncating(OFlags::RDWR)).map(drop)),
            ("SETATTR of the size", &|| setattr(SetattrValid::SIZE, &|arg| arg.size = 3.into())),
            ("SETATTR of the size by a handle", &|| setattr(SetattrValid::SIZE | SetattrValid::FH, &by_handle)),
            ("SETATTR of the owner", &|| setattr(SetattrValid::UID, &|arg| arg.uid = uid.into())),
            ("SETATTR of the group", &|| setattr(SetattrValid::GID, &|arg| arg.gid = gid.into())),
            ("FALLOCATE", &fallocate),
            ("COPY_FILE_RANGE", &copy),
        ];
        for (what, change) in changes {
            set(guest, nodeid, "security.capability", b"value", 0).unwrap();
            assert_eq!(change(), Ok(()), "{what}");
            assert_eq!(get(guest, nodeid, "security.capability", 10), Err(Errno::NODATA), "{what}");
            // A file without the attribute can be changed as well.
            assert_eq!(change(), Ok(()), "{what}");
        }
        // Neither reading nor a mode change affects what is executed.
        set(guest, nodeid, "security.capability", b"value", 0).unwrap();
        guest.read(fh, 0, 10).unwrap();
        guest.open(nodeid, OFlags::RDWR).unwrap();
        guest.setattr(nodeid, SetattrValid::MODE, |arg| arg.mode = 0o755.into()).unwrap();
        assert_eq!(get(guest, nodeid, "security.capability", 10).unwrap(), b"value");
    });
}

/// A change of the data must not be visible together with the file's previous capabilities.
#[test]
fn a_file_whose_capabilities_cannot_be_removed_is_not_changed() {
    if !is_root() {
        return println!("SKIPPED: a handle that permissions no longer allow needs root");
    }
    let rules = ":map::user.guest.:".parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    if !has_xattrs(dir.path()) {
        return;
    }
    let path = dir.path().join("file");
    fs::write(&path, "content").unwrap();
    let config = Config { xattr: true, xattr_map: Some(rules), ..Config::default() };
    // Capabilities belong to a thread.
    let outcome = std::thread::scope(|scope| {
        let check = || {
            let guest = Guest::new(dir.path(), config);
            let nodeid = guest.walk("file").unwrap();
            let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
            let truncate = || {
                let valid = SetattrValid::SIZE | SetattrValid::FH;
                guest.setattr(nodeid, valid, |arg| (arg.fh, arg.size) = (fh.into(), 3.into())).map(drop)
            };
            set(&guest, nodeid, "security.capability", b"value", 0).unwrap();
            std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let own = capabilities(None).unwrap();
            let effective = own.effective - CapabilitySet::DAC_OVERRIDE;
            set_capabilities(None, CapabilitySets { effective, ..own }).unwrap();
            assert_eq!(guest.write(fh, 0, b"changed"), Err(Errno::ACCESS));
            assert_eq!(truncate(), Err(Errno::ACCESS));
            set_capabilities(None, own).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"content");
            rustix::fs::removexattr(&path, "user.guest.security.capability").unwrap();
            set_capabilities(None, CapabilitySets { effective, ..own }).unwrap();
            // The open file suffices if there is nothing to remove.
            assert_eq!(guest.write(fh, 0, b"changed"), Ok(7));
            assert_eq!(truncate(), Ok(()));
        };
        scope.spawn(check).join()
    });
    assert!(outcome.is_ok());
}

#[test]
fn access_control_lists_pass_where_they_are_negotiated() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { xattr: true, posix_acl: Negotiation::Auto, ..Config::default() };
    let guest = Guest::new(dir.path(), config.clone());
    // Version 2; rwx for the owner, r-x for uid 5, --- for group, mask and others.
    let acl: Vec<u8> = [2u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain([(1, 7, u32::MAX), (2, 5, 5), (4, 0, u32::MAX), (16, 5, u32::MAX), (32, 0, u32::MAX)].map(
            |(tag, perm, id): (u16, u16, u32)| {
                [&tag.to_le_bytes()[..], &perm.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
            },
        ))
        .flatten()
        .collect();
    match set(&guest, ROOT, "system.posix_acl_default", &acl, 0) {
        Err(Errno::OPNOTSUPP) => return println!("SKIPPED: no access control lists here"),
        outcome => outcome.unwrap(),
    }
    assert_eq!(get(&guest, ROOT, "system.posix_acl_default", 100).unwrap(), acl);
    assert_eq!(list(&guest, ROOT, 100).unwrap(), b"system.posix_acl_default\0");
    let plain = Guest::with_flags(dir.path(), config, InitFlags::INIT_EXT);
    assert_eq!(list(&plain, ROOT, 100).unwrap(), b"");
    assert_eq!(get(&plain, ROOT, "system.posix_acl_default", 100), Err(Errno::OPNOTSUPP));
}
