//! aarch64: QEMU's `virt`.

#![expect(unsafe_code, reason = "says where the device tree is")]

mod boot;
mod copy_bytes;
pub(super) mod format;
mod gic;
mod processor;
mod translations;
mod traps;
mod v2m;

use alloc::{format, sync::Arc};

use transom_guest::transport::Registers as _;

pub(super) use gic::{call, rearm_line, use_line};
pub(super) use processor::{halt, interrupts_off, interrupts_on, now_ns, number};
pub(super) use translations::{forget, forget_here, publish, root};
pub(super) use v2m::{begin_messages, message};

use super::{Failure, Found, jobs, memory, platform::Bare, virt};

/// The first serial port, a PL011, whose first register takes a byte. QEMU's never needs to be waited for.
const SERIAL: u64 = 0x0900_0000;

/// QEMU puts the device tree at the beginning of memory if it starts a kernel that is no Linux image.
const DEVICE_TREE: usize = 0x4000_0000;

/// PSCI's error for a processor that does not exist.
const INVALID_PARAMETERS: i64 = -2;

/// Length of the heap after the kernel, in bytes. The machine must have this much memory.
const HEAP_LEN: usize = 128 << 20;

/// Addresses below this are mapped to themselves.
pub(super) const IDENTITY_LEN: u64 = 512 << 30;

/// Returns the length of the heap, in bytes.
pub(super) fn heap_len(_start: usize) -> usize {
    HEAP_LEN
}

/// Writes a byte to the console.
pub(super) fn put(byte: u8) {
    if let Ok(serial) = memory::registers(SERIAL, 4) {
        serial.write_u32(0, byte.into());
    }
}

/// Ends the machine; only the console says how it went.
pub(super) fn leave(_is_well: bool) -> ! {
    processor::turn_off()
}

/// Returns whether devices can interrupt by lines.
pub(super) fn has_lines() -> bool {
    true
}

/// What a processor does while it spins.
pub(super) fn relax() {
    core::hint::spin_loop();
}

/// Starts the second processor, if the machine has one. Returns whether it has.
pub(super) fn start_second() -> Result<bool, Failure> {
    match processor::turn_second_on() {
        Ok(()) => Ok(true),
        Err(INVALID_PARAMETERS) => Ok(false),
        Err(error) => Err(format!("the firmware does not start the second processor: PSCI error {error}").into()),
    }
}

/// The second processor's way into the kernel.
fn serve() -> ! {
    gic::begin_local();
    jobs::serve()
}

/// Uses every file system of the machine.
pub(super) fn run(platform: &Arc<Bare>) -> Result<Found, Failure> {
    gic::begin();
    gic::begin_local();
    interrupts_on();
    // SAFETY: QEMU puts the device tree there, below the kernel, and memory begins there in any case.
    unsafe { virt::run(DEVICE_TREE, platform) }
}
