use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use rustix::fs::{CWD, OFlags, RenameFlags};
use transom_wire::NodeId;

use super::each_way;
use crate::Errno;

/// While the host swaps a directory for a link out of the share, the guest reaches what is inside, or nothing.
#[test]
fn a_race_with_a_link_never_leads_out_of_the_share() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let secret = outside.path().join("file").metadata().unwrap().ino();
    let directory = outside.path().metadata().unwrap().ino();
    each_way(|guest, dir| {
        fs::create_dir(dir.join("a")).unwrap();
        fs::write(dir.join("a/file"), "inside").unwrap();
        symlink(outside.path(), dir.join("b")).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    exchange(&dir.join("a"), &dir.join("b"));
                    exchange(&dir.join("a/file"), &dir.join("a/file"));
                }
            });
            let mut reached = 0;
            for i in 0..3000 {
                if i % 10 == 0 {
                    guest.fs().inodes.close_all();
                }
                let Ok(entry) = guest.lookup(NodeId::ROOT, "a") else { continue };
                assert_ne!(entry.attr.ino.get(), directory);
                let nodeid = entry.nodeid.into();
                match guest.lookup(nodeid, "file") {
                    Ok(file) => {
                        assert_ne!(file.attr.ino.get(), secret);
                        if let Ok(fh) = guest.open(file.nodeid.into(), OFlags::RDONLY) {
                            assert_eq!(guest.read(fh, 0, 100).unwrap(), b"inside");
                            guest.release(file.nodeid.into(), fh);
                            reached += 1;
                        }
                        guest.forget(file.nodeid.into(), 1);
                    }
                    Err(errno) => assert!(matches!(errno, Errno::NOTDIR | Errno::STALE | Errno::NOENT), "{errno}"),
                }
                guest.forget(nodeid, 1);
            }
            is_done.store(true, Relaxed);
            println!("the file inside was read {reached} times");
        });
        assert_eq!(guest.fs().inode_count(), 0);
    });
}

/// Many threads look up, open and forget the same names: counts stay balanced.
#[test]
fn threads_that_look_up_and_forget_the_same_names_leave_nothing_behind() {
    each_way(|guest, dir| {
        for i in 0..20 {
            fs::write(dir.join(i.to_string()), i.to_string()).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for i in 0..500 {
                        let name = ((i * 7 + thread) % 20).to_string();
                        let nodeid = guest.walk(&name).unwrap();
                        if i % 50 == 0 {
                            guest.fs().inodes.close_all();
                        }
                        assert_eq!(guest.getattr(nodeid).unwrap().size.get(), name.len() as u64);
                        guest.forget(nodeid, 1);
                    }
                });
            }
        });
        assert_eq!(guest.fs().inode_count(), 0);
        assert_eq!(guest.fs().inodes.held_count(), guest.fs().inodes.kept_count());
    });
}

fn exchange(one: &Path, two: &Path) {
    // The names are exchanged concurrently.
    let _ = rustix::fs::renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE);
}
