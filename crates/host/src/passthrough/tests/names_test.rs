use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
};

use rustix::fs::OFlags;
use transom_wire::{NodeId, Opcode, attr::EntryOut, ops::link::LinkIn};
use zerocopy::IntoBytes;

use super::{each_way, guest::node};
use crate::Errno;

const ROOT: NodeId = NodeId::ROOT;
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

#[test]
fn a_name_has_one_nodeid_until_it_is_forgotten_and_then_another() {
    each_way(|guest, dir| {
        fs::write(dir.join("a"), "content").unwrap();
        fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
        let (a, b) = (guest.lookup(ROOT, "a").unwrap(), guest.lookup(ROOT, "b").unwrap());
        assert_eq!(node(&a), node(&b), "two names of one inode");
        assert_eq!((a.attr.size.get(), a.attr.nlink.get()), (7, 2));
        assert_eq!(a.attr.ino.get(), dir.join("a").metadata().unwrap().ino());
        assert_eq!(guest.fs().inode_count(), 1);
        guest.forget(node(&a), 1);
        assert!(guest.getattr(node(&a)).is_ok(), "one lookup is left");
        guest.forget(node(&a), 1);
        assert_eq!(guest.fs().inode_count(), 0);
        assert_eq!(guest.getattr(node(&a)).err(), Some(Errno::STALE));
        assert_ne!(guest.walk("a").unwrap(), node(&a), "a nodeid is given once");
        guest.forget(node(&a), u64::MAX);
        assert_eq!(guest.fs().inode_count(), 1, "an old nodeid is nobody's");
    });
}

#[test]
fn absent_names_and_names_in_files_have_their_errors() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "").unwrap();
        assert_eq!(guest.lookup(ROOT, "nothing").err(), Some(Errno::NOENT));
        let file = guest.walk("file").unwrap();
        assert_eq!(guest.lookup(file, "x").err(), Some(Errno::NOTDIR));
        assert_eq!(guest.lookup(NodeId(77), "x").err(), Some(Errno::STALE));
        assert_eq!(guest.lookup(ROOT, "..").err(), Some(Errno::INVAL));
        assert_eq!(guest.lookup(ROOT, &"x".repeat(256)).err(), Some(Errno::NAMETOOLONG));
    });
}

#[test]
fn a_symbolic_link_is_itself_and_never_followed() {
    each_way(|guest, dir| {
        symlink("/etc", dir.join("out")).unwrap();
        let link = guest.lookup(ROOT, "out").unwrap();
        assert_eq!(link.attr.mode.get() & 0o170000, 0o120000);
        assert_eq!(guest.call(Opcode::Readlink, node(&link), &[], 4096).unwrap(), b"/etc");
        assert_eq!(guest.lookup(node(&link), "passwd").err(), Some(Errno::NOTDIR));
        assert_eq!(guest.open(node(&link), OFlags::RDONLY).err(), Some(Errno::LOOP));
        assert_eq!(guest.call(Opcode::Readlink, ROOT, &[], 4096), Err(Errno::INVAL));
    });
}

#[test]
fn a_number_that_the_host_gives_again_is_another_inode() {
    each_way(|guest, dir| {
        // 1. The guest knows a file that the host then replaces; file systems like ext4 reuse the number at once.
        fs::write(dir.join("a"), "old").unwrap();
        let old = guest.walk("a").unwrap();
        let number = dir.join("a").metadata().unwrap().ino();
        fs::remove_file(dir.join("a")).unwrap();
        fs::write(dir.join("a"), "newer").unwrap();
        let is_same_number = dir.join("a").metadata().unwrap().ino() == number;
        // 2. The name refers to another inode, and the old nodeid never refers to the new one.
        let new = guest.lookup(ROOT, "a").unwrap();
        assert_ne!(node(&new), old, "the same number again: {is_same_number}");
        assert_eq!(new.attr.size.get(), 5);
        match guest.getattr(old) {
            Err(errno) => assert_eq!(errno, Errno::STALE),
            Ok(attr) => assert_eq!((attr.size.get(), attr.nlink.get()), (3, 0), "the old one, kept open"),
        }
    });
}

#[test]
fn what_is_renamed_keeps_its_nodeid_and_what_is_below_stays_reachable() {
    each_way(|guest, dir| {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "1").unwrap();
        fs::create_dir(dir.join("c")).unwrap();
        let file = guest.walk("a/b/file").unwrap();
        let (a, c) = (guest.walk("a").unwrap(), guest.walk("c").unwrap());
        guest.rename((a, "b"), (c, "d"), 0).unwrap();
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(file).unwrap().size.get(), 1);
        assert_eq!(guest.walk("c/d/file").unwrap(), file);
        assert_eq!(guest.rename((a, "b"), (c, "e"), 0), Err(Errno::NOENT));
        assert_eq!(guest.rename((c, "d"), (c, "d2"), 1 << 7), Err(Errno::INVAL));
    });
}

#[test]
fn rename_flags_mean_what_they_mean_on_the_host() {
    each_way(|guest, dir| {
        fs::write(dir.join("a"), "a").unwrap();
        fs::write(dir.join("b"), "bb").unwrap();
        let (a, b) = (guest.walk("a").unwrap(), guest.walk("b").unwrap());
        assert_eq!(guest.rename((ROOT, "a"), (ROOT, "b"), NOREPLACE), Err(Errno::EXIST));
        guest.rename((ROOT, "a"), (ROOT, "b"), EXCHANGE).unwrap();
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(a).unwrap().size.get(), 1);
        assert_eq!(guest.getattr(b).unwrap().size.get(), 2);
        assert_eq!((guest.walk("a"), guest.walk("b")), (Ok(b), Ok(a)));
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"bb");
    });
}

#[test]
fn an_inode_without_names_lives_as_long_as_the_guest_knows_it() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "content").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        fs::write(dir.join("victim"), "22").unwrap();
        fs::write(dir.join("other"), "333").unwrap();
        let (file, directory) = (guest.walk("file").unwrap(), guest.walk("dir").unwrap());
        let (victim, other) = (guest.walk("victim").unwrap(), guest.walk("other").unwrap());
        // 1. The descriptors are closed when the names are removed.
        guest.fs().inodes.close_all();
        guest.unlink(ROOT, "file").unwrap();
        guest.rmdir(ROOT, "dir").unwrap();
        guest.rename((ROOT, "other"), (ROOT, "victim"), 0).unwrap();
        guest.fs().inodes.close_all();
        // 2. All of them are still reachable.
        assert_eq!((guest.getattr(file).unwrap().nlink.get(), guest.getattr(file).unwrap().size.get()), (0, 7));
        let fh = guest.open(file, OFlags::RDWR).unwrap();
        assert_eq!(guest.read(fh, 0, 100).unwrap(), b"content");
        assert!(guest.getattr(directory).is_ok());
        assert_eq!(guest.lookup(directory, "x").err(), Some(Errno::NOENT));
        assert_eq!(guest.getattr(victim).unwrap().size.get(), 2);
        assert_eq!((guest.getattr(other).unwrap().size.get(), guest.walk("victim")), (3, Ok(other)));
        // 3. A name that was not removed after all leaves nothing pinned.
        assert_eq!(guest.rmdir(ROOT, "victim"), Err(Errno::NOTDIR));
        guest.release(file, fh);
        for nodeid in [file, directory, victim] {
            guest.forget(nodeid, 1);
        }
        guest.forget(other, 2);
        assert_eq!(guest.fs().inode_count(), 0);
        assert_eq!(guest.fs().inodes.pinned_count(), 0);
    });
}

#[test]
fn a_link_is_another_name_of_the_same_inode() {
    each_way(|guest, dir| {
        fs::write(dir.join("a"), "1").unwrap();
        fs::create_dir(dir.join("d")).unwrap();
        let (a, d) = (guest.walk("a").unwrap(), guest.walk("d").unwrap());
        let arg = LinkIn { oldnodeid: a.into() };
        let entry: EntryOut = guest.ask(Opcode::Link, d, &[arg.as_bytes(), b"b\0"]).unwrap();
        assert_eq!((node(&entry), entry.attr.nlink.get()), (a, 2));
        // The first name is removed; the second one now leads to the file.
        guest.unlink(ROOT, "a").unwrap();
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(a).unwrap().nlink.get(), 1);
        guest.forget(a, 2);
        guest.forget(d, 1);
        assert_eq!(guest.fs().inode_count(), 0);
    });
}

#[test]
fn what_the_host_moved_away_is_stale_by_path_and_still_there_by_handle() {
    each_way(|guest, dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/file"), "1").unwrap();
        let file = guest.walk("d/file").unwrap();
        guest.fs().inodes.close_all();
        fs::rename(dir.join("d/file"), dir.join("d/moved")).unwrap();
        fs::write(dir.join("d/file"), "another").unwrap();
        match guest.getattr(file) {
            Ok(attr) => assert_eq!(attr.size.get(), 1),
            Err(errno) => assert_eq!(errno, Errno::STALE),
        }
        // A lookup by its new name finds it again under its nodeid.
        assert_eq!(guest.walk("d/moved").unwrap(), file);
        assert_eq!(guest.getattr(file).unwrap().size.get(), 1);
    });
}
