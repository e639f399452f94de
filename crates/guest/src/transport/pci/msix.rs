//! MSI-X, for a kernel whose bus driver does not set it up: where a function's table of messages is, and its entries.
//!
//! Source: PCI Local Bus 3.0, section 6.8.2.

use super::{
    capabilities::find,
    config_space::{BarRange, ConfigSpace, enable_memory, read_bars},
};
use crate::transport::{Registers, TransportError};

const CAPABILITY: u8 = 0x11;
/// The upper half of the capability's first word controls it: the table's length less one, and two switches.
const LEN_MASK: u32 = 0x7ff;
const CONTROL_SHIFT: u32 = 16;
const ENABLE: u32 = 1 << 31;
const MASK_ALL: u32 = 1 << 30;
/// The BAR's index within the word that locates the table.
const BAR_MASK: u32 = 7;

/// The last offset at which all of the capability's 12 bytes are within the configuration space.
const LAST_AT: u8 = 0xf4;

/// An entry of the table: address, its upper half, data, control.
const ENTRY_LEN: usize = 16;
const MASKED: u32 = 1;

/// What a function stores to interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The address, a multiple of 4. On x86: `0xfee0_0000 | apic_id << 12`.
    pub address: u64,
    /// The value. On x86: the processor's vector.
    pub data: u32,
}

/// A function's table of messages.
pub struct Msix<R> {
    table: R,
    len: u16,
    capability_at: u8,
}

impl<R: Registers> Msix<R> {
    /// Finds and maps the table; `None` if the function has no MSI-X. Has the function respond
    /// to memory accesses, which the table needs, and enables nothing else.
    ///
    /// Errors: the list of capabilities is broken; the table exceeds its BAR; `map` fails.
    pub fn new(
        config: &dyn ConfigSpace,
        map: impl FnOnce(BarRange) -> Result<R, TransportError>,
    ) -> Result<Option<Self>, TransportError> {
        let Some(capability_at) = find(config, CAPABILITY)? else { return Ok(None) };
        let len = (config.read_u32(capability_at) >> CONTROL_SHIFT & LEN_MASK) as u16 + 1;
        if capability_at > LAST_AT {
            return Err(TransportError::Broken("a PCI capability beyond the configuration space"));
        }
        let place = config.read_u32(capability_at + 4);
        let (index, offset_bytes) = (place & BAR_MASK, u64::from(place & !BAR_MASK));
        let len_bytes = u64::from(len) * ENTRY_LEN as u64;
        let bar = read_bars(config)?.get(index as usize).copied().flatten();
        let bar = bar.filter(|bar| offset_bytes + len_bytes <= bar.len_bytes);
        let bar = bar.ok_or(TransportError::Broken("its table of messages does not lie within a BAR"))?;
        enable_memory(config);
        let table = map(BarRange { bar: index as u8, address: bar.address + offset_bytes, len_bytes })?;
        Ok(Some(Self { table, len, capability_at }))
    }

    /// Returns the number of entries, 1 to 2048: vectors 0 to `len` - 1.
    #[expect(clippy::len_without_is_empty, reason = "a table has at least one entry")]
    pub fn len(&self) -> u16 {
        self.len
    }

    /// Sets the message of `vector`, and lets it through. Ignores a vector without an entry.
    pub fn set(&self, vector: u16, message: Message) {
        if vector >= self.len {
            return;
        }
        let entry = usize::from(vector) * ENTRY_LEN;
        self.table.write_u32(entry + 12, MASKED);
        self.table.write_u32(entry, message.address as u32);
        self.table.write_u32(entry + 4, (message.address >> 32) as u32);
        self.table.write_u32(entry + 8, message.data);
        self.table.write_u32(entry + 12, 0);
    }

    /// Has the function interrupt by messages, and not by its line.
    pub fn enable(&self, config: &dyn ConfigSpace) {
        self.switch(config, ENABLE);
    }

    /// Has the function interrupt by its line.
    pub fn disable(&self, config: &dyn ConfigSpace) {
        self.switch(config, 0);
    }

    fn switch(&self, config: &dyn ConfigSpace, bits: u32) {
        let control = config.read_u32(self.capability_at) & !(ENABLE | MASK_ALL);
        config.write_u32(self.capability_at, control | bits);
    }
}
