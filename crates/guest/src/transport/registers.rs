//! Memory-mapped registers of a device.
//!
//! The transports use [`Registers`], so that a model can stand in for a device; [`VolatileRegisters`] accesses memory.

mod instructions;
mod volatile;

pub use volatile::VolatileRegisters;

/// A range of little-endian registers.
///
/// Values are in native byte order. As on a bus, reads outside the range return all ones and writes there are lost;
/// nothing panics. Accesses reach the device in program order, and after everything that the driver has written to
/// memory before.
pub trait Registers: Send + Sync {
    /// Returns the length of the range in bytes.
    fn len_bytes(&self) -> usize;

    /// Reads one byte.
    fn read_u8(&self, offset_bytes: usize) -> u8;

    /// Reads two bytes at a multiple of two.
    fn read_u16(&self, offset_bytes: usize) -> u16;

    /// Reads four bytes at a multiple of four.
    fn read_u32(&self, offset_bytes: usize) -> u32;

    /// Writes one byte.
    fn write_u8(&self, offset_bytes: usize, value: u8);

    /// Writes two bytes at a multiple of two.
    fn write_u16(&self, offset_bytes: usize, value: u16);

    /// Writes four bytes at a multiple of four.
    fn write_u32(&self, offset_bytes: usize, value: u32);
}

/// Fills `bytes` from the configuration space at `start_bytes`, with the access sizes that the fields require: one
/// access for each field of 1, 2 or 4 bytes, two for a field of 8, and single bytes for arrays (virtio 1.3 §4.1.3.1,
/// §4.2.2.2).
pub(super) fn read_fields(registers: &impl Registers, start_bytes: usize, bytes: &mut [u8]) {
    let is_aligned = |to: usize| start_bytes % to == 0;
    match bytes.len() {
        2 if is_aligned(2) => bytes.copy_from_slice(&registers.read_u16(start_bytes).to_le_bytes()),
        4 | 8 if is_aligned(4) => {
            for (word, offset) in bytes.chunks_exact_mut(4).zip((start_bytes..).step_by(4)) {
                word.copy_from_slice(&registers.read_u32(offset).to_le_bytes());
            }
        }
        _ => {
            for (byte, offset) in bytes.iter_mut().zip(start_bytes..) {
                *byte = registers.read_u8(offset);
            }
        }
    }
}
