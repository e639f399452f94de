//! Interrupt controllers of a PC: each processor's own, which takes messages and has a timer, and the one for lines.
//!
//! Source: Intel SDM volume 3, chapter 11; 82093AA data sheet.

use transom_guest::transport::{Registers as _, VolatileRegisters};

use super::{
    ports,
    vectors::{LINE, SPURIOUS, TIMER},
};
use crate::bare::{lock::Lock, memory};

/// Where a processor's own registers are, and where messages for processor 0 are stored.
const LOCAL: u64 = 0xfee0_0000;
const LOCAL_LEN: u64 = 0x400;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS_VECTOR: usize = 0xf0;
const ENABLED: u32 = 1 << 8;
/// What is stored in the first of these words is sent to the processor that the second one names.
const COMMAND: usize = 0x300;
const COMMAND_TO: usize = 0x310;
const TO_SHIFT: u32 = 24;
/// A command has not been accepted yet.
const PENDING: u32 = 1 << 12;
const INIT: u32 = 0x4500;
const START_UP: u32 = 0x4600;
const FIXED: u32 = 0x4000;
const TIMER_VECTOR: usize = 0x320;
const TIMER_COUNT: usize = 0x380;
const TIMER_DIVIDER: usize = 0x3e0;
const DIVIDE_BY_128: u32 = 0b1010;
/// The length of a tick of the timer, divided: QEMU's runs at 1 GHz. A real machine's rate has to be measured.
const TICK_NS: u64 = 128;

/// The controller for lines: an index and a window to what it selects.
const LINES: u64 = 0xfec0_0000;
const LINES_LEN: u64 = 0x20;
const SELECT: usize = 0x00;
const SELECTED: usize = 0x10;
/// The first of two words for each pin.
const PIN_0: u32 = 0x10;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;
const MASKED: u32 = 1 << 16;
/// The pins of PCI's lines on QEMU's q35.
const PCI_PINS: core::ops::Range<u32> = 16..24;

/// Data ports of the older controllers, which are not used.
const OLD: [u16; 2] = [0x21, 0xa1];

/// Held while a pin is selected.
static SELECTING: Lock<()> = Lock::new(());

/// Keeps lines back and the older controllers quiet, for all processors.
pub(super) fn begin() {
    OLD.into_iter().for_each(|port| ports::write_u8(port, 0xff));
    set_lines(false);
}

/// Lets messages in to this processor.
pub(super) fn begin_local() {
    let local = local();
    local.write_u32(SPURIOUS_VECTOR, ENABLED | u32::from(SPURIOUS));
    local.write_u32(TIMER_DIVIDER, DIVIDE_BY_128);
    local.write_u32(TIMER_VECTOR, TIMER.into());
}

/// Lets the processor take the next interrupt.
pub(super) fn end_interrupt() {
    local().write_u32(END_OF_INTERRUPT, 0);
}

/// Has the timer interrupt this processor once, in `ns`, and not earlier.
pub(super) fn set_alarm(ns: u64) {
    let ticks = u32::try_from(ns / TICK_NS).unwrap_or(u32::MAX);
    // A count of 0 would stop the timer.
    local().write_u32(TIMER_COUNT, ticks.max(1));
}

/// Returns where messages for a processor are stored. QEMU numbers processors and their controllers alike.
pub(super) fn message_address(processor: usize) -> u64 {
    LOCAL | (processor as u64) << 12
}

/// Interrupts another processor. Interrupts are off.
pub(super) fn interrupt(processor: usize, vector: u8) {
    command(processor, FIXED | u32::from(vector));
}

/// Resets another processor. It waits for [`start_up`] then.
pub(super) fn reset(processor: usize) {
    command(processor, INIT);
}

/// Has a processor that was reset begin at the start of a page below 1 MiB.
pub(super) fn start_up(processor: usize, page: u8) {
    command(processor, START_UP | u32::from(page));
}

fn command(processor: usize, command: u32) {
    let local = local();
    local.write_u32(COMMAND_TO, (processor as u32) << TO_SHIFT);
    local.write_u32(COMMAND, command);
    while local.read_u32(COMMAND) & PENDING != 0 {
        core::hint::spin_loop();
    }
}

/// Lets the lines of PCI functions through to processor 0, or keeps them back.
pub(super) fn set_lines(are_let_through: bool) {
    let lines = registers(LINES, LINES_LEN);
    let set_word = |at: u32, value: u32| {
        lines.write_u32(SELECT, at);
        lines.write_u32(SELECTED, value);
    };
    let mask = if are_let_through { 0 } else { MASKED };
    let _selecting = SELECTING.lock();
    for pin in PCI_PINS {
        set_word(PIN_0 + 2 * pin + 1, 0);
        set_word(PIN_0 + 2 * pin, LEVEL | ACTIVE_LOW | mask | u32::from(LINE));
    }
}

/// Returns the registers of the calling processor's controller: each processor sees its own at this address.
fn local() -> VolatileRegisters {
    registers(LOCAL, LOCAL_LEN)
}

fn registers(address: u64, len_bytes: u64) -> VolatileRegisters {
    memory::registers(address, len_bytes).expect("the addresses are mapped to themselves")
}
