//! Instructions that change how the processor runs: its number, interrupts, and its clock.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::arch::asm;

use super::clint;

/// The flag that lets interrupts in.
const INTERRUPTS_ON: u64 = 1 << 3;

/// The length of a tick of the machine's timer in nanoseconds: it runs at 10 MHz.
const TICK_NS: u64 = 100;

/// Returns the number of this processor.
pub(in crate::bare) fn number() -> usize {
    let number;
    // SAFETY: reads a register.
    unsafe { asm!("csrr {}, mhartid", out(reg) number, options(nomem, nostack, preserves_flags)) };
    number
}

/// Turns interrupts off; returns whether they were on.
pub(in crate::bare) fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: reads the flags, and keeps interrupts off, which no code here relies on being let in. The block may
    // touch memory as far as the compiler knows, so accesses do not move out of the quiet section.
    unsafe { asm!("csrrci {}, mstatus, 1 << 3", out(reg) flags, options(nostack)) };
    flags & INTERRUPTS_ON != 0
}

/// Lets interrupts in. Their handler is set up: `boot` comes first.
pub(in crate::bare) fn interrupts_on() {
    // SAFETY: the handler knows each interrupt that can come.
    unsafe { asm!("csrsi mstatus, 1 << 3", options(nostack)) };
}

/// Lets interrupts in and halts until one has been handled, at the latest that of the timer in `ns`. Interrupts are
/// off.
pub(in crate::bare) fn halt(ns: u64) {
    clint::set_alarm(ns / TICK_NS);
    // SAFETY: an interrupt ends the halt even while interrupts are off, and is taken when they are let in.
    unsafe { asm!("wfi", "csrsi mstatus, 1 << 3", options(nostack)) };
}

/// Returns the time since power-on, in nanoseconds.
pub(in crate::bare) fn now_ns() -> u64 {
    ticks().saturating_mul(TICK_NS)
}

/// Returns the ticks since power-on.
pub(super) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads the machine's timer.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
    ticks
}
