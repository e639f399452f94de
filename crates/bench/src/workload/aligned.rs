//! A page-aligned buffer, as O_DIRECT requires.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The granularity of files, mappings and buffers. The host's page size is a multiple of it.
pub(super) const PAGE_BYTES: usize = 4096;

/// One page.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

const _: () = assert!(size_of::<Page>() == PAGE_BYTES && align_of::<Page>() == PAGE_BYTES);

/// Whole pages, page-aligned.
pub(super) struct AlignedBuffer(Vec<Page>);

impl AlignedBuffer {
    /// Creates a buffer of at least `len_bytes`, rounded up to whole pages, filled with `fill`.
    pub(super) fn new(len_bytes: usize, fill: u8) -> Self {
        let mut pages = vec![Page::new_zeroed(); len_bytes.div_ceil(PAGE_BYTES)];
        pages.as_mut_bytes().fill(fill);
        Self(pages)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}
