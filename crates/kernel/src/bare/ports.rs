//! The processor's ports and its counter of cycles.

#![expect(unsafe_code, reason = "ports are reached by instructions of their own")]

use core::arch::{asm, x86_64::_rdtsc};

/// QEMU's `isa-debug-exit`.
const EXIT: u16 = 0xf4;

/// Writes a byte to a port of a PC's own devices.
pub(super) fn write_u8(port: u16, value: u8) {
    // SAFETY: the kernel alone drives the devices behind the ports that it names, none of which reaches memory by
    // itself.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Writes four bytes; as [`write_u8`].
pub(super) fn write_u32(port: u16, value: u32) {
    // SAFETY: as for `write_u8`; what the configuration of a PCI function lets it do is the caller's to want.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte.
pub(super) fn read_u8(port: u16) -> u8 {
    let value;
    // SAFETY: as for `write_u8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Reads four bytes.
pub(super) fn read_u32(port: u16) -> u32 {
    let value;
    // SAFETY: as for `write_u8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Cycles since the machine was switched on.
pub(super) fn cycles() -> u64 {
    // SAFETY: every processor of this architecture has the counter, and nobody has forbidden it.
    unsafe { _rdtsc() }
}

/// Ends the machine with a code, or where it cannot be ended stops.
pub(super) fn leave(code: u32) -> ! {
    write_u32(EXIT, code);
    loop {
        // SAFETY: waits for an interrupt; none comes.
        unsafe { asm!("hlt", options(nomem, nostack)) }
    }
}
