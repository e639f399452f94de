//! Mirrors of the table, as the guests of members read and spoil them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    hint,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
    sync::Barrier,
    thread,
};

use super::{
    group_test::{Peer, directories, eventually, join},
    *,
};

/// Joins as a daemon whose guest has a mirror, and returns the mirror as that guest reads it.
fn join_with_mirror(place: &Path, share: &Path) -> (Group, File, Reader<Mapping>) {
    let file = TableFile::open(&GroupLocation::Directory(place.to_owned()), Some(share)).unwrap();
    let group = Group::join(&file, File::open(share).unwrap(), &ProcFds::open().unwrap()).unwrap();
    let fd = group.reserve_mirror(file).unwrap().unwrap().try_clone_to_owned().unwrap();
    assert!(group.mirror_starter()());
    let reader = Reader::new(Mapping::guarded(&fd, group.table_len_bytes() as usize).unwrap()).unwrap();
    (group, fd.into(), reader)
}

#[test]
fn a_mirror_says_what_the_table_says_whoever_writes_it() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    one.heat(one.slot(5));
    let (two, _, mirror) = join_with_mirror(place.path(), share.path());
    let (three, _, other) = join_with_mirror(place.path(), share.path());
    assert!(mirror.is_hot(mirror.slot(5)) && other.is_hot(other.slot(5)), "from before");
    let fetched = mirror.now();
    for writer in [&one, &two, &three] {
        let before = [mirror.now(), other.now()];
        writer.stamp(&[writer.slot(7)]);
        assert!(!mirror.is_valid(7, before[0]) && !other.is_valid(7, before[1]));
        assert!(mirror.is_valid(7, mirror.now()) && other.is_valid(7, other.now()));
    }
    one.cool(one.slot(5));
    assert!(!mirror.is_hot(mirror.slot(5)) && !mirror.is_valid(5, fetched));
    one.invalidate_all();
    assert!(!mirror.is_valid(9, fetched) && mirror.now() == one.now());
}

#[test]
fn a_member_that_dies_has_no_mirror_left_that_is_valid() {
    let (place, share) = directories();
    let (_one, _, mirror) = join_with_mirror(place.path(), share.path());
    let peer = Peer::start(place.path(), share.path(), "nothing");
    let fetched = mirror.now();
    drop(peer);
    eventually("the epoch is raised in the mirror", || !mirror.is_valid(7, fetched));
}

#[test]
fn a_guest_whose_daemon_has_ended_uses_nothing_by_its_mirror() {
    let (place, share) = directories();
    let (_one, _, kept) = join_with_mirror(place.path(), share.path());
    let (two, _, mirror) = join_with_mirror(place.path(), share.path());
    assert!(mirror.is_valid(7, mirror.now()));
    drop(two);
    assert!(!mirror.is_valid(7, mirror.now()) && kept.is_valid(7, kept.now()));
}

#[test]
fn a_guest_that_writes_its_mirror_deceives_itself_alone() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let (_two, file, mirror) = join_with_mirror(place.path(), share.path());
    let (three, _, other) = join_with_mirror(place.path(), share.path());
    let len = file.metadata().unwrap().len() as usize;
    for bytes in [vec![0xff; len], vec![0; len]] {
        file.write_all_at(&bytes, 0).unwrap();
        let fetched = [one.now(), other.now()];
        three.stamp(&[three.slot(7)]);
        assert!(!one.is_valid(7, fetched[0]) && !other.is_valid(7, fetched[1]));
        assert!(one.is_valid(7, one.now()) && other.is_valid(7, other.now()) && other.is_valid(8, fetched[1]));
    }
    // A front end that cuts the file off ends nobody.
    file.set_len(0).unwrap();
    let fetched = other.now();
    three.stamp(&[three.slot(7)]);
    one.invalidate_all();
    assert!(!other.is_valid(7, fetched));
    drop(mirror);
    // Its file is made whole for whoever starts now, and not used again.
    let (_four, again, _) = join_with_mirror(place.path(), share.path());
    assert_ne!(again.metadata().unwrap().ino(), file.metadata().unwrap().ino());
}

#[test]
fn a_mirror_serves_one_daemon_only_and_their_number_is_bounded() {
    let (place, share) = directories();
    let _one = join(place.path(), share.path()).unwrap();
    let mut files = BTreeSet::new();
    for _ in 0..area::MIRRORS_MAX {
        let (_group, file, _) = join_with_mirror(place.path(), share.path());
        assert!(files.insert(file.metadata().unwrap().ino()), "its guest may still have it mapped");
    }
    let file = TableFile::open(&GroupLocation::Directory(place.path().to_owned()), Some(share.path())).unwrap();
    let group = Group::join(&file, File::open(share.path()).unwrap(), &ProcFds::open().unwrap()).unwrap();
    assert!(group.reserve_mirror(file).unwrap().is_none());
}

#[test]
fn a_mirror_that_no_front_end_has_asked_for_is_left_to_others() {
    let (place, share) = directories();
    let _one = join(place.path(), share.path()).unwrap();
    let mut files = BTreeSet::new();
    for _ in 0..3 {
        let file = TableFile::open(&GroupLocation::Directory(place.path().to_owned()), Some(share.path())).unwrap();
        let group = Group::join(&file, File::open(share.path()).unwrap(), &ProcFds::open().unwrap()).unwrap();
        let fd = group.reserve_mirror(file).unwrap().unwrap().try_clone_to_owned().unwrap();
        files.insert(File::from(fd).metadata().unwrap().ino());
    }
    assert_eq!(files.len(), 1);
}

/// Returns the process's part of the group, which has reserved a mirror, and the mirror's inode.
fn reserve(place: &Path, share: &Path) -> (Group, u64) {
    let file = TableFile::open(&GroupLocation::Directory(place.to_owned()), Some(share)).unwrap();
    let group = Group::join(&file, File::open(share).unwrap(), &ProcFds::open().unwrap()).unwrap();
    let fd = group.reserve_mirror(file).unwrap().unwrap().try_clone_to_owned().unwrap();
    let ino = File::from(fd).metadata().unwrap().ino();
    (group, ino)
}

#[test]
fn a_mirror_that_a_dead_member_has_reserved_and_not_used_is_left_to_others() {
    let (place, share) = directories();
    let (one, first) = reserve(place.path(), share.path());
    let peer = Peer::start(place.path(), share.path(), "mirror");
    let (two, third) = reserve(place.path(), share.path());
    assert_ne!(first, third);
    drop(peer);
    eventually("its record is free", || one.members() == 2);
    let (three, second) = reserve(place.path(), share.path());
    assert!(second != first && second != third);
    let numbers = [&one, &two, &three].map(|group| group.inner.mirror.get().unwrap().number);
    assert_eq!(numbers, [0, 2, 1], "the mirror of the dead member is used again");
}

#[test]
fn a_mirror_that_is_offered_while_its_daemon_leaves_is_neither_written_nor_valid_afterwards() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    for round in 0..area::MIRRORS_MAX - 1 {
        let (group, _) = reserve(place.path(), share.path());
        let mirror = group.inner.mirror.get().unwrap();
        let (number, fd) = (mirror.number, mirror.fd.try_clone().unwrap());
        let len = group.table_len_bytes() as usize;
        let (start, begun) = (group.mirror_starter(), Barrier::new(2));
        // Both orders once for certain, and then whichever it is.
        let is_offered = match round {
            0 => {
                assert!(start());
                drop(group);
                true
            }
            1 => {
                drop(group);
                assert!(!start());
                false
            }
            _ => thread::scope(|scope| {
                let offering = scope.spawn(|| {
                    begun.wait();
                    start()
                });
                begun.wait();
                // The thread fills the table meanwhile, or has not begun to.
                (0..1000 * (round % 16)).for_each(|_| hint::spin_loop());
                drop(group);
                offering.join().unwrap()
            }),
        };
        let used = one.inner.area.mirrors_used(number / 64).load(SeqCst);
        assert_eq!(used & 1 << (number % 64), 0, "round {round}: it is written forever");
        if is_offered {
            let mirror = Reader::new(Mapping::guarded(&fd, len).unwrap()).unwrap();
            assert!((0..200).all(|ino| !mirror.is_valid(ino, mirror.now())), "round {round}");
        }
        assert!(!start(), "nobody gets it any more");
    }
}

#[test]
fn no_store_into_a_mirror_or_into_what_a_member_writes_needs_space() {
    let (place, share) = directories();
    let (group, _) = reserve(place.path(), share.path());
    let taken = |name: &str| fs::metadata(place.path().join(name)).unwrap().blocks() * 512;
    let table_len = group.table_len_bytes();
    assert!(taken("mirror.0") >= table_len);
    assert_eq!(taken("mirror.1"), 0, "the others take none");
    let heat = Area::heat_bytes(group.inner.table.reader().slots(), 0);
    // The table, the area, the counts of the member and of those that are dead.
    assert!(taken("table") >= (heat.end + heat.len()) as u64);
}
