//! The controller of devices' interrupts: `virt`'s PLIC.
//!
//! An interrupt that a processor has claimed does not come again until it is completed. Source: RISC-V PLIC
//! specification, chapters 3 to 9.

use core::sync::atomic::{AtomicU32, Ordering};

use transom_guest::transport::{Registers as _, VolatileRegisters};

use super::processor::hart_of;
use crate::bare::{interrupts, memory};

const PLIC: u64 = 0x0c00_0000;
const LEN: u64 = 0x60_0000;
/// A word for each interrupt: above 0, it is not kept back.
const PRIORITIES: usize = 0x0000;
/// A bit for each interrupt that comes to the first context, and the distance to the bits of the next one.
const ENABLE: usize = 0x2000;
const ENABLE_LEN: usize = 0x80;
/// Interrupts of a priority up to this one do not come to the first context; and the distance to the next one.
const THRESHOLD: usize = 0x20_0000;
const CONTEXT_LEN: usize = 0x1000;
/// Reading claims the next interrupt, or 0; storing completes one. Likewise.
const CLAIM: usize = 0x20_0004;

/// The interrupt of the device that is in use.
static LINE: AtomicU32 = AtomicU32::new(0);

/// Has the line that the device tree calls `number` interrupt processor 0.
pub(in crate::bare) fn use_line(number: u32) {
    let registers = registers();
    LINE.store(number, Ordering::Relaxed);
    registers.write_u32(PRIORITIES + 4 * number as usize, 1);
    registers.write_u32(ENABLE + context() * ENABLE_LEN + number as usize / 32 * 4, 1 << (number % 32));
    registers.write_u32(THRESHOLD + context() * CONTEXT_LEN, 0);
}

/// Lets the line through, which its handler has claimed.
pub(in crate::bare) fn rearm_line() {
    registers().write_u32(CLAIM + context() * CONTEXT_LEN, LINE.load(Ordering::Relaxed));
}

/// Handles an interrupt of a device. Called with interrupts off.
pub(super) fn arrived() {
    match registers().read_u32(CLAIM + context() * CONTEXT_LEN) {
        // It went away.
        0 => {}
        // The line stays up until the device's causes have been acknowledged, which `rearm_line` follows.
        line if line == LINE.load(Ordering::Relaxed) => interrupts::arrived(0),
        line => panic!("interrupt {line}, which nobody was told to send"),
    }
}

/// Returns the context of processor 0 in supervisor mode: each hart has one for machine mode before it.
fn context() -> usize {
    2 * hart_of(0) + 1
}

fn registers() -> VolatileRegisters {
    memory::registers(PLIC, LEN).expect("the addresses are mapped to themselves")
}
