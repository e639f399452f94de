//! The sizes that a page of the guest may have.

use core::ops::Range;

use transom_wire::window::RANGE_LEN;

/// The size of a page in the guest's page tables.
///
/// It decides how finely mapped files are faulted, write-protected and marked as stored to. It does not depend on what
/// INIT negotiates. Of a page larger than the host's, the host may have a part only: see
/// [`FaultOutcome::PartialPage`](crate::dax::fault::FaultOutcome::PartialPage).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageSize {
    /// 4 KiB.
    #[default]
    Kib4,
    /// 16 KiB.
    Kib16,
    /// 64 KiB.
    Kib64,
}

impl PageSize {
    /// Every size, the smallest first.
    pub const ALL: [Self; 3] = [Self::Kib4, Self::Kib16, Self::Kib64];

    /// Returns the size with this number of bytes, or `None` if no page has it.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            0x1000 => Some(Self::Kib4),
            0x4000 => Some(Self::Kib16),
            0x1_0000 => Some(Self::Kib64),
            _ => None,
        }
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Kib4 => 0x1000,
            Self::Kib16 => 0x4000,
            Self::Kib64 => 0x1_0000,
        }
    }

    /// Returns the number of pages in 2 MiB: 512, 128 or 32.
    pub const fn pages_per_huge(self) -> u64 {
        RANGE_LEN / self.bytes()
    }

    /// Returns the numbers of the aligned 2 MiB that contain `pages`.
    pub(crate) fn huge_of(self, pages: &Range<u64>) -> Range<u64> {
        let count = self.pages_per_huge();
        if pages.is_empty() { 0..0 } else { pages.start / count..pages.end.div_ceil(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_of_pages_have_a_value() {
        let sizes: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
        assert_eq!(sizes.map(PageSize::from_bytes), PageSize::ALL.map(Some));
        assert_eq!(PageSize::ALL.map(PageSize::bytes), sizes);
        assert_eq!(PageSize::ALL.map(PageSize::pages_per_huge), [512, 128, 32]);
        for wrong in [0, 1, 4095, 4097, 8 << 10, 32 << 10, 2 << 20, u64::MAX] {
            assert_eq!(PageSize::from_bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pages_lie_in_the_two_mebibytes_that_they_touch() {
        for size in PageSize::ALL {
            let huge = size.pages_per_huge();
            let of = |pages| size.huge_of(&pages);
            assert_eq!([of(0..0), of(0..huge), of(0..huge + 1)], [0..0, 0..1, 0..2]);
            assert_eq!([of(huge - 1..huge), of(huge..2 * huge)], [0..1, 1..2]);
        }
    }
}
