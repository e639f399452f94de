use std::fs;

use rustix::fs::OFlags;
use transom_wire::NodeId;

use super::{each_way_with, guest::node};
use crate::{Errno, passthrough::Config};

const ROOT: NodeId = NodeId::ROOT;
const LIMIT: usize = 64;

fn small() -> Config {
    Config { max_fds: Some(LIMIT), ..Config::default() }
}

#[test]
fn many_files_are_known_under_a_small_limit_and_each_is_reached() {
    each_way_with(small(), |guest, dir| {
        let mut known = Vec::new();
        for i in 0..40 {
            let directory = format!("d{i}/e/f");
            fs::create_dir_all(dir.join(&directory)).unwrap();
            for j in 0..25 {
                let path = format!("{directory}/{j}");
                fs::write(dir.join(&path), vec![0; i * 25 + j]).unwrap();
                known.push((guest.walk(&path).unwrap(), (i * 25 + j) as u64));
                assert!(guest.fs().inodes.held_count() <= LIMIT);
            }
        }
        assert_eq!(guest.fs().inode_count(), 40 * 28);
        for &(nodeid, size) in known.iter().chain(known.iter().rev()) {
            assert_eq!(guest.getattr(nodeid).unwrap().size.get(), size);
            assert!(guest.fs().inodes.held_count() <= LIMIT);
        }
        for &(nodeid, size) in known.iter().step_by(7) {
            let fh = guest.open(nodeid, OFlags::RDONLY).unwrap();
            assert_eq!(guest.read(fh, 0, 2000).unwrap().len() as u64, size);
            guest.release(nodeid, fh);
        }
    });
}

#[test]
fn open_files_are_refused_before_descriptors_run_out_and_the_rest_goes_on() {
    each_way_with(small(), |guest, dir| {
        for i in 0..100 {
            fs::write(dir.join(i.to_string()), "").unwrap();
        }
        let nodeids: Vec<NodeId> = (0..100).map(|i: i32| guest.walk(&i.to_string()).unwrap()).collect();
        let opened: Vec<_> = nodeids.iter().map_while(|&nodeid| guest.open(nodeid, OFlags::RDWR).ok()).collect();
        assert_eq!(opened.len(), LIMIT / 8 * 5);
        assert_eq!(guest.open(nodeids[99], OFlags::RDONLY).err(), Some(Errno::NFILE));
        assert_eq!(guest.opendir(ROOT).err(), Some(Errno::NFILE));
        assert_eq!(guest.create(ROOT, "new", OFlags::RDWR).err(), Some(Errno::NFILE));
        assert!(!dir.join("new").exists());
        assert!(guest.fs().inodes.held_count() <= LIMIT);
        assert!(nodeids.iter().all(|&nodeid| guest.getattr(nodeid).is_ok()));
        guest.release(nodeids[0], opened[0]);
        let fh = guest.opendir(ROOT).unwrap();
        assert!(!guest.readdirplus(ROOT, fh, 0, 65536).unwrap().is_empty());
    });
}

#[test]
fn inodes_without_names_beyond_the_bound_end_and_no_other_suffers() {
    each_way_with(small(), |guest, dir| {
        for i in 0..60 {
            fs::write(dir.join(i.to_string()), "").unwrap();
        }
        let nodeids: Vec<NodeId> = (0..60).map(|i: i32| guest.walk(&i.to_string()).unwrap()).collect();
        for i in 0..50 {
            guest.unlink(ROOT, &i.to_string()).unwrap();
        }
        assert_eq!(guest.fs().inodes.pinned_count(), LIMIT / 4);
        assert!(nodeids[..LIMIT / 4].iter().all(|&nodeid| guest.getattr(nodeid).is_ok()));
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(nodeids[49]).err(), Some(Errno::STALE));
        assert!(nodeids[50..].iter().all(|&nodeid| guest.getattr(nodeid).is_ok()));
        for &nodeid in &nodeids {
            guest.forget(nodeid, 1);
        }
        assert_eq!(guest.fs().inodes.pinned_count(), 0);
    });
}

#[test]
fn inodes_beyond_the_limit_are_refused_until_others_are_forgotten() {
    each_way_with(Config { max_inodes: 20, ..Config::default() }, |guest, dir| {
        for i in 0..30 {
            fs::write(dir.join(i.to_string()), "").unwrap();
        }
        let known: Vec<NodeId> = (0..20).map(|i: i32| guest.walk(&i.to_string()).unwrap()).collect();
        // 1. No further inode becomes known, and none is created that could not be returned to the guest.
        assert_eq!(guest.lookup(ROOT, "20").err(), Some(Errno::NFILE));
        assert_eq!(guest.mkdir(ROOT, "new").err(), Some(Errno::NFILE));
        assert_eq!(guest.create(ROOT, "new", OFlags::RDWR).err(), Some(Errno::NFILE));
        assert!(!dir.join("new").exists());
        let gauges = guest.fs().gauges();
        assert_eq!((gauges.inodes, gauges.inodes_limit, gauges.inodes_refused), (20, 20, 3));
        // 2. Known inodes remain usable and can be looked up; a listing leaves out those that cannot become known.
        assert!(known.iter().all(|&nodeid| guest.getattr(nodeid).is_ok()));
        guest.fs().inodes.close_all();
        assert_eq!(guest.walk("7").unwrap(), known[7]);
        assert_eq!(guest.lookup(ROOT, "absent").err(), Some(Errno::NOENT));
        let fh = guest.opendir(ROOT).unwrap();
        let listed = guest.readdirplus(ROOT, fh, 0, 65536).unwrap();
        assert_eq!(listed.len(), 32);
        assert_eq!(listed.iter().filter(|listed| node(&listed.entry) != NodeId(0)).count(), 20);
        // 3. Forgetting makes room.
        guest.forget(known[7], 3);
        assert_eq!(guest.fs().inode_count(), 19);
        let twenty = guest.walk("20").unwrap();
        assert_eq!(guest.lookup(ROOT, "7").err(), Some(Errno::NFILE));
        guest.forget(twenty, 1);
        assert!(guest.mkdir(ROOT, "new").is_ok());
        // 4. A new session begins with an empty table.
        guest.initialise(transom_wire::ops::init::InitFlags::all()).unwrap();
        assert_eq!(guest.fs().inode_count(), 0);
        assert!((0..20).all(|i: i32| guest.walk(&i.to_string()).is_ok()));
    });
}

#[test]
fn a_deep_directory_is_reached_again_from_the_root() {
    each_way_with(small(), |guest, _| {
        let mut path = vec![ROOT];
        for _ in 0..300 {
            path.push(node(&guest.mkdir(path[path.len() - 1], "d").unwrap()));
        }
        guest.fs().inodes.close_all();
        let last = path[300];
        assert!(guest.getattr(last).is_ok());
        // Forgotten in the order in which a guest drops a path: from the end.
        for &nodeid in path[1..].iter().rev() {
            guest.forget(nodeid, 1);
        }
        assert_eq!(guest.fs().inode_count(), 0);
    });
}

#[test]
fn an_inode_is_reached_though_the_guest_forgot_the_directories_above() {
    each_way_with(small(), |guest, dir| {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "1").unwrap();
        let (a, b, file) = (guest.walk("a").unwrap(), guest.walk("a/b").unwrap(), guest.walk("a/b/file").unwrap());
        guest.forget(a, 3);
        guest.forget(b, 2);
        guest.fs().inodes.close_all();
        assert_eq!(guest.getattr(file).unwrap().size.get(), 1);
        guest.forget(file, 1);
        assert_eq!(guest.fs().inode_count(), 0);
    });
}

#[test]
fn what_is_not_used_for_a_while_is_closed_where_handles_stand_in() {
    each_way_with(small(), |guest, dir| {
        fs::write(dir.join("used"), "").unwrap();
        fs::write(dir.join("unused"), "").unwrap();
        let (used, unused) = (guest.walk("used").unwrap(), guest.walk("unused").unwrap());
        guest.fs().tidy();
        guest.getattr(used).unwrap();
        let before = guest.fs().inodes.kept_count();
        guest.fs().tidy();
        let closed = if guest.fs().inodes.holds_handles() { 1 } else { 0 };
        assert!(before - guest.fs().inodes.kept_count() <= closed);
        guest.fs().tidy();
        guest.fs().tidy();
        assert!(guest.getattr(unused).is_ok() && guest.getattr(used).is_ok());
        let gauges = guest.fs().gauges();
        assert_eq!((gauges.inodes, gauges.open_files), (2, 0));
        assert_eq!(gauges.descriptors, guest.fs().inodes.held_count() as u64);
    });
}
