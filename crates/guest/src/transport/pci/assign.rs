//! Addresses for the base address registers of a function, where firmware has not assigned any.

use core::ops::Range;

use super::{
    ConfigSpace,
    config_space::{SizedBar, set_bar, silently, size_bars},
};
use crate::transport::TransportError;

/// Addresses above this are only for registers of 64 bits.
const NARROW_END: u64 = 1 << 32;

/// Addresses on the bus that nothing uses yet.
///
/// For a machine with a device tree, these are the memory ranges of the host bridge
/// ([`Fdt::pci_host`](crate::transport::fdt::Fdt::pci_host)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeAddresses(Range<u64>);

impl FreeAddresses {
    /// Begins with all of `addresses`.
    pub fn new(addresses: Range<u64>) -> Self {
        Self(addresses)
    }

    /// Takes `len_bytes`, a power of two, at a multiple of it, below `end`. Address 0 is never taken: a register that
    /// holds it has no address.
    fn take(&mut self, len_bytes: u64, end: u64) -> Option<u64> {
        let start = self.0.start.max(1).checked_next_multiple_of(len_bytes)?;
        let after = start.checked_add(len_bytes).filter(|&after| after <= self.0.end.min(end))?;
        self.0.start = after;
        Some(start)
    }
}

/// Assigns an address to each base address register for memory that has none, from the first of `free` with room for
/// it. Registers for I/O ports stay without an address: virtio devices do not need them.
///
/// # Errors
/// There is not enough room; a register is broken. Some registers may have got their addresses by then.
pub fn assign_bars(config: &dyn ConfigSpace, free: &mut [FreeAddresses]) -> Result<(), TransportError> {
    silently(config, |config| {
        let mut bars = size_bars(config)?;
        // The longest first, so that no gaps are left before it.
        while let Some((index, bar)) = take_longest(&mut bars) {
            let end = if bar.is_wide { u64::MAX } else { NARROW_END };
            let address = free.iter_mut().find_map(|free| free.take(bar.len_bytes, end));
            let address = address.ok_or(TransportError::Lacks("addresses on the PCI bus for its BARs"))?;
            set_bar(config, index, address, bar.is_wide);
        }
        Ok(())
    })
}

fn take_longest(bars: &mut [Option<SizedBar>; 6]) -> Option<(usize, SizedBar)> {
    let without = bars.iter_mut().enumerate().filter(|(_, bar)| bar.is_some_and(|bar| bar.address == 0));
    let (index, bar) = without.max_by_key(|(_, bar)| bar.map_or(0, |bar| bar.len_bytes))?;
    bar.take().map(|bar| (index, bar))
}
