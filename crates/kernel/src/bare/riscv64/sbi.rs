//! Calls of the firmware, which runs in machine mode: timers, other processors, and what these keep of page tables.
//!
//! Source: RISC-V Supervisor Binary Interface 2.0, chapters 3 and 6 to 9.

#![expect(unsafe_code, reason = "the firmware is called by an instruction")]

use core::{arch::asm, ops::Range};

const TIMER: usize = 0x5449_4d45;
const SET_TIMER: usize = 0;
const INTERRUPTS: usize = 0x0073_5049;
const SEND_INTERRUPT: usize = 0;
const FENCES: usize = 0x5246_4e43;
const REMOTE_SFENCE_VMA: usize = 1;
const HARTS: usize = 0x0048_534d;
const HART_START: usize = 0;

/// In place of the first hart of a mask: all harts.
const ALL: usize = usize::MAX;

/// An error of the firmware, which is negative.
pub(super) type SbiError = isize;

/// The error for a hart that does not exist.
pub(super) const INVALID_PARAM: SbiError = -3;

/// Has the timer interrupt this processor at `ticks`, which also ends such an interrupt.
pub(super) fn set_timer(ticks: u64) {
    // Only what is no parameter of this call can make it fail.
    let _ = call(TIMER, SET_TIMER, [ticks as usize, 0, 0, 0]);
}

/// Has a hart take an interrupt by software.
pub(super) fn send_interrupt(hart: usize) -> Result<(), SbiError> {
    call(INTERRUPTS, SEND_INTERRUPT, [1, hart, 0, 0])
}

/// Has all harts forget the translations of `addresses`, as the lowest tables have them. Returns when they have.
pub(super) fn forget(addresses: Range<usize>) -> Result<(), SbiError> {
    call(FENCES, REMOTE_SFENCE_VMA, [0, ALL, addresses.start, addresses.len()])
}

/// Has all harts forget all translations, and all entries of upper tables. Returns when they have.
pub(super) fn forget_all() -> Result<(), SbiError> {
    call(FENCES, REMOTE_SFENCE_VMA, [0, ALL, 0, usize::MAX])
}

/// Starts a hart at a physical address, with `argument` in `a1`.
pub(super) fn start(hart: usize, entry: usize, argument: usize) -> Result<(), SbiError> {
    call(HARTS, HART_START, [hart, entry, argument, 0])
}

fn call(extension: usize, function: usize, arguments: [usize; 4]) -> Result<(), SbiError> {
    let [first, second, third, fourth] = arguments;
    let result: SbiError;
    // SAFETY: the firmware changes no other registers, and no memory of the kernel. Not `nomem`: what the kernel has
    // stored comes before, and other harts may look at it.
    unsafe {
        asm!("ecall", inout("a0") first => result, inout("a1") second => _, in("a2") third, in("a3") fourth,
            in("a6") function, in("a7") extension, options(nostack));
    }
    match result {
        0 => Ok(()),
        error => Err(error),
    }
}
