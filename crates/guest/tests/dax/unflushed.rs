//! Stores through mappings are flushed, whatever has happened to the mappings, the window and the file since.

use std::{ops::Range, ptr::NonNull, sync::Arc};

use transom_guest::{
    Errno, Platform as _,
    dax::{
        RANGE_LEN,
        backing::FileBacking,
        entry::Order,
        fault::{Fault, FaultOutcome, Intent, PagePart, View},
    },
    fs::{File, OpenOptions},
};

use crate::fake::{Ticking, share};

const PAGE_LEN: u64 = Ticking::PAGE_SIZE.bytes();
/// Pages in 2 MiB.
const HUGE: u64 = Ticking::PAGE_SIZE.pages_per_huge();
const COLLAPSE_RANGE: u32 = 0x08;
const INSERT_RANGE: u32 = 0x20;

/// Page tables that do nothing.
pub(crate) struct Blind;

impl View for Blind {
    fn install(&self, _: Range<u64>, _: NonNull<u8>, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn install_zeros(&self, _: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }

    fn install_copy(&self, _: u64, _: Option<PagePart>) -> Result<(), Errno> {
        Ok(())
    }

    fn zap(&self, _: Range<u64>, _: bool) {}

    fn write_protect(&self, _: Range<u64>) {}

    fn allows_beyond_end(&self) -> bool {
        true
    }
}

/// Stores to pages of the file through a mapping, which then ends.
fn store(file: &File<Ticking>, pages: &[u64]) {
    let (mapped, view) = (file.inode().ranges().unwrap().mapped(), Arc::new(Blind));
    mapped.attach(Arc::clone(&view) as Arc<dyn View>);
    for &page in pages {
        let fault = Fault { page, order: Order::Small, intent: Intent::Store };
        assert_eq!(mapped.fault(&FileBacking::new(file.inode()), &*view, fault), FaultOutcome::Installed);
    }
    mapped.detach(&(view as Arc<dyn View>));
}

/// Returns the pages that are passed to a flush of the whole file.
fn flushed(file: &File<Ticking>) -> Vec<u64> {
    let mut flushed = Vec::new();
    let mapped = file.inode().ranges().unwrap().mapped();
    let flush = |pages| {
        flushed.extend(pages);
        Ok(())
    };
    mapped.write_back(0..u64::MAX, flush).unwrap();
    flushed
}

fn open(ranges: u64) -> (tempfile::TempDir, File<Ticking>) {
    let (dir, _, fs) = share(ranges);
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    file.set_len(4 * RANGE_LEN).unwrap();
    (dir, file)
}

#[test]
fn what_was_stored_is_flushed_once_though_it_is_mapped_no_longer() {
    let (_dir, file) = open(4);
    store(&file, &[5, 7, HUGE + 3]);
    assert_eq!(flushed(&file), [5, 7, HUGE + 3]);
    assert!(flushed(&file).is_empty());
}

#[test]
fn what_was_stored_is_flushed_though_its_range_has_given_way_to_another() {
    let (_dir, file) = open(1);
    store(&file, &[5]);
    store(&file, &[HUGE + 3]);
    store(&file, &[2 * HUGE]);
    assert_eq!(flushed(&file), [5, HUGE + 3, 2 * HUGE]);
}

#[test]
fn what_is_left_of_a_file_that_was_cut_is_flushed() {
    let (_dir, file) = open(4);
    store(&file, &[5, 299, 300, 301, 2 * HUGE]);
    file.set_len(300 * PAGE_LEN + 1).unwrap();
    assert_eq!(flushed(&file), [5, 299, 300]);
}

#[test]
fn what_lies_around_a_hole_is_flushed() {
    const PUNCH_KEEPING_SIZE: u32 = 3;
    let (_dir, file) = open(4);
    store(&file, &[5, 9, 20]);
    file.allocate(PUNCH_KEEPING_SIZE, 6 * PAGE_LEN, 4 * PAGE_LEN).unwrap();
    let flushed = flushed(&file);
    assert!(flushed.contains(&5) && flushed.contains(&20), "{flushed:?}");
}

#[test]
fn what_has_moved_is_flushed_where_it_is() {
    for (mode, expected) in [(COLLAPSE_RANGE, [5, 20 - 4]), (INSERT_RANGE, [5, 20 + 4])] {
        let (_dir, file) = open(4);
        store(&file, &[5, 20]);
        match file.allocate(mode, 8 * PAGE_LEN, 4 * PAGE_LEN) {
            Err(Errno::OPNOTSUPP) => println!("SKIPPED: the file system of the temporary directory moves no ranges"),
            result => {
                result.unwrap();
                assert_eq!(flushed(&file), expected);
            }
        }
    }
}
