use std::{fs, os::unix::fs::MetadataExt as _};

use super::*;

#[test]
fn the_number_is_what_stat_says_also_of_what_is_gone() {
    for place in ["/tmp", "/dev/shm", "/var/tmp"] {
        let Ok(dir) = tempfile::tempdir_in(place) else { continue };
        let root = fs::File::open(dir.path()).unwrap();
        let Ok(numbers) = InodeNumbers::new(&root) else {
            println!("SKIPPED: {place} has no file handles");
            continue;
        };
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let (handle, ino) = (ObjectHandle::of(fs::File::open(&path).unwrap()).unwrap(), path.metadata().unwrap().ino());
        if numbers.layout.is_none() {
            println!("SKIPPED: {place} has handles of an unknown layout");
            continue;
        }
        assert_eq!(numbers.ino(handle.as_ref()), Ok(ino), "{place}");
        fs::remove_file(&path).unwrap();
        assert_eq!(numbers.ino(handle.as_ref()), Ok(ino), "{place}");
    }
}

#[test]
fn a_handle_of_another_layout_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::File::open(dir.path()).unwrap();
    let Ok(numbers) = InodeNumbers::new(&root) else { return println!("SKIPPED: no file handles") };
    let handle = ObjectHandle::of(&root).unwrap();
    let opened = InodeNumbers { layout: None, ..numbers }.ino(handle.as_ref());
    assert!(opened == Ok(dir.path().metadata().unwrap().ino()) || opened == Err(Errno::PERM), "{opened:?}");
    let short = HandleRef { file_system: 0, type_: INO32_GEN, bytes: &[1, 2] };
    assert_eq!([Layout::Ext, Layout::Xfs, Layout::Btrfs, Layout::Tmpfs].map(|layout| layout.ino(short)), [None; 4]);
}
