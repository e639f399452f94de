//! Instructions that change how the processor runs: its number, interrupts, and its clock; and the number of its hart.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::{
    arch::asm,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::sbi::{self, SbiError};

/// The flag that lets interrupts in, and that which says whether they were let in before a trap.
const INTERRUPTS_ON: u64 = 1 << 1;
pub(super) const INTERRUPTS_WERE_ON: u64 = 1 << 5;

/// The length of a tick of the machine's timer in nanoseconds: it runs at 10 MHz.
const TICK_NS: u64 = 100;

/// The hart that is processor 0, which the firmware has chosen. Processor 1 is hart 0 or 1, the other one.
static FIRST_HART: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// The entry point of the second processor.
    fn second_start();
}

/// Sets the hart that is processor 0.
pub(super) fn set_first_hart(hart: usize) {
    FIRST_HART.store(hart, Ordering::Relaxed);
}

/// Returns the number of a processor's hart.
pub(super) fn hart_of(processor: usize) -> usize {
    let first = FIRST_HART.load(Ordering::Relaxed);
    if processor == 0 { first } else { usize::from(first == 0) }
}

/// Returns the number of this processor. `boot` has stored it in the register for what a thread keeps for itself, which
/// nothing else uses.
pub(in crate::bare) fn number() -> usize {
    let number;
    // SAFETY: reads a register.
    unsafe { asm!("mv {}, tp", out(reg) number, options(nomem, nostack, preserves_flags)) };
    number
}

/// Starts the second processor.
pub(super) fn start_second() -> Result<(), SbiError> {
    sbi::start(hart_of(1), second_start as *const () as usize, 0)
}

/// Has another processor take an interrupt.
pub(in crate::bare) fn call(processor: usize) {
    sbi::send_interrupt(hart_of(processor)).expect("the firmware reaches the other processor");
}

/// Ends an interrupt by [`call`].
pub(super) fn end_call() {
    // SAFETY: takes back what another processor has asked for.
    unsafe { asm!("csrci sip, 1 << 1", options(nostack)) };
}

/// Turns interrupts off; returns whether they were on.
pub(in crate::bare) fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: reads the flags, and keeps interrupts off, which no code here relies on being let in. The block may
    // touch memory as far as the compiler knows, so accesses do not move out of the quiet section.
    unsafe { asm!("csrrci {}, sstatus, 1 << 1", out(reg) flags, options(nostack)) };
    flags & INTERRUPTS_ON != 0
}

/// Lets interrupts in. Their handler is set up: `boot` comes first.
pub(in crate::bare) fn interrupts_on() {
    // SAFETY: the handler knows each interrupt that can come.
    unsafe { asm!("csrsi sstatus, 1 << 1", options(nostack)) };
}

/// Lets interrupts in and halts until one has been handled, at the latest that of the timer in `ns`. Interrupts are
/// off.
pub(in crate::bare) fn halt(ns: u64) {
    sbi::set_timer(ticks().saturating_add(ns / TICK_NS));
    // SAFETY: an interrupt ends the halt even while interrupts are off, and is taken when they are let in.
    unsafe { asm!("wfi", "csrsi sstatus, 1 << 1", options(nostack)) };
}

/// Turns the timer off.
pub(super) fn end_alarm() {
    sbi::set_timer(u64::MAX);
}

/// Returns the time since power-on, in nanoseconds.
pub(in crate::bare) fn now_ns() -> u64 {
    ticks().saturating_mul(TICK_NS)
}

/// Returns the ticks since power-on.
fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads the machine's timer.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
    ticks
}
