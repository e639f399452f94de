//! Messages of devices: IMSIC, which keeps a file of interrupts for each hart. A device stores an interrupt's number in
//! the hart's file, and the hart claims it by a register of its own.
//!
//! Vector `n` of the device is interrupt `n + 1`: there is no interrupt 0. Source: RISC-V Advanced Interrupt
//! Architecture 1.0, chapter 3.

#![expect(unsafe_code, reason = "registers of the processor have no other form")]

use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};

use transom_guest::transport::{fdt::Fdt, pci::Message};

use super::processor::hart_of;
use crate::bare::{
    Failure,
    interrupts::{self, VECTORS},
    processors::PROCESSORS_MAX,
};

const COMPATIBLE: &str = "riscv,imsics";
/// Length of a file for supervisor mode, which is a page, without files for guests of the hart.
const FILE_LEN: u64 = 0x1000;

/// Indirect registers of the file: whether interrupts are delivered, from which number on they are not, and a bit for
/// each of the first 64 that is enabled.
const DELIVERY: u64 = 0x70;
const THRESHOLD: u64 = 0x72;
const ENABLED: u64 = 0xc0;

/// What is claimed has the interrupt's number in its upper half.
const NUMBER_SHIFT: u32 = 16;
const NUMBER_MASK: u64 = 0x7ff;

/// Where the files of supervisor mode are, or 0 if the machine has none.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Finds the files, and lets messages in to this processor. Returns false if the machine has none.
pub(in crate::bare) fn begin_messages(tree: &Fdt<'_>) -> Result<bool, Failure> {
    // The firmware has disabled what is for machine mode.
    let Some((address, len_bytes)) = tree.registers_of(COMPATIBLE)? else { return Ok(false) };
    if len_bytes < FILE_LEN * PROCESSORS_MAX as u64 {
        return Err("there are fewer files of interrupts than processors".into());
    }
    FILES.store(address, Ordering::Relaxed);
    begin_local();
    Ok(true)
}

/// Returns whether devices interrupt by messages here, and not by a PLIC.
pub(super) fn is_used() -> bool {
    FILES.load(Ordering::Relaxed) != 0
}

/// Lets messages in to this processor, if the machine has files for them.
pub(super) fn begin_local() {
    if is_used() {
        set(DELIVERY, 1);
        set(THRESHOLD, 0);
        set(ENABLED, ((1 << VECTORS) - 1) << 1);
    }
}

/// Returns the message by which a vector of the device interrupts a processor.
pub(in crate::bare) fn message(vector: u16, processor: usize) -> Message {
    let address = FILES.load(Ordering::Relaxed) + FILE_LEN * hart_of(processor) as u64;
    Message { address, data: u32::from(vector) + 1 }
}

/// Handles an interrupt of a device. Called with interrupts off.
pub(super) fn arrived() {
    match claim() {
        // It went away.
        0 => {}
        number @ 1.. if number <= VECTORS as u64 => interrupts::arrived(number as u16 - 1),
        number => panic!("interrupt {number}, which nobody was told to send"),
    }
}

/// Claims the interrupt of the lowest number that is pending, or returns 0.
fn claim() -> u64 {
    let claimed: u64;
    // SAFETY: exchanges `stopei`, which the processor has if there is a file. Only the handler does.
    unsafe { asm!("csrrw {}, 0x15c, zero", out(reg) claimed, options(nostack)) };
    claimed >> NUMBER_SHIFT & NUMBER_MASK
}

/// Sets an indirect register of this processor's file.
fn set(register: u64, value: u64) {
    // SAFETY: stores `siselect` and then `sireg`, which the processor has if there is a file. The handler uses neither.
    unsafe { asm!("csrw 0x150, {}", "csrw 0x151, {}", in(reg) register, in(reg) value, options(nostack)) };
}
