//! The end of a file in the window: the guest never sees bytes other than the file's, and never changes its size by
//! mapping it.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use rustix::io::Errno;
use transom_frontend::{FrontEnd, fuse::Session, queue::Queue};

use crate::host::{Kind, RANGE, Share, contents, lookup};

const PAGE: u64 = 4096;

/// Maps a range of a file where it can be mapped; false where the daemon says that it cannot.
fn map(session: &mut Session<Queue>, nodeid: u64, file_range: u64, at: u64) -> bool {
    match session.setupmapping(nodeid, file_range * RANGE, RANGE, at, true) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.errno(), Some(Errno::OPNOTSUPP), "{error}");
            false
        }
    }
}

/// What is mapped at `at` is `file_range` of the file at `path`: its bytes, zeros up to the end of the page, nothing
/// beyond.
fn shows(front_end: &FrontEnd, path: &Path, file_range: u64, at: u64) {
    let (window, bytes) = (front_end.expect_window(), fs::read(path).unwrap());
    let here = bytes.len().saturating_sub((file_range * RANGE) as usize).min(RANGE as usize) as u64;
    let expected = &bytes[bytes.len().min((file_range * RANGE) as usize)..][..here as usize];
    assert!(window.read(at, here as usize).unwrap() == expected, "{here} bytes of range {file_range}");
    let page_end = here.next_multiple_of(PAGE);
    assert_eq!(window.read(at + here, (page_end - here) as usize).unwrap(), vec![0; (page_end - here) as usize]);
    if page_end < RANGE {
        assert!(window.read(at + page_end, 1).is_err(), "a page past the end of the file");
    }
}

#[test]
fn files_of_any_size_show_their_bytes_or_are_not_mapped() {
    for share in Share::each() {
        for len in [1, 19, PAGE, RANGE - 1, RANGE, RANGE + 777, 2 * RANGE - PAGE, 2 * RANGE] {
            let path = share.file(&format!("file{len}"), len, len as u8);
            let before = fs::metadata(&path).unwrap();
            let (front_end, mut session) = share.session();
            let nodeid = lookup(&mut session, &path);
            for range in 0..len.div_ceil(RANGE) {
                let is_mapped = map(&mut session, nodeid, range, (5 - range) * RANGE);
                assert!(
                    is_mapped || (range + 1) * RANGE > len,
                    "range {range} of {len} bytes can be mapped by anybody"
                );
                assert!(is_mapped || share.kind == Kind::Qemu, "crosvm maps beyond the end");
                if is_mapped {
                    shows(&front_end, &path, range, (5 - range) * RANGE);
                }
            }
            share.agrees(&front_end);
            session.destroy().unwrap();
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.len(), after.mtime_nsec()), (before.len(), before.mtime_nsec()));
            assert!(fs::read(&path).unwrap() == contents(len, len as u8));
        }
    }
}

#[test]
fn an_empty_file_stays_empty() {
    for share in Share::each() {
        let path = share.file("file", 0, 0);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        map(&mut session, nodeid, 0, 0);
        map(&mut session, nodeid, 7, 0);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        share.agrees(&front_end);
    }
}

#[test]
fn a_file_that_grows_and_shrinks_is_shown_as_it_is() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 3);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        assert!(map(&mut session, nodeid, 0, RANGE));
        // 1. It grows by the host's hand: the new range can be mapped once it is whole, or at once.
        file.write_all_at(&contents(777, 4), RANGE).unwrap();
        if map(&mut session, nodeid, 1, 0) {
            shows(&front_end, &path, 1, 0);
        }
        file.set_len(2 * RANGE).unwrap();
        assert!(map(&mut session, nodeid, 1, 0));
        shows(&front_end, &path, 1, 0);
        // 2. It shrinks by the guest's: the pages that are gone are gone, the rest stays.
        session.truncate(nodeid, 10 * PAGE + 5).unwrap();
        shows(&front_end, &path, 0, RANGE);
        assert!(front_end.expect_window().read(0, 1).is_err());
        // 3. It grows again, by the guest's: the same mappings show zeros where nothing was written.
        session.truncate(nodeid, 2 * RANGE).unwrap();
        let fh = session.open(nodeid, libc::O_RDWR as u32).unwrap();
        session.write(nodeid, fh, RANGE + 5, b"again").unwrap();
        assert!(map(&mut session, nodeid, 0, RANGE) && map(&mut session, nodeid, 1, 0));
        shows(&front_end, &path, 0, RANGE);
        shows(&front_end, &path, 1, 0);
        assert_eq!(front_end.expect_window().read(5, 5).unwrap(), b"again");
        // 4. A hole in a mapped range reads as zeros, and takes what is stored.
        let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
        session.fallocate(nodeid, fh, 0, PAGE, punch).unwrap();
        shows(&front_end, &path, 0, RANGE);
        front_end.expect_window().store(RANGE + 9, b"stored").unwrap();
        assert_eq!(&fs::read(&path).unwrap()[9..15], b"stored");
        // 5. Without a name it lives on.
        fs::remove_file(&path).unwrap();
        front_end.expect_window().store(RANGE, b"nameless").unwrap();
        assert_eq!(session.read(nodeid, fh, 0, 8).unwrap(), b"nameless");
        session.release(nodeid, fh).unwrap();
        share.agrees(&front_end);
    }
}
