use std::fs::File;

use super::*;

fn file(len: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len).unwrap();
    file
}

#[test]
fn what_a_daemon_maps_is_seen_and_ends_with_its_own_unmap_only() {
    let (area, file) = (Area::reserve(8 << 20).unwrap(), file(4 << 20));
    assert_eq!(area.start().addr().get() % ALIGNMENT as usize, 0);
    area.map(2 << 20, 2 << 20, &file, 0, true).unwrap();
    area.store((2 << 20) + 5, b"hello").unwrap();
    let mut seen = [0; 5];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut seen, 5).unwrap();
    assert_eq!(&seen, b"hello");
    assert!(area.unmap(2 << 20, 1 << 20).is_err());
    assert!(area.unmap(0, 2 << 20).is_err());
    area.unmap(2 << 20, 2 << 20).unwrap();
    assert_eq!(area.mappings(), 0);
}

#[test]
fn overlaps_and_places_outside_are_refused() {
    let (area, file) = (Area::reserve(4 << 20).unwrap(), file(4 << 20));
    area.map(1 << 20, 2 << 20, &file, 0, false).unwrap();
    let all = [
        (0, 2 << 20, 0),
        (2 << 20, 2 << 20, 0),
        (0, 4 << 20, 0),
        (2 << 20, 4096, 0),
        (4 << 20, 4096, 0),
        (u64::MAX - 4095, 4096, 0),
        (0, u64::MAX, 0),
        (0, 0, 0),
        (1, 4096, 0),
        (0, 1, 0),
        (0, 4096, 1),
        (0, 4096, u64::MAX - 4095),
        (0, 4096, i64::MAX as u64 - 4095),
    ];
    for (offset, len, file_offset) in all {
        assert!(area.map(offset, len, &file, file_offset, false).is_err(), "{offset} {len} {file_offset}");
    }
    area.map(0, 1 << 20, &file, 0, false).unwrap();
    assert!(area.map(3 << 20, 1 << 20, &file, 0, false).is_err(), "more mappings than ranges");
    area.clear();
    assert_eq!(area.mappings(), 0);
}

#[test]
fn a_copy_where_nothing_is_mapped_or_the_file_has_no_page_is_an_error() {
    let (area, file) = (Area::reserve(4 << 20).unwrap(), file(2 << 20));
    assert_eq!(area.load(0, &mut [0; 8]), Err(Errno::FAULT));
    area.map(0, 2 << 20, &file, 0, true).unwrap();
    assert_eq!(area.load(1 << 20, &mut [1; 8]), Ok(()));
    assert_eq!(area.load((2 << 20) - 4, &mut [1; 8]), Err(Errno::FAULT));
    file.set_len(1 << 20).unwrap();
    assert_eq!(area.load(1 << 20, &mut [1; 8]), Err(Errno::FAULT));
    assert_eq!(area.store(1 << 20, &[1; 8]), Err(Errno::FAULT));
    assert_eq!(area.load(0, &mut [1; 8]), Ok(()));
}

#[test]
fn on_ordinary_storage_a_range_stays_as_it_is_mapped() {
    let (area, file) = (Area::reserve(4 << 20).unwrap(), file(2 << 20));
    area.map(2 << 20, 2 << 20, &file, 0, true).unwrap();
    area.store(2 << 20, b"here").unwrap();
    assert!(!area.make_synchronous(2 << 20, 2 << 20) && !area.make_synchronous(0, 2 << 20));
    // Even where it looks like the other kind.
    let kept = Arc::new(file.try_clone().unwrap().into());
    area.mappings.lock().get_mut(&(2 << 20)).unwrap().sync = MapSync::Possible(kept, 0);
    assert!(!area.make_synchronous(2 << 20, 2 << 20));
    assert_eq!(area.synchronous_mappings(), 0);
    let mut seen = [0; 4];
    area.load(2 << 20, &mut seen).unwrap();
    assert_eq!(&seen, b"here");
    area.touch(4 << 20).unwrap_err();
    area.touch((2 << 20) + 4095).unwrap();
}

#[test]
fn nothing_is_loaded_once_the_daemon_is_gone() {
    let (area, file) = (Area::reserve(2 << 20).unwrap(), file(2 << 20));
    area.map(0, 2 << 20, &file, 0, true).unwrap();
    area.close();
    assert_eq!(area.load(0, &mut [0; 8]), Err(Errno::NOTCONN));
    assert_eq!(area.store(0, &[0; 8]), Err(Errno::NOTCONN));
    assert_eq!(area.load(u64::MAX, &mut [0; 8]), Err(Errno::NOTCONN));
}
