//! A copy, and a store that changes nothing, which stop where memory is not accessible.

#![expect(unsafe_code, reason = "the memory is reached by address")]

use super::{
    instructions::{transom_fault_copy, transom_fault_touch},
    signals,
};

/// Copies `len_bytes`, and returns the number of bytes copied, which is smaller if memory on either side is not
/// accessible.
///
/// Whole pages are accessible or not, so a partial copy ends at the end of a page. Blocks while faults in mapped files
/// are served. If others change the bytes meanwhile, the copy is a mixture of old and new bytes.
///
/// # Safety
/// 1. No Rust reference exists that forbids writes to the bytes of `to`, or changes by others to the bytes of `from` if
///    others change them.
/// 2. Any part of `to..to + len_bytes` that is mapped writable may be written, and any part of `from..from + len_bytes`
///    that is mapped may be read.
pub unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize) -> usize {
    signals::install();
    // SAFETY: the caller guarantees the conditions on the memory; if a page is not accessible, the installed handler
    // ends the copy.
    let left = unsafe { transom_fault_copy(to, from, len_bytes) };
    len_bytes - left
}

/// Stores a byte's own value to it, atomically. Returns false if the byte is not writable. Blocks as [`copy`] does.
///
/// # Safety
/// If something is mapped writable at `at`, it is memory to which others may store, and no Rust reference forbids that.
pub unsafe fn touch(at: *mut u8) -> bool {
    signals::install();
    // SAFETY: the byte keeps its value; if it is not accessible, the installed handler ends the call.
    unsafe { transom_fault_touch(at) == 0 }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, thread};

    use rustix::{
        fs::ftruncate,
        mm::{MapFlags, ProtFlags, mmap, munmap},
    };

    use super::*;

    const PAGE: usize = 4096;

    /// Maps `len` pages of a file that has only `there` pages left.
    fn mapping(len: usize, there: usize) -> (*mut u8, File) {
        let file = tempfile::tempfile().unwrap();
        ftruncate(&file, (len * PAGE) as u64).unwrap();
        // SAFETY: the kernel chooses the address of the new mapping.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        };
        ftruncate(&file, (there * PAGE) as u64).unwrap();
        (start.unwrap().cast(), file)
    }

    fn end(start: *mut u8, len: usize) {
        // SAFETY: the test owns the mapping, and nothing uses it any more.
        unsafe { munmap(start.cast(), len * PAGE) }.unwrap();
    }

    #[test]
    fn what_is_there_is_copied_as_it_is() {
        for len in [0, 1, 7, 64, 4095, 4096, 100_000] {
            let from: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut to = vec![0; len];
            // SAFETY: two buffers of `len` bytes.
            assert_eq!(unsafe { copy(to.as_mut_ptr(), from.as_ptr(), len) }, len);
            assert!(to == from);
        }
    }

    #[test]
    fn a_copy_from_a_file_that_was_cut_off_ends_at_its_last_page() {
        let (start, _file) = mapping(4, 2);
        let mut to = vec![7; 4 * PAGE];
        // SAFETY: the mapping and the buffer have 4 pages, and no reference points into them.
        assert_eq!(unsafe { copy(to.as_mut_ptr(), start.wrapping_add(100), 3 * PAGE) }, 2 * PAGE - 100);
        assert!(to[..2 * PAGE - 100].iter().all(|&byte| byte == 0));
        assert!(to[2 * PAGE - 100..].iter().all(|&byte| byte == 7));
        end(start, 4);
    }

    #[test]
    fn a_copy_into_a_file_that_was_cut_off_ends_at_its_last_page() {
        let (start, file) = mapping(4, 1);
        // SAFETY: the mapping and the buffer have 4 pages, and no reference points into them.
        assert_eq!(unsafe { copy(start, vec![9; 4 * PAGE].as_ptr(), 4 * PAGE) }, PAGE);
        assert_eq!(file.metadata().unwrap().len(), PAGE as u64);
        end(start, 4);
    }

    #[test]
    fn a_touch_makes_a_page_of_a_hole_and_fails_behind_the_end() {
        let (start, file) = mapping(4, 2);
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert_eq!(blocks(), 0);
        // SAFETY: both bytes are in the mapping, and no reference points to them.
        assert!(unsafe { touch(start.wrapping_add(PAGE + 5)) && !touch(start.wrapping_add(3 * PAGE)) });
        file.sync_all().unwrap();
        assert!(blocks() >= (PAGE / 512) as u64);
        end(start, 4);
    }

    #[test]
    fn memory_that_was_never_mapped_is_an_error_in_every_thread() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut to = [0; 8];
                    // SAFETY: nothing is mapped at the first page, so nothing is read.
                    assert_eq!(unsafe { copy(to.as_mut_ptr(), std::ptr::without_provenance(8), 8) }, 0);
                });
            }
        });
    }
}
