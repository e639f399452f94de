use std::{collections::HashSet, fs, os::unix::fs::MetadataExt};

use transom_wire::{Handle, NodeId, Opcode, attr::AttrFlags};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    each_way,
    guest::{Guest, node},
};
use crate::{Errno, passthrough::Config};

const ROOT: NodeId = NodeId::ROOT;

fn fill(dir: &std::path::Path, count: usize) -> HashSet<Vec<u8>> {
    (0..count)
        .map(|i| {
            let name = format!("a file with a name of some length, number {i}");
            fs::write(dir.join(&name), "").unwrap();
            name.into_bytes()
        })
        .collect()
}

/// Returns all entries of a stream, `size` bytes at a time.
fn list(guest: &Guest, nodeid: NodeId, fh: Handle, size: u32) -> Vec<(Vec<u8>, u64)> {
    let mut all: Vec<(Vec<u8>, u64)> = Vec::new();
    loop {
        let offset = all.last().map_or(0, |entry| entry.1);
        let some = guest.readdir(nodeid, fh, offset, size).unwrap();
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

#[test]
fn every_entry_comes_once_whatever_the_size_of_the_answers() {
    each_way(|guest, dir| {
        let mut names = fill(dir, 1500);
        names.extend([b".".to_vec(), b"..".to_vec()]);
        for size in [4096, 100, 65536] {
            let fh = guest.opendir(ROOT).unwrap();
            let listed = list(guest, ROOT, fh, size);
            assert_eq!(listed.len(), names.len(), "no entry twice, with answers of {size} bytes");
            assert_eq!(listed.into_iter().map(|entry| entry.0).collect::<HashSet<_>>(), names);
            guest.tell(Opcode::Releasedir, ROOT, &[release(fh).as_bytes()]).unwrap();
            assert_eq!(guest.readdir(ROOT, fh, 0, 4096).err(), Some(Errno::BADF));
        }
        let fh = guest.opendir(ROOT).unwrap();
        assert_eq!(guest.readdir(ROOT, fh, 0, 16).err(), Some(Errno::INVAL), "no room for one entry");
        assert_eq!(guest.readdir(ROOT, fh, u64::MAX, 4096).err(), Some(Errno::INVAL));
    });
}

/// Neither with the root's own nodeid nor with that of another directory beside the root's handle.
#[test]
fn the_directory_above_the_share_is_never_numbered() {
    each_way(|guest, dir| {
        fs::create_dir(dir.join("sub")).unwrap();
        let sub = node(&guest.lookup(ROOT, "sub").unwrap());
        let above = fs::metadata(dir.parent().unwrap()).unwrap().ino();
        for nodeid in [ROOT, sub] {
            let fh = guest.opendir(ROOT).unwrap();
            let entries = guest.readdir_inos(nodeid, fh, 0, 4096).unwrap();
            assert!(entries.iter().any(|entry| entry.0 == b".."));
            assert!(entries.iter().all(|entry| entry.2 != above), "with nodeid {nodeid:?}");
            let plus = guest.readdirplus(nodeid, fh, 0, 4096).unwrap();
            assert!(plus.iter().all(|entry| entry.ino != above), "READDIRPLUS with nodeid {nodeid:?}");
        }
    });
}

#[test]
fn a_stream_goes_on_from_any_cookie_and_from_the_beginning_sees_what_is_new() {
    each_way(|guest, dir| {
        fill(dir, 700);
        let fh = guest.opendir(ROOT).unwrap();
        let all = list(guest, ROOT, fh, 8192);
        for at in [0, 1, 350, 699, 701] {
            let rest: Vec<_> = guest.readdir(ROOT, fh, all[at].1, 1 << 20).unwrap();
            assert_eq!(rest.first(), all.get(at + 1), "after entry {at}");
        }
        fs::write(dir.join("new"), "").unwrap();
        assert!(list(guest, ROOT, fh, 4096).iter().any(|entry| entry.0 == b"new"));
    });
}

#[test]
fn a_directory_is_emptied_while_it_is_read() {
    each_way(|guest, dir| {
        fill(dir, 1200);
        let fh = guest.opendir(ROOT).unwrap();
        let mut offset = 0;
        loop {
            let some = guest.readdir(ROOT, fh, offset, 4096).unwrap();
            let Some(last) = some.last() else { break };
            offset = last.1;
            for (name, _) in some.iter().filter(|entry| entry.0 != b"." && entry.0 != b"..") {
                guest.unlink(ROOT, std::str::from_utf8(name).unwrap()).unwrap();
            }
        }
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
        assert_eq!(guest.fs().inode_count(), 0);
    });
}

#[test]
fn streams_whose_read_ahead_was_dropped_lose_and_double_nothing() {
    each_way(|guest, dir| {
        const STREAMS: usize = 300;
        let mut names = fill(dir, 400);
        names.extend([b".".to_vec(), b"..".to_vec()]);
        let streams: Vec<Handle> = (0..STREAMS).map(|_| guest.opendir(ROOT).unwrap()).collect();
        let mut listed: Vec<Vec<(Vec<u8>, u64)>> = vec![Vec::new(); STREAMS];
        // A part from each in turn: each evicts what another has read ahead.
        loop {
            let mut is_over = true;
            for (fh, listed) in streams.iter().zip(&mut listed) {
                let offset = listed.last().map_or(0, |entry| entry.1);
                let some = guest.readdir(ROOT, *fh, offset, 4096).unwrap();
                is_over &= some.is_empty();
                listed.extend(some);
            }
            assert!(guest.fs().read_ahead.kept_count() <= 256);
            if is_over {
                break;
            }
        }
        for listed in &listed {
            assert_eq!(listed.len(), names.len(), "no entry twice");
            assert_eq!(listed.iter().map(|entry| entry.0.clone()).collect::<HashSet<_>>(), names);
        }
        // Any cookie is valid for any of them, and at the end of the stream nothing is kept.
        assert_eq!(guest.fs().read_ahead.kept_count(), 0);
        for (fh, listed) in streams.iter().zip(&listed).step_by(7) {
            assert_eq!(guest.readdir(ROOT, *fh, listed[200].1, 4096).unwrap().first(), listed.get(201));
        }
        assert!(guest.fs().read_ahead.kept_count() > 0);
        streams.iter().for_each(|&fh| guest.tell(Opcode::Releasedir, ROOT, &[release(fh).as_bytes()]).unwrap());
        assert_eq!(guest.fs().read_ahead.kept_count(), 0, "a stream that is closed keeps nothing");
    });
}

#[test]
fn a_stream_that_begins_again_drops_what_it_has_read_ahead() {
    each_way(|guest, dir| {
        fill(dir, 400);
        let fh = guest.opendir(ROOT).unwrap();
        let first = guest.readdir(ROOT, fh, 0, 4096).unwrap();
        assert_eq!(guest.fs().read_ahead.kept_count(), 1);
        fs::write(dir.join("new"), "").unwrap();
        let all = list(guest, ROOT, fh, 4096);
        assert_eq!(all.len(), 403);
        // Only names: where the host lists the newest entry first, offsets of others change.
        let has = |name: &[u8]| all.iter().any(|entry| entry.0 == name);
        assert!(has(b"new") && first.iter().all(|entry| has(&entry.0)));
        assert_eq!(guest.fs().read_ahead.kept_count(), 0);
    });
}

#[test]
fn a_removed_directory_ends_its_stream() {
    each_way(|guest, dir| {
        fs::create_dir(dir.join("dir")).unwrap();
        let nodeid = guest.walk("dir").unwrap();
        let fh = guest.opendir(nodeid).unwrap();
        guest.rmdir(ROOT, "dir").unwrap();
        assert_eq!(guest.readdir(nodeid, fh, 0, 4096).unwrap(), []);
    });
}

#[test]
fn readdirplus_counts_a_lookup_for_each_entry_that_it_gives_and_none_for_dots() {
    each_way(|guest, dir| {
        fill(dir, 300);
        fs::create_dir(dir.join("sub")).unwrap();
        let fh = guest.opendir(ROOT).unwrap();
        let (mut offset, mut found) = (0, Vec::new());
        loop {
            // Replies of a size that no number of entries fills.
            let some = guest.readdirplus(ROOT, fh, offset, 5000).unwrap();
            let Some(last) = some.last() else { break };
            offset = last.off;
            found.extend(some);
        }
        assert_eq!(found.len(), 303);
        for listed in &found {
            let is_dots = listed.name == b"." || listed.name == b"..";
            assert_eq!(node(&listed.entry) == NodeId(0), is_dots, "{}", listed.name.escape_ascii());
            if !is_dots {
                let host = dir.join(std::str::from_utf8(&listed.name).unwrap()).metadata().unwrap();
                assert_eq!((listed.entry.attr.ino.get(), listed.ino), (host.ino(), host.ino()));
            }
        }
        assert_eq!(guest.fs().inode_count(), 301);
        for listed in found.iter().filter(|listed| node(&listed.entry) != NodeId(0)) {
            guest.forget(node(&listed.entry), 1);
        }
        assert_eq!(guest.fs().inode_count(), 0);
    });
}

#[test]
fn a_file_is_no_directory() {
    each_way(|guest, dir| {
        fs::write(dir.join("file"), "").unwrap();
        let nodeid = guest.walk("file").unwrap();
        assert_eq!(guest.opendir(nodeid).err(), Some(Errno::NOTDIR));
        let fh = guest.opendir(ROOT).unwrap();
        assert_eq!(guest.read(fh, 0, 10).err(), Some(Errno::BADF));
    });
}

#[test]
fn what_lies_above_the_share_is_not_told() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::new(dir.path(), Config::default());
    let fh = guest.opendir(ROOT).unwrap();
    let dots = guest.readdirplus(ROOT, fh, 0, 4096).unwrap();
    assert_eq!(dots.len(), 2);
    let ino = dir.path().metadata().unwrap().ino();
    assert!(dots.iter().all(|listed| listed.ino == ino));
}

#[test]
fn a_mount_point_is_announced_and_has_its_own_inodes() {
    // Uses the machine's own mounts: /proc is one nearly everywhere.
    let mount = std::path::Path::new("/proc");
    let is_mount = mount.metadata().is_ok_and(|stat| stat.dev() != std::path::Path::new("/").metadata().unwrap().dev());
    if !is_mount {
        return println!("SKIPPED: /proc is not mounted here");
    }
    for announce_submounts in [true, false] {
        let guest = Guest::new(std::path::Path::new("/"), Config { announce_submounts, ..Config::default() });
        let entry = guest.lookup(ROOT, "proc").unwrap();
        let is_announced = AttrFlags::from_bits_retain(entry.attr.flags.get()).contains(AttrFlags::SUBMOUNT);
        assert_eq!(is_announced, announce_submounts);
        let sys = guest.lookup(node(&entry), "sys").unwrap();
        assert_eq!(sys.attr.flags.get(), 0, "a directory of the same file system");
        guest.fs().inodes.close_all();
        assert!(guest.getattr(node(&entry)).is_ok());
        let etc = guest.lookup(ROOT, "etc").unwrap();
        assert_eq!(etc.attr.flags.get(), 0);
    }
}

fn release(fh: Handle) -> transom_wire::ops::release::ReleaseIn {
    let mut arg = transom_wire::ops::release::ReleaseIn::new_zeroed();
    arg.fh = fh.into();
    arg
}
