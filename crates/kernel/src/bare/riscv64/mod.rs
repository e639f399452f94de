//! riscv64: QEMU's `virt`, started by its firmware, OpenSBI.

#![expect(unsafe_code, reason = "says where the device tree is")]

mod boot;
mod copy_bytes;
pub(super) mod format;
mod imsic;
mod plic;
mod processor;
mod sbi;
mod translations;
mod traps;

use alloc::{format, sync::Arc};
use core::sync::atomic::{AtomicUsize, Ordering};

use transom_guest::transport::Registers as _;

pub(super) use imsic::{begin_messages, message};
pub(super) use plic::{rearm_line, use_line};
pub(super) use processor::{call, halt, interrupts_off, interrupts_on, now_ns, number};
pub(super) use translations::{forget, forget_here, publish, root};

use super::{Failure, Found, jobs, memory, platform::Bare, virt};

/// The first serial port, a 16550, whose first register takes a byte. QEMU's never needs to be waited for.
const SERIAL: u64 = 0x1000_0000;

/// SiFive's test device, which ends the machine: with status 0, or with one after the code.
const TEST: u64 = 0x0010_0000;
const PASS: u32 = 0x5555;
const FAIL: u32 = 1 << 16 | 0x3333;

/// Length of the heap after the kernel, in bytes. The machine must have this much memory.
const HEAP_LEN: usize = 128 << 20;

/// Addresses below this are mapped to themselves.
pub(super) const IDENTITY_LEN: u64 = 512 << 30;

/// Where the loader has left the device tree.
static DEVICE_TREE: AtomicUsize = AtomicUsize::new(0);

/// Returns the length of the heap, in bytes.
pub(super) fn heap_len(_start: usize) -> usize {
    HEAP_LEN
}

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

/// Returns whether devices can interrupt by lines: the kernel knows no controller that turns them into messages.
pub(super) fn has_lines() -> bool {
    !imsic::is_used()
}

/// What a processor does while it spins.
pub(super) fn relax() {
    core::hint::spin_loop();
}

/// Starts the second processor, if the machine has one. Returns whether it has.
pub(super) fn start_second() -> Result<bool, Failure> {
    match processor::start_second() {
        Ok(()) => Ok(true),
        Err(sbi::INVALID_PARAM) => Ok(false),
        Err(error) => Err(format!("the firmware does not start the second processor: SBI error {error}").into()),
    }
}

/// The second processor's way into the kernel.
fn serve() -> ! {
    imsic::begin_local();
    jobs::serve()
}

/// Uses every file system of the machine.
pub(super) fn run(platform: &Arc<Bare>) -> Result<Found, Failure> {
    processor::end_alarm();
    interrupts_on();
    // SAFETY: the loader has left the device tree there, above what the kernel uses.
    unsafe { virt::run(DEVICE_TREE.load(Ordering::Relaxed), platform) }
}
