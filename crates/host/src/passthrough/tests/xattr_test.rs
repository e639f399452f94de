use std::{fs, os::unix::fs::symlink};

use transom_wire::{
    NodeId, Opcode,
    ops::{
        init::InitFlags,
        xattr::{GetxattrIn, GetxattrOut, SetxattrIn},
    },
};
use zerocopy::{FromBytes, IntoBytes};

use super::{each_way_with, guest::Guest};
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

/// False, and a line that says so, where the host has no extended attributes.
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
        // The host does not know it for what it is, and would leave it on a changed file.
        let fh = guest.open(nodeid, rustix::fs::OFlags::RDWR).unwrap();
        guest.write(fh, 0, b"changed").unwrap();
        assert_eq!(get(guest, nodeid, "security.capability", 10), Err(Errno::NODATA));
    });
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
