//! aarch64: QEMU's `virt`, polled.

#![expect(unsafe_code, reason = "the processor's registers are reached by assembly")]

mod boot;

use alloc::sync::Arc;
use core::arch::asm;

use transom_guest::transport::Registers as _;

pub(super) use super::virt::Quiet;
use super::{Failure, memory, platform::Bare, virt};

/// The first serial port, a PL011, whose first register takes a byte. QEMU's never needs to be waited for.
const SERIAL: u64 = 0x0900_0000;

/// QEMU puts the device tree at the beginning of memory if it starts a kernel that is no Linux image.
const DEVICE_TREE: usize = 0x4000_0000;

/// PSCI's call that turns the machine off (Arm DEN 0022, section 5.10).
const SYSTEM_OFF: u64 = 0x8400_0008;

/// Length of the heap after the kernel, in bytes.
pub(super) const HEAP_LEN: usize = 128 << 20;

/// Addresses below this are mapped to themselves: the 512 entries of the only table, of 1 GiB each.
pub(super) const IDENTITY_LEN: u64 = 512 << 30;

/// Writes a byte to the console.
pub(super) fn put(byte: u8) {
    if let Ok(serial) = memory::registers(SERIAL, 4) {
        serial.write_u32(0, byte.into());
    }
}

/// Ends the machine; only the console says how it went.
pub(super) fn leave(_is_well: bool) -> ! {
    loop {
        // SAFETY: the firmware's call does not return. QEMU's `virt` takes it by `hvc`.
        unsafe { asm!("hvc #0", in("x0") SYSTEM_OFF, options(nomem, nostack)) }
    }
}

/// Returns the time since power-on, in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let (ticks, hz): (u64, u64);
    // SAFETY: reads the counter, not before what precedes it, and its rate.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) ticks, out(reg) hz, options(nomem, nostack));
    }
    (u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1))) as u64
}

/// Uses every file system of the machine; returns their number.
pub(super) fn run(platform: &Arc<Bare>) -> Result<usize, Failure> {
    // SAFETY: QEMU puts the device tree there, below the kernel, and memory begins there in any case.
    unsafe { virt::run(DEVICE_TREE, platform) }
}
