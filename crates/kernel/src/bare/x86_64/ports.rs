//! The CPU's I/O ports and cycle counter.

#![expect(unsafe_code, reason = "ports are accessed by special instructions")]

use core::arch::{asm, x86_64::_rdtsc};

/// QEMU's `isa-debug-exit`.
const EXIT: u16 = 0xf4;

/// Writes a byte to a port of a PC's own devices.
pub(in crate::bare) fn write_u8(port: u16, value: u8) {
    // SAFETY: only the kernel drives the devices at the ports that it uses, and none of these devices accesses memory
    // by itself.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Writes two bytes, as [`write_u8`] writes one.
pub(in crate::bare) fn write_u16(port: u16, value: u16) {
    // SAFETY: as for `write_u8`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) }
}

/// Writes four bytes, as [`write_u8`] writes one.
pub(in crate::bare) fn write_u32(port: u16, value: u32) {
    // SAFETY: as for `write_u8`; for the configuration of a PCI function, the caller decides which accesses it permits
    // the device.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte.
pub(in crate::bare) fn read_u8(port: u16) -> u8 {
    let value;
    // SAFETY: as for `write_u8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Reads four bytes.
pub(in crate::bare) fn read_u32(port: u16) -> u32 {
    let value;
    // SAFETY: as for `write_u8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Returns the CPU cycles since power-on.
pub(in crate::bare) fn cycles() -> u64 {
    // SAFETY: every CPU of this architecture has the counter, and access to it is not disabled.
    unsafe { _rdtsc() }
}

/// Ends the machine with an exit code, or halts if that fails.
pub(in crate::bare) fn leave(code: u32) -> ! {
    write_u32(EXIT, code);
    loop {
        // SAFETY: halts, with interrupts off, for good.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}
