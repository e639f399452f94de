use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::fs::AtFlags;
use transom_wire::NodeId;
use zerocopy::IntoBytes as _;

use super::{
    each_way,
    guest::{Guest, node},
};
use crate::{Errno, sysfd::stat};

const ROOT: NodeId = NodeId::ROOT;

#[test]
fn a_second_lookup_answers_as_the_first_and_is_counted() {
    each_way(|guest, dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/file"), "12345").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join("d/link")).unwrap();
        let d = guest.walk("d").unwrap();
        for name in ["file", "link"] {
            let first = guest.lookup(d, name).unwrap();
            assert_eq!(guest.lookup(d, name).unwrap().as_bytes(), first.as_bytes(), "{name}");
            guest.forget(node(&first), 1);
            assert!(guest.getattr(node(&first)).is_ok(), "the guest has one of two lookups of {name} left");
            guest.forget(node(&first), 1);
            assert_eq!(guest.getattr(node(&first)).err(), Some(Errno::STALE), "{name}");
        }
        assert_eq!(guest.lookup(d, "absent").err(), Some(Errno::NOENT));
    });
}

/// Between the attributes of a name and the search for its inode, the number may have been given to another inode,
/// whose descriptor was opened by then.
#[test]
fn a_descriptor_that_was_opened_after_the_attributes_proves_nothing() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "").unwrap();
        let inodes = &guest.fs().inodes;
        let root = inodes.get(ROOT).unwrap();
        let early = inodes.expect_known().unwrap();
        let stat = stat::statx_at(&root.fd, b"file", stat::IDENTITY).unwrap();
        let nodeid = guest.walk("file").unwrap();
        let late = inodes.expect_known().unwrap();
        let known = |moment| inodes.count_known(ROOT, &root, b"file", &stat, moment).map(|known| known.nodeid);
        assert_eq!(known(early), None, "only a descriptor leads to it, and that is newer");
        inodes.handle(nodeid);
        // By handle, the name is looked up again.
        assert_eq!(known(early), inodes.holds_handles().then_some(nodeid));
        assert_eq!(known(late), Some(nodeid));
        inodes.close_all();
        assert_eq!(known(late), inodes.holds_handles().then_some(nodeid), "without a descriptor");
        let other = stat::statx(&root.fd, AtFlags::empty(), stat::IDENTITY).unwrap();
        let found = inodes.count_known(ROOT, &root, b"file", &other, late).unwrap();
        assert_eq!(found.nodeid, ROOT, "the attributes decide, and these are the root's");
    });
}

/// Files of two names have sizes of two kinds, and their inode numbers are reused all the time. What one name leads to
/// never has a size of the other kind.
#[test]
fn a_name_never_leads_to_the_inode_of_another_one_while_numbers_are_reused() {
    const SIZES: [(&str, usize); 2] = [("even", 0), ("odd", 1)];
    each_way(|guest, dir| {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    if is_done.load(Relaxed) {
                        break;
                    }
                    let (name, odd) = SIZES[round % 2];
                    // Its number is free for the next file.
                    _ = fs::remove_file(dir.join(name));
                    let size = 2 * (round % 1000) + odd;
                    fs::write(dir.join("new"), vec![b'x'; size]).unwrap();
                    fs::rename(dir.join("new"), dir.join(name)).unwrap();
                }
            });
            let lookers = [0, 1].map(|_| scope.spawn(|| look(guest, &SIZES)));
            let outcomes = lookers.map(std::thread::ScopedJoinHandle::join);
            is_done.store(true, Relaxed);
            let found = outcomes.map(Result::unwrap);
            println!("{found:?} lookups found a file");
        });
    });
}

fn look(guest: &Guest, sizes: &[(&str, usize)]) -> usize {
    let mut found = 0;
    for round in 0..4000 {
        let (name, odd) = sizes[round % 2];
        let Ok(entry) = guest.lookup(ROOT, name) else { continue };
        assert_eq!(entry.attr.size.get() as usize % 2, odd, "attributes of {name}");
        if let Ok(attr) = guest.getattr(node(&entry)) {
            assert_eq!(attr.size.get() as usize % 2, odd, "the inode of {name}");
            found += 1;
        }
        if round % 3 == 0 {
            guest.forget(node(&entry), 1);
        }
    }
    found
}
