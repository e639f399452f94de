//! Files that the guest has open and to which no name leads any more, because the host has removed it.

use std::{fs, os::unix::fs::MetadataExt as _};

use rustix::fs::OFlags;
use transom_wire::{
    Handle, NodeId, Opcode,
    ops::{
        access::AccessIn,
        setattr::SetattrValid,
        xattr::{GetxattrIn, SetxattrIn},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::{each_way_with, guest::Guest, is_root};
use crate::{Errno, passthrough::Config};

const LEN: u64 = 5;

/// Opens a file whose name the host then removes, so that only the open file leads to it.
fn removed_by_the_host(guest: &Guest, dir: &std::path::Path) -> (NodeId, Handle) {
    fs::write(dir.join("file"), vec![1; LEN as usize]).unwrap();
    let nodeid = guest.walk("file").unwrap();
    let fh = guest.open(nodeid, OFlags::RDWR).unwrap();
    fs::remove_file(dir.join("file")).unwrap();
    guest.fs().inodes.close_all();
    (nodeid, fh)
}

#[test]
fn a_file_without_a_name_is_changed_by_those_who_have_it_open() {
    each_way_with(Config { xattr: true, ..Config::default() }, |guest, dir| {
        let (nodeid, fh) = removed_by_the_host(guest, dir);
        let mode = guest.setattr(nodeid, SetattrValid::MODE, |arg| arg.mode = 0o604.into()).unwrap().mode.get();
        assert_eq!(mode & 0o7777, 0o604);
        let attr = guest.setattr(nodeid, SetattrValid::MTIME, |arg| arg.mtime = 7.into()).unwrap();
        assert_eq!((attr.mtime.get(), attr.nlink.get(), attr.size.get()), (7, 0, LEN));
        if is_root() {
            let attr = guest.setattr(nodeid, SetattrValid::UID, |arg| arg.uid = 12_345.into()).unwrap();
            assert_eq!(attr.uid.get(), 12_345);
        }
        let by_handle = SetattrValid::SIZE | SetattrValid::FH;
        let attr = guest.setattr(nodeid, by_handle, |arg| (arg.size, arg.fh) = (2.into(), fh.into())).unwrap();
        assert_eq!(attr.size.get(), 2);

        let mut arg = SetxattrIn::new_zeroed();
        arg.size = 1.into();
        guest.tell(Opcode::Setxattr, nodeid, &[arg.as_bytes(), b"user.a\0", b"x"]).unwrap();
        let mut arg = GetxattrIn::new_zeroed();
        arg.size = 9.into();
        assert_eq!(guest.call(Opcode::Getxattr, nodeid, &[arg.as_bytes(), b"user.a\0"], 9).unwrap(), b"x");
        guest.tell(Opcode::Removexattr, nodeid, &[b"user.a\0"]).unwrap();
        let may_read = AccessIn { mask: 4.into(), ..AccessIn::new_zeroed() };
        guest.tell(Opcode::Access, nodeid, &[may_read.as_bytes()]).unwrap();

        guest.release(nodeid, fh);
        if !guest.fs().inodes.holds_handles() {
            let changed = guest.setattr(nodeid, SetattrValid::MODE, |arg| arg.mode = 0o600.into());
            assert_eq!(changed.err(), Some(Errno::STALE));
        }
        assert_eq!(guest.fs().inodes.pinned_count(), 0);
    });
}

#[test]
fn what_a_path_leads_to_is_stale_so_that_the_guest_looks_for_the_file_that_has_the_name_now() {
    each_way_with(Config::default(), |guest, dir| {
        let (nodeid, _fh) = removed_by_the_host(guest, dir);
        fs::write(dir.join("file"), "another").unwrap();
        if guest.fs().inodes.holds_handles() {
            // Whether a handle opens a removed file depends on the file system.
            return;
        }
        guest.getattr(nodeid).unwrap();
        assert_eq!(guest.open(nodeid, OFlags::RDWR).err(), Some(Errno::STALE));
        let truncated = guest.setattr(nodeid, SetattrValid::SIZE, |arg| arg.size = 0.into());
        assert_eq!(truncated.err(), Some(Errno::STALE));
        assert_eq!(dir.join("file").metadata().unwrap().size(), 7);
    });
}
