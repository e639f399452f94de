//! The configuration space of a PCI function, as the kernel's bus driver accesses it, and the memory ranges that it
//! names.

use crate::transport::TransportError;

/// The 256 bytes of configuration that every PCI function has.
pub trait ConfigSpace {
    /// Reads four bytes at a multiple of four below 256; all ones if there is no function.
    fn read_u32(&self, offset_bytes: u8) -> u32;

    /// Writes four bytes at a multiple of four below 256.
    fn write_u32(&self, offset_bytes: u8, value: u32);
}

/// A base address register for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// Its physical address on the bus, above 0.
    pub address: u64,
    /// Length in bytes, a power of two; `address + len_bytes` does not overflow.
    pub len_bytes: u64,
}

/// A part of a base address register, for the kernel to map uncached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarRange {
    /// Index of the register, 0 to 5.
    pub bar: u8,
    /// The physical address of the part.
    pub address: u64,
    /// Length in bytes, above 0.
    pub len_bytes: u64,
}

/// The offset of the first of six base address registers.
const BARS_AT: u8 = 0x10;
const COMMAND_AT: u8 = 0x04;

/// The function responds to memory accesses; it may access memory itself; its interrupt line is disabled.
const COMMAND_MEMORY: u32 = 1 << 1;
const COMMAND_MASTER: u32 = 1 << 2;
const COMMAND_LINE_OFF: u32 = 1 << 10;

/// The command register shares its word with the status, whose bits are cleared by writing ones, so only zeros are
/// written there.
const COMMAND_BITS: u32 = 0xffff;

/// Reads one byte of the configuration.
pub(super) fn read_u8(config: &dyn ConfigSpace, offset_bytes: u8) -> u8 {
    let word = config.read_u32(offset_bytes & !3);
    word.to_le_bytes()[usize::from(offset_bytes & 3)]
}

/// Enables responses to memory accesses.
pub(super) fn enable_memory(config: &dyn ConfigSpace) {
    let command = config.read_u32(COMMAND_AT) & COMMAND_BITS;
    config.write_u32(COMMAND_AT, command | COMMAND_MEMORY);
}

/// Enables responses to memory accesses, access to memory and, if `has_line`, the interrupt line.
pub(super) fn enable(config: &dyn ConfigSpace, has_line: bool) {
    let command = config.read_u32(COMMAND_AT) & COMMAND_BITS & !COMMAND_LINE_OFF;
    let line = if has_line { 0 } else { COMMAND_LINE_OFF };
    config.write_u32(COMMAND_AT, command | COMMAND_MEMORY | COMMAND_MASTER | line);
}

/// A base address register for memory, with or without an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizedBar {
    pub(super) address: u64,
    pub(super) len_bytes: u64,
    /// It has 64 bits, and takes the place of the next one too.
    pub(super) is_wide: bool,
}

/// Returns the base address registers for memory, by index.
///
/// Probes their lengths by writing ones, as PCI specifies, while the function does not respond to memory accesses. A
/// register without an address counts as absent.
pub fn read_bars(config: &dyn ConfigSpace) -> Result<[Option<Bar>; 6], TransportError> {
    let sized = silently(config, size_bars)?;
    let mut bars = [None; 6];
    for (bar, sized) in bars.iter_mut().zip(sized) {
        let Some(SizedBar { address: address @ 1.., len_bytes, .. }) = sized else { continue };
        if address.checked_add(len_bytes).is_none() {
            return Err(TransportError::Broken("a BAR of an impossible length"));
        }
        *bar = Some(Bar { address, len_bytes });
    }
    Ok(bars)
}

/// Calls `change` while the function does not respond to memory accesses.
pub(super) fn silently<T>(config: &dyn ConfigSpace, change: impl FnOnce(&dyn ConfigSpace) -> T) -> T {
    let command = config.read_u32(COMMAND_AT) & COMMAND_BITS;
    config.write_u32(COMMAND_AT, command & !COMMAND_MEMORY);
    let result = change(config);
    config.write_u32(COMMAND_AT, command);
    result
}

/// Returns all base address registers for memory. The function does not respond to memory accesses.
pub(super) fn size_bars(config: &dyn ConfigSpace) -> Result<[Option<SizedBar>; 6], TransportError> {
    let mut bars = [None; 6];
    let mut index = 0;
    while let Some(place) = bars.get_mut(index) {
        let offset = BARS_AT + 4 * index as u8;
        let low = config.read_u32(offset);
        let (is_memory, is_wide) = (low & 1 == 0, low & 0b110 == 0b100);
        index += 1;
        if !is_memory {
            continue;
        }
        let mut mask = u64::from(probe(config, offset) & !0xf);
        let mut address = u64::from(low & !0xf);
        if is_wide {
            if index == 6 {
                return Err(TransportError::Broken("its last BAR is 64 bits wide"));
            }
            address |= u64::from(config.read_u32(offset + 4)) << 32;
            mask |= u64::from(probe(config, offset + 4)) << 32;
            index += 1;
        } else if mask != 0 {
            mask |= u64::from(u32::MAX) << 32;
        }
        if mask == 0 {
            continue;
        }
        let len_bytes = (!mask).wrapping_add(1);
        if !len_bytes.is_power_of_two() {
            return Err(TransportError::Broken("a BAR of an impossible length"));
        }
        *place = Some(SizedBar { address, len_bytes, is_wide });
    }
    Ok(bars)
}

/// Stores the address of a base address register.
pub(super) fn set_bar(config: &dyn ConfigSpace, index: usize, address: u64, is_wide: bool) {
    let offset = BARS_AT + 4 * index as u8;
    config.write_u32(offset, address as u32);
    if is_wide {
        config.write_u32(offset + 4, (address >> 32) as u32);
    }
}

/// Returns the writable bits of a base address register, and restores the register.
fn probe(config: &dyn ConfigSpace, offset_bytes: u8) -> u32 {
    let before = config.read_u32(offset_bytes);
    config.write_u32(offset_bytes, u32::MAX);
    let mask = config.read_u32(offset_bytes);
    config.write_u32(offset_bytes, before);
    mask
}
