//! The processor's way into the kernel: interrupts.

#![expect(unsafe_code, reason = "the processor enters through assembly, with its state in registers")]

use core::arch::{asm, global_asm};

use super::{clint, plic};
use crate::bare::processors::{self, Reason};

/// Causes of interrupts have the highest bit.
const IS_INTERRUPT: u64 = 1 << 63;
const CALL: u64 = IS_INTERRUPT | 3;
const ALARM: u64 = IS_INTERRUPT | 7;
const DEVICE: u64 = IS_INTERRUPT | 11;

// Saved is what a function of Rust may change: it may use floating-point registers too. The processor has turned
// interrupts off, and they stay so: the return address and the flags stay in registers.
global_asm!(
    r#"
    .text
    .option push
    .option arch, +d
    .balign 4
    .global trap_entry
trap_entry:
    addi sp, sp, -288
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd t3, 32(sp)
    sd t4, 40(sp)
    sd t5, 48(sp)
    sd t6, 56(sp)
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7
    sd a\number, (64 + 8 * \number)(sp)
    fsd fa\number, (128 + 8 * \number)(sp)
    .endr
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    fsd ft\number, (192 + 8 * \number)(sp)
    .endr
    call {trap}
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    fld ft\number, (192 + 8 * \number)(sp)
    .endr
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7
    ld a\number, (64 + 8 * \number)(sp)
    fld fa\number, (128 + 8 * \number)(sp)
    .endr
    ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld t3, 32(sp)
    ld t4, 40(sp)
    ld t5, 48(sp)
    ld t6, 56(sp)
    addi sp, sp, 288
    mret
    .option pop
    "#,
    trap = sym trap,
);

extern "C" fn trap() {
    let (cause, at, address): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("csrr {}, mcause", "csrr {}, mepc", "csrr {}, mtval", out(reg) cause, out(reg) at, out(reg) address,
            options(nomem, nostack));
    }
    match cause {
        CALL => {
            clint::end_call();
            processors::this().interrupted(Reason::Call);
        }
        ALARM => {
            clint::end_alarm();
            processors::this().interrupted(Reason::Alarm);
        }
        DEVICE => plic::arrived(),
        cause => panic!("trap of cause {cause:#x} at {at:#x}, address {address:#x}"),
    }
}
