//! The processor's way into the kernel: interrupts.

#![expect(unsafe_code, reason = "the processor enters through assembly, with its state in registers")]

use core::arch::{asm, global_asm};

use super::gic;

/// The entry for interrupts that arrive while the kernel runs.
const INTERRUPT: usize = 5;

// Sixteen entries of 128 bytes. Saved is what a function of Rust may change: it may use floating-point registers too.
// The processor has turned interrupts off, and they stay so: an exception's return address and flags stay in registers.
global_asm!(
    r#"
    .text
    .balign 2048
    .global vectors
vectors:
    .irp entry, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    .balign 128
    sub sp, sp, #672
    stp x0, x1, [sp]
    mov x0, #\entry
    b trap_common
    .endr

trap_common:
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    str q\number, [sp, #(160 + 16 * \number)]
    .endr
    .irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    str q\number, [sp, #(160 + 16 * \number)]
    .endr
    bl {trap}
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    ldr q\number, [sp, #(160 + 16 * \number)]
    .endr
    .irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ldr q\number, [sp, #(160 + 16 * \number)]
    .endr
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x30, [sp, #144]
    ldp x0, x1, [sp]
    add sp, sp, #672
    eret
    "#,
    trap = sym trap,
);

extern "C" fn trap(entry: usize) {
    if entry == INTERRUPT {
        return gic::arrived();
    }
    let (cause, at, address): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("mrs {}, esr_el1", "mrs {}, elr_el1", "mrs {}, far_el1", out(reg) cause, out(reg) at, out(reg) address,
            options(nomem, nostack));
    }
    panic!("exception of cause {cause:#x} at {at:#x}, address {address:#x}")
}
