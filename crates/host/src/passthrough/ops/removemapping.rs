//! REMOVEMAPPING.

use transom_wire::{operation::Removemapping, ops::init::InitFlags};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Removemapping> for Passthrough {
    /// # Errors
    ///
    /// ENOSYS without a window, EINVAL for a range that is not aligned or lies outside of the window.
    fn serve(&self, call: Call<'_, Removemapping>) -> Result<(), Errno> {
        let dax = self.dax.as_ref().filter(|_| self.has(InitFlags::MAP_ALIGNMENT)).ok_or(Errno::NOSYS)?;
        let ranges: Vec<_> = call.rest.iter().map(|range| (range.moffset.get(), range.len.get())).collect();
        dax.window.unmap(&ranges)
    }
}
