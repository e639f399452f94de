//! The processor's way into the kernel: page faults and interrupts.

#![expect(unsafe_code, reason = "the processor enters through assembly, with its state on the stack")]

use core::arch::{asm, global_asm};

use super::{gic, processor};
use crate::bare::{copy, mapping};

/// The entries for what comes while the kernel runs: exceptions of its own instructions, and interrupts.
const EXCEPTION: usize = 4;
const INTERRUPT: usize = 5;

/// The kind of exception, in the upper bits of its syndrome: an access of this level's own to memory.
const KIND_SHIFT: u32 = 26;
const DATA_ABORT: u64 = 0x25;
/// The access was a store.
const IS_STORE: u64 = 1 << 6;
/// Why it failed, with the level of the table in the two lowest bits: no entry, or no right.
const STATUS_MASK: u64 = 0x3c;
const NO_ENTRY: u64 = 0x04;
const NO_RIGHT: u64 = 0x0c;

// Sixteen entries of 128 bytes. Saved is what a function of Rust may change: it may use floating-point registers too;
// and the exception's return address and flags, since a fault is served with interrupts on, and may fault.
global_asm!(
    r#"
    .text
    .balign 2048
    .global vectors
vectors:
    .irp entry, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    .balign 128
    sub sp, sp, #688
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
    mrs x1, elr_el1
    mrs x2, spsr_el1
    str x1, [sp, #672]
    str x2, [sp, #680]
    mov x1, sp
    bl {trap}
    msr daifset, #2
    ldr x1, [sp, #672]
    ldr x2, [sp, #680]
    msr elr_el1, x1
    msr spsr_el1, x2
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
    add sp, sp, #688
    eret
    "#,
    trap = sym trap,
);

/// What the entry has stored.
#[repr(C)]
struct Frame {
    registers: [u64; 20],
    floats: [u128; 32],
    instruction: u64,
    flags: u64,
}

const _: () = assert!(core::mem::offset_of!(Frame, instruction) == 672 && size_of::<Frame>() == 688);

/// Serves a trap, on the stack of what it interrupted. Interrupts are off.
extern "C" fn trap(entry: usize, frame: *mut Frame) {
    if entry == INTERRUPT {
        return gic::arrived();
    }
    let (syndrome, address): (u64, usize);
    // SAFETY: reads registers.
    unsafe { asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) syndrome, out(reg) address, options(nomem, nostack)) };
    // SAFETY: the entry passes the frame that it has built on the stack, and uses it again only after this returns.
    let frame = unsafe { &mut *frame };
    let is_fault = entry == EXCEPTION
        && syndrome >> KIND_SHIFT == DATA_ABORT
        && matches!(syndrome & STATUS_MASK, NO_ENTRY | NO_RIGHT);
    if !is_fault {
        panic!("exception of syndrome {syndrome:#x} at {:#x}, address {address:#x}", frame.instruction);
    }
    if frame.flags & processor::INTERRUPTS_OFF == 0 {
        processor::interrupts_on();
    }
    if mapping::serve(address, syndrome & IS_STORE != 0) {
        return;
    }
    match copy::continuation(frame.instruction as usize) {
        Some(at) => frame.instruction = at as u64,
        None => panic!("no page at {address:#x}, for the instruction at {:#x}", frame.instruction),
    }
}
