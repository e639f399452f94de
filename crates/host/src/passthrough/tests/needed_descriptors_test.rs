//! Inodes to which only a descriptor leads until it is closed: see `Hold::Descriptor`.

use std::{fs, os::unix::fs::MetadataExt};

use rustix::fs::OFlags;
use transom_wire::NodeId;

use super::{
    each_way,
    guest::{Guest, node},
};
use crate::Errno;

const ROOT: NodeId = NodeId::ROOT;
/// More often than it takes to expect that a file which is created is removed soon.
const OFTEN: usize = 20;

#[test]
fn an_inode_stays_the_same_when_its_descriptor_is_closed_and_the_host_renames_it() {
    each_way(|guest, dir| {
        fs::create_dir(dir.join("dir")).unwrap();
        fs::write(dir.join("dir/file"), "12345").unwrap();
        std::os::unix::fs::symlink("12345", dir.join("dir/link")).unwrap();
        let nodes = ["dir", "dir/file", "dir/link"].map(|path| guest.walk(path).unwrap());
        guest.fs().inodes.close_all();
        assert_eq!(guest.fs().inodes.kept_count(), usize::from(guest.fs().inodes.holds_handles()));
        nodes.iter().for_each(|&nodeid| assert!(guest.getattr(nodeid).is_ok()));
        if guest.fs().inodes.holds_handles() {
            guest.fs().inodes.close_all();
            fs::rename(dir.join("dir"), dir.join("elsewhere")).unwrap();
            let inos = ["elsewhere", "elsewhere/file", "elsewhere/link"]
                .map(|path| dir.join(path).symlink_metadata().unwrap().ino());
            let found = nodes.map(|nodeid| guest.getattr(nodeid).unwrap().ino.get());
            assert_eq!(found, inos);
            assert_eq!(guest.walk("elsewhere/file").unwrap(), nodes[1]);
        }
    });
}

#[test]
fn a_descriptor_that_nobody_used_is_closed_and_its_inode_is_found_again() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "12345").unwrap();
        let nodeid = guest.walk("file").unwrap();
        // The first time, it has been used since the last time.
        (0..2).for_each(|_| guest.fs().inodes.close_unused());
        assert_eq!(guest.getattr(nodeid).unwrap().size.get(), 5);
        assert_eq!(guest.walk("file").unwrap(), nodeid);
        let fh = guest.open(nodeid, OFlags::RDONLY).unwrap();
        assert_eq!(guest.read(fh, 0, 10).unwrap(), b"12345");
    });
}

#[test]
fn a_descriptor_whose_handle_could_not_be_taken_is_closed_later_unless_there_is_none() {
    each_way(|guest, dir| {
        let inodes = &guest.fs().inodes;
        if !inodes.holds_handles() {
            return;
        }
        fs::write(dir.join("file"), "12345").unwrap();
        fs::write(dir.join("other"), "12345").unwrap();
        let [file, other] = ["file", "other"].map(|path| guest.walk(path).unwrap());
        inodes.close_without_handle(file, Errno::NOMEM);
        assert_eq!(inodes.pinned_count(), 0);
        inodes.close_without_handle(other, Errno::OPNOTSUPP);
        assert_eq!(inodes.pinned_count(), 1);
        inodes.close_all();
        // That of the other inode, and the one through which handles are opened.
        assert_eq!(inodes.kept_count(), 2);
        assert!([file, other].iter().all(|&nodeid| guest.getattr(nodeid).unwrap().size.get() == 5));
    });
}

#[test]
fn a_file_that_is_removed_soon_after_its_creation_is_usable_until_it_is_forgotten() {
    each_way(|guest, _| {
        for round in 0..OFTEN {
            let nodeid = create(guest, "made");
            guest.unlink(ROOT, "made").unwrap();
            assert_eq!(guest.getattr(nodeid).unwrap().nlink.get(), 0, "round {round}");
            // Another one under the same name is another inode.
            let second = create(guest, "made");
            assert_ne!(second, nodeid);
            guest.unlink(ROOT, "made").unwrap();
            guest.fs().inodes.close_all();
            for removed in [nodeid, second] {
                assert!(guest.getattr(removed).is_ok(), "round {round}");
                guest.forget(removed, 1);
                assert_eq!(guest.getattr(removed).err(), Some(Errno::STALE));
            }
        }
        assert_eq!(guest.fs().inode_count(), 0);
        assert_eq!(guest.fs().inodes.pinned_count(), 0);
        assert_eq!(guest.fs().inodes.held_count(), guest.fs().inodes.kept_count());
    });
}

#[test]
fn files_that_stay_after_others_were_removed_soon_keep_no_descriptor_for_good() {
    each_way(|guest, dir| {
        for _ in 0..OFTEN {
            let nodeid = create(guest, "made");
            guest.unlink(ROOT, "made").unwrap();
            guest.forget(nodeid, 1);
        }
        let names: Vec<String> = (0..OFTEN).map(|number| format!("stays{number}")).collect();
        let nodes: Vec<NodeId> = names.iter().map(|name| create(guest, name)).collect();
        assert_eq!(guest.fs().inodes.expects_removal(), guest.fs().inodes.holds_handles());
        guest.fs().inodes.close_all();
        assert!(!guest.fs().inodes.expects_removal());
        for (name, nodeid) in names.iter().zip(nodes) {
            assert_eq!(guest.getattr(nodeid).unwrap().ino.get(), dir.join(name).metadata().unwrap().ino());
            assert_eq!(guest.walk(name).unwrap(), nodeid);
            guest.forget(nodeid, 2);
        }
        assert_eq!(guest.fs().inode_count(), 0);
        assert_eq!(guest.fs().inodes.held_count(), guest.fs().inodes.kept_count());
    });
}

/// Creates a file and closes it.
fn create(guest: &Guest, name: &str) -> NodeId {
    let (entry, open) = guest.create(ROOT, name, OFlags::WRONLY | OFlags::EXCL).unwrap();
    guest.release(node(&entry), open.fh.into());
    node(&entry)
}
