//! The controller of devices' interrupts: `virt`'s PLIC.
//!
//! An interrupt that a processor has claimed does not come again until it is completed. Source: RISC-V PLIC
//! specification, chapters 3 to 9.

use core::sync::atomic::{AtomicU32, Ordering};

use transom_guest::transport::{Registers as _, VolatileRegisters};

use crate::bare::{interrupts, memory};

const PLIC: u64 = 0x0c00_0000;
const LEN: u64 = 0x60_0000;
/// A word for each interrupt: above 0, it is not kept back.
const PRIORITIES: usize = 0x0000;
/// A bit for each interrupt that comes to processor 0 in machine mode, which is context 0.
const ENABLE: usize = 0x2000;
/// Interrupts of a priority up to this one do not come.
const THRESHOLD: usize = 0x20_0000;
/// Reading claims the next interrupt, or 0; storing completes one.
const CLAIM: usize = 0x20_0004;

/// The interrupt of the device that is in use.
static LINE: AtomicU32 = AtomicU32::new(0);

/// Has the line that the device tree calls `number` interrupt processor 0.
pub(in crate::bare) fn use_line(number: u32) {
    let registers = registers();
    LINE.store(number, Ordering::Relaxed);
    registers.write_u32(PRIORITIES + 4 * number as usize, 1);
    registers.write_u32(ENABLE + number as usize / 32 * 4, 1 << (number % 32));
    registers.write_u32(THRESHOLD, 0);
}

/// Lets the line through, which its handler has claimed.
pub(in crate::bare) fn rearm_line() {
    registers().write_u32(CLAIM, LINE.load(Ordering::Relaxed));
}

/// Handles an interrupt of a device. Called with interrupts off.
pub(super) fn arrived() {
    match registers().read_u32(CLAIM) {
        // It went away.
        0 => {}
        // The line stays up until the device's causes have been acknowledged, which `rearm_line` follows.
        line if line == LINE.load(Ordering::Relaxed) => interrupts::arrived(0),
        line => panic!("interrupt {line}, which nobody was told to send"),
    }
}

fn registers() -> VolatileRegisters {
    memory::registers(PLIC, LEN).expect("there are no page tables")
}
