//! Interrupts between processors, and their timers: the registers of `virt`'s CLINT.
//!
//! Source: RISC-V ACLINT specification, chapters 2 and 3.

use transom_guest::transport::{Registers as _, VolatileRegisters};

use super::processor::{number, ticks};
use crate::bare::memory;

const CLINT: u64 = 0x0200_0000;
const LEN: u64 = 0xc000;
/// A word for each processor: 1 interrupts it.
const CALLS: usize = 0x0000;
/// Two words for each processor: the time at which its timer interrupts, of which it keeps on until that is later.
const ALARMS: usize = 0x4000;

/// Returns whether the machine has a processor of this number: only then it has a timer. Turns that timer off.
pub(super) fn has(processor: usize) -> bool {
    set_alarm_of(processor, u64::MAX);
    registers().read_u32(ALARMS + 8 * processor) == u32::MAX
}

/// Has another processor take an interrupt.
pub(in crate::bare) fn call(processor: usize) {
    registers().write_u32(CALLS + 4 * processor, 1);
}

/// Ends an interrupt by [`call`].
pub(super) fn end_call() {
    registers().write_u32(CALLS + 4 * number(), 0);
}

/// Has the timer interrupt this processor in `ticks_left`.
pub(super) fn set_alarm(ticks_left: u64) {
    set_alarm_of(number(), ticks().saturating_add(ticks_left));
}

/// Turns this processor's timer off.
pub(super) fn end_alarm() {
    set_alarm_of(number(), u64::MAX);
}

fn set_alarm_of(processor: usize, at: u64) {
    let (registers, alarm) = (registers(), ALARMS + 8 * processor);
    // In this order, so that it is never earlier than both the former and the new time.
    registers.write_u32(alarm, u32::MAX);
    registers.write_u32(alarm + 4, (at >> 32) as u32);
    registers.write_u32(alarm, at as u32);
}

fn registers() -> VolatileRegisters {
    memory::registers(CLINT, LEN).expect("there are no page tables")
}
