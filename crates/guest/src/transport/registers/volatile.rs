#![expect(unsafe_code, reason = "registers of a device are reached by address")]
//! The registers of a real device.

use core::ptr::NonNull;

use super::{Registers, instructions};

/// Registers at an address at which the kernel has mapped a device, uncached.
#[derive(Debug)]
pub struct VolatileRegisters {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the memory belongs to no thread: `new` requires that it stays mapped for all of them, and it is only accessed
// by single accesses, which the device accepts from any processor.
unsafe impl Send for VolatileRegisters {}
// SAFETY: as for `Send`; `&self` only reads `start` and `len_bytes`, which never change.
unsafe impl Sync for VolatileRegisters {}

/// One access, checked to lie within the range and at a multiple of its own size.
macro_rules! accesses {
    ($read:ident, $write:ident, $value:ty) => {
        fn $read(&self, offset_bytes: usize) -> $value {
            let Some(place) = self.place::<$value>(offset_bytes) else { return <$value>::MAX };
            // SAFETY: `place` lies within the range that `new` requires to be mapped, and is aligned for the type.
            <$value>::from_le(unsafe { instructions::$read(place.as_ptr()) })
        }

        fn $write(&self, offset_bytes: usize, value: $value) {
            let Some(place) = self.place::<$value>(offset_bytes) else { return };
            // SAFETY: `place` lies within the range that `new` requires to be mapped and writable, and is aligned for
            // the type.
            unsafe { instructions::$write(place.as_ptr(), value.to_le()) };
        }
    };
}

impl VolatileRegisters {
    /// Creates registers that begin at `start`.
    ///
    /// # Safety
    /// - `start` is a multiple of 4.
    /// - All of `start..start + len_bytes` is memory of one device, mapped for reading and writing for as long as this
    ///   value lives.
    /// - No Rust reference points into it.
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize) -> Self {
        Self { start, len_bytes }
    }

    /// Returns the address of a value, if all of it lies within the range.
    fn place<T>(&self, offset_bytes: usize) -> Option<NonNull<T>> {
        let end = offset_bytes.checked_add(size_of::<T>())?;
        // SAFETY: the sum is only computed if `offset_bytes` is at most `len_bytes`, so it stays within the range.
        let place = (end <= self.len_bytes).then(|| unsafe { self.start.add(offset_bytes) })?.cast::<T>();
        place.is_aligned().then_some(place)
    }
}

impl Registers for VolatileRegisters {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    accesses!(read_u8, write_u8, u8);
    accesses!(read_u16, write_u16, u16);
    accesses!(read_u32, write_u32, u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_order_of_bytes_is_little_endian() {
        let mut memory = [0u32; 4];
        // SAFETY: `memory` outlives the registers, is aligned for `u32`, and is not accessed directly until they are
        // gone.
        let registers = unsafe { VolatileRegisters::new(NonNull::from(&mut memory).cast(), 16) };
        registers.write_u32(4, 0x0403_0201);
        registers.write_u16(8, 0x0605);
        registers.write_u8(15, 7);
        assert_eq!((registers.read_u8(4), registers.read_u8(7), registers.read_u16(6)), (1, 4, 0x0403));
        assert_eq!((registers.read_u32(8), registers.read_u32(12)), (0x0605, 0x0700_0000));
    }

    #[test]
    fn outside_and_across_alignment_everything_reads_as_ones_and_writes_are_lost() {
        let mut memory = [0u32; 2];
        // SAFETY: `memory` outlives the registers, is aligned for `u32`, and is not accessed directly until they are
        // gone.
        let registers = unsafe { VolatileRegisters::new(NonNull::from(&mut memory).cast(), 6) };
        for offset in [2, 4, 6, 8, usize::MAX - 1, usize::MAX] {
            registers.write_u32(offset, 5);
            assert_eq!(registers.read_u32(offset), u32::MAX, "at {offset}");
        }
        assert_eq!((registers.read_u16(1), registers.read_u8(6)), (u16::MAX, u8::MAX));
        assert_eq!(memory, [0, 0]);
    }
}
