//! riscv64: QEMU's `virt`, started without firmware, polled.

#![expect(unsafe_code, reason = "the processor's registers are reached by assembly")]

mod boot;

use alloc::sync::Arc;
use core::{
    arch::asm,
    sync::atomic::{AtomicUsize, Ordering},
};

use transom_guest::transport::Registers as _;

pub(super) use super::virt::Quiet;
use super::{Failure, memory, platform::Bare, virt};

/// The first serial port, a 16550, whose first register takes a byte. QEMU's never needs to be waited for.
const SERIAL: u64 = 0x1000_0000;

/// SiFive's test device, which ends the machine: with status 0, or with one after the code.
const TEST: u64 = 0x0010_0000;
const PASS: u32 = 0x5555;
const FAIL: u32 = 1 << 16 | 0x3333;

/// The length of a tick of the machine's timer in nanoseconds: it runs at 10 MHz.
const TICK_NS: u64 = 100;

/// Length of the heap after the kernel, in bytes.
pub(super) const HEAP_LEN: usize = 128 << 20;

/// Addresses that can be used: there are no page tables.
pub(super) const IDENTITY_LEN: u64 = 1 << 56;

/// Where the loader has left the device tree.
static DEVICE_TREE: AtomicUsize = AtomicUsize::new(0);

/// Writes a byte to the console.
pub(super) fn put(byte: u8) {
    if let Ok(serial) = memory::registers(SERIAL, 8) {
        serial.write_u8(0, byte);
    }
}

/// Ends the machine.
pub(super) fn leave(is_well: bool) -> ! {
    loop {
        if let Ok(test) = memory::registers(TEST, 4) {
            test.write_u32(0, if is_well { PASS } else { FAIL });
        }
    }
}

/// Returns the time since power-on, in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let ticks: u64;
    // SAFETY: reads the machine's timer.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
    ticks.saturating_mul(TICK_NS)
}

/// Uses every file system of the machine; returns their number.
pub(super) fn run(platform: &Arc<Bare>) -> Result<usize, Failure> {
    // SAFETY: the loader has left the device tree there, above what the kernel uses.
    unsafe { virt::run(DEVICE_TREE.load(Ordering::Relaxed), platform) }
}
