//! A file as the backing of a mapping: what is in the window, and what is a hole.

use alloc::sync::Arc;

use transom_guest::{
    Errno,
    dax::{
        Pin, RANGE_LEN,
        backing::FileBacking,
        fault::{Backing, LentPage},
    },
    session::Caller,
    volume::OpenFile,
};

use crate::bare::platform::Bare;

/// What loads see in the holes of a mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holes {
    /// The file, through the window: others may fill the hole at any time.
    OfTheFile,
    /// A page of zeros that all holes share, which takes nothing of the window. While the mapping exists, holes are
    /// filled by stores to mappings of this kernel only: a file of this guest's own.
    Zeros,
}

/// The backing for one fault.
pub(super) struct Sparse<'f> {
    file: FileBacking<'f, Bare>,
    open: &'f OpenFile<Bare>,
    holes: Holes,
}

impl<'f> Sparse<'f> {
    pub(super) fn new(open: &'f Arc<OpenFile<Bare>>, holes: Holes) -> Self {
        Self { file: FileBacking::new(open.inode()), open, holes }
    }

    /// Returns whether there is no byte in the 2 MiB with this number.
    fn is_hole(&self, index: u64) -> Result<bool, Errno> {
        match self.open.seek_data(&Caller::default(), index * RANGE_LEN) {
            Ok(data) => Ok(data >= (index + 1) * RANGE_LEN),
            // No data follows up to the end of the file.
            Err(Errno::NXIO) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Backing for Sparse<'_> {
    type Lent<'a>
        = Pin<'a, Bare>
    where
        Self: 'a;

    fn len_bytes(&self, wanted: u64) -> Result<u64, Errno> {
        self.file.len_bytes(wanted)
    }

    fn known_len_bytes(&self) -> u64 {
        self.file.known_len_bytes()
    }

    fn lend(&self, index: u64, is_write: bool) -> Result<LentPage<Pin<'_, Bare>>, Errno> {
        if self.holes == Holes::Zeros && !is_write && self.is_hole(index)? {
            return Ok(LentPage::Hole);
        }
        self.file.lend(index, is_write)
    }
}
