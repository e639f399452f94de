//! A copy, and a store of what is there, that end with an error where memory is not there.

#![expect(unsafe_code, reason = "the memory is reached by address")]

use super::{
    instructions::{transom_fault_copy, transom_fault_touch},
    signals,
};

/// Copies `len_bytes`; gives how many, which is fewer where memory on either side is not there.
///
/// Whole pages are there or not, so a part that was copied ends at the end of a page. Blocks while faults in mapped
/// files are served. Others may change the bytes meanwhile: what arrives is then some mixture.
///
/// # Safety
/// 1. No Rust reference says anything about the bytes of `to` that contradicts their being written, nor about those of
///    `from`, if others change them, that contradicts that.
/// 2. What of `to..to + len_bytes` is mapped writable may be written, and what of `from..from + len_bytes` is mapped may be read.
pub unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize) -> usize {
    signals::install();
    // SAFETY: the memory is as the caller promises; where it is not there, the handler that was installed lets the copy end.
    let left = unsafe { transom_fault_copy(to, from, len_bytes) };
    len_bytes - left
}

/// Stores to a byte what is there, atomically; false where it is not there to be stored to. Blocks as [`copy`] does.
///
/// # Safety
/// If something is mapped writable at `at`, it is memory that others may store to, of which no Rust reference says otherwise.
pub unsafe fn touch(at: *mut u8) -> bool {
    signals::install();
    // SAFETY: the byte keeps its value; where it is not there, the handler that was installed lets the call end.
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

    /// A mapping of a file of `len` pages, of which only `there` are left.
    fn mapping(len: usize, there: usize) -> (*mut u8, File) {
        let file = tempfile::tempfile().unwrap();
        ftruncate(&file, (len * PAGE) as u64).unwrap();
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        };
        ftruncate(&file, (there * PAGE) as u64).unwrap();
        (start.unwrap().cast(), file)
    }

    fn end(start: *mut u8, len: usize) {
        // SAFETY: the mapping is the test's, and nothing uses it any more.
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
        // SAFETY: the mapping and the buffer are 4 pages; nobody refers to them.
        assert_eq!(unsafe { copy(to.as_mut_ptr(), start.wrapping_add(100), 3 * PAGE) }, 2 * PAGE - 100);
        assert!(to[..2 * PAGE - 100].iter().all(|&byte| byte == 0));
        assert!(to[2 * PAGE - 100..].iter().all(|&byte| byte == 7));
        end(start, 4);
    }

    #[test]
    fn a_copy_into_a_file_that_was_cut_off_ends_at_its_last_page() {
        let (start, file) = mapping(4, 1);
        // SAFETY: the mapping and the buffer are 4 pages; nobody refers to them.
        assert_eq!(unsafe { copy(start, vec![9; 4 * PAGE].as_ptr(), 4 * PAGE) }, PAGE);
        assert_eq!(file.metadata().unwrap().len(), PAGE as u64);
        end(start, 4);
    }

    #[test]
    fn a_touch_makes_a_page_of_a_hole_and_fails_behind_the_end() {
        let (start, file) = mapping(4, 2);
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert_eq!(blocks(), 0);
        // SAFETY: bytes of the mapping, of which nobody has a reference.
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
                    // SAFETY: nothing is mapped at the first page, so that nothing is read.
                    assert_eq!(unsafe { copy(to.as_mut_ptr(), std::ptr::without_provenance(8), 8) }, 0);
                });
            }
        });
    }
}
