//! Instructions that change how the processor runs: its number, interrupts, its timer, and the firmware's calls.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::arch::asm;

/// The flag that keeps interrupts off.
pub(super) const INTERRUPTS_OFF: u64 = 1 << 7;

/// PSCI's calls that turn the machine off, and that start a processor (Arm DEN 0022, sections 5.6 and 5.10).
const SYSTEM_OFF: u64 = 0x8400_0008;
const CPU_ON: u64 = 0xc400_0003;

unsafe extern "C" {
    /// The entry point of the second processor.
    fn second_start();
}

/// Returns the number of this processor. `boot` has stored it in the register for what a processor keeps for itself.
pub(in crate::bare) fn number() -> usize {
    let number;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) number, options(nomem, nostack, preserves_flags)) };
    number
}

/// Turns interrupts off; returns whether they were on.
pub(in crate::bare) fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: reads the flags, and keeps interrupts off, which no code here relies on being let in. The block may
    // touch memory as far as the compiler knows, so accesses do not move out of the quiet section.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) flags, options(nostack)) };
    flags & INTERRUPTS_OFF == 0
}

/// Lets interrupts in. Their handlers are set up: `boot` comes first.
pub(in crate::bare) fn interrupts_on() {
    // SAFETY: there is a handler for each interrupt that the controller lets through.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// Lets interrupts in and halts until one has been handled, at the latest that of the timer in `ns`. Interrupts are
/// off.
pub(in crate::bare) fn halt(ns: u64) {
    let (now, hz) = clock();
    let end = now.saturating_add((u128::from(ns) * u128::from(hz) / 1_000_000_000) as u64);
    // SAFETY: the timer only interrupts. An interrupt ends the halt even while interrupts are off, and is taken when
    // they are let in.
    unsafe {
        asm!("msr cntv_cval_el0, {}", "msr cntv_ctl_el0, {}", "isb", "dsb sy", "wfi", "msr daifclr, #2", "isb",
            in(reg) end, in(reg) 1u64, options(nostack));
    }
}

/// Turns the timer off.
pub(super) fn end_alarm() {
    // SAFETY: the timer only interrupts, which it stops doing.
    unsafe { asm!("msr cntv_ctl_el0, {}", "isb", in(reg) 0u64, options(nostack)) };
}

/// Returns the time since power-on, in nanoseconds.
pub(in crate::bare) fn now_ns() -> u64 {
    let (ticks, hz) = clock();
    (u128::from(ticks) * 1_000_000_000 / u128::from(hz)) as u64
}

/// Returns the counter, and its rate.
fn clock() -> (u64, u64) {
    let (ticks, hz): (u64, u64);
    // SAFETY: reads the counter, not before what precedes it, and its rate.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) ticks, out(reg) hz, options(nomem, nostack));
    }
    (ticks, hz.max(1))
}

/// Ends the machine.
pub(super) fn turn_off() -> ! {
    loop {
        // SAFETY: the firmware's call does not return. QEMU's `virt` takes it by `hvc`.
        unsafe { asm!("hvc #0", in("x0") SYSTEM_OFF, options(nomem, nostack)) }
    }
}

/// Starts the second processor. Returns PSCI's error, which is negative.
pub(super) fn turn_second_on() -> Result<(), i64> {
    let entry = second_start as *const () as u64;
    let result: i64;
    // SAFETY: the processor begins with a stack of its own, and what this one has stored is visible to it: both are
    // coherent. The call may change `x0` to `x17`.
    unsafe {
        asm!("dsb sy", "hvc #0", inout("x0") CPU_ON => result, inout("x1") 1u64 => _, inout("x2") entry => _,
            inout("x3") 0u64 => _, clobber_abi("C"), options(nostack));
    }
    if result == 0 { Ok(()) } else { Err(result) }
}
