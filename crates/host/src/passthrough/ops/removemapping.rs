//! REMOVEMAPPING.

use transom_wire::ops::{init::InitFlags, removemapping::RemovemappingOne};

use crate::{Errno, passthrough::Passthrough};

impl Passthrough {
    /// Errors: ENOSYS without a window, EINVAL for what is not aligned to ranges or lies beyond the window.
    pub(in crate::passthrough) fn do_removemapping(&self, ranges: &[RemovemappingOne]) -> Result<(), Errno> {
        let dax = self.dax.as_ref().filter(|_| self.has(InitFlags::MAP_ALIGNMENT)).ok_or(Errno::NOSYS)?;
        let ranges: Vec<_> = ranges.iter().map(|range| (range.moffset.get(), range.len.get())).collect();
        dax.window.unmap(&ranges)
    }
}
