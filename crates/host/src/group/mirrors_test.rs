//! Mirrors of the table, as the guests of members read and spoil them.

use std::{
    collections::BTreeSet,
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use super::{
    group_test::{Peer, directories, eventually, join},
    *,
};

/// Joins as a daemon whose guest has a mirror, and returns the mirror as that guest reads it.
fn join_with_mirror(place: &Path, share: &Path) -> (Group, File, Reader<Mapping>) {
    let file = TableFile::open(&GroupLocation::Directory(place.to_owned()), Some(share)).unwrap();
    let group = Group::join(&file, File::open(share).unwrap(), &ProcFds::open().unwrap()).unwrap();
    let fd = group.reserve_mirror(file).unwrap().try_clone_to_owned().unwrap();
    group.mirror_starter()();
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
    assert!(group.reserve_mirror(file).is_none());
}

#[test]
fn a_mirror_that_no_front_end_has_asked_for_is_left_to_others() {
    let (place, share) = directories();
    let _one = join(place.path(), share.path()).unwrap();
    let mut files = BTreeSet::new();
    for _ in 0..3 {
        let file = TableFile::open(&GroupLocation::Directory(place.path().to_owned()), Some(share.path())).unwrap();
        let group = Group::join(&file, File::open(share.path()).unwrap(), &ProcFds::open().unwrap()).unwrap();
        let fd = group.reserve_mirror(file).unwrap().try_clone_to_owned().unwrap();
        files.insert(File::from(fd).metadata().unwrap().ino());
    }
    assert_eq!(files.len(), 1);
}
