//! The processor's way into the kernel: page faults and interrupts.

#![expect(unsafe_code, reason = "the processor enters through assembly, with its state on the stack")]

use core::arch::{asm, global_asm};

use super::{imsic, plic, processor};
use crate::bare::{
    copy, mapping,
    processors::{self, Reason},
};

/// Causes of interrupts have the highest bit.
const IS_INTERRUPT: u64 = 1 << 63;
const CALL: u64 = IS_INTERRUPT | 1;
const ALARM: u64 = IS_INTERRUPT | 5;
const DEVICE: u64 = IS_INTERRUPT | 9;
const LOAD_FAULT: u64 = 13;
const STORE_FAULT: u64 = 15;

// Saved is what a function of Rust may change: it may use floating-point registers too; and the trap's return address
// and flags, since a fault is served with interrupts on, and may fault.
global_asm!(
    r#"
    .text
    .option push
    .option arch, +d
    .balign 4
    .global trap_entry
trap_entry:
    addi sp, sp, -304
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
    csrr t0, sepc
    csrr t1, sstatus
    sd t0, 288(sp)
    sd t1, 296(sp)
    mv a0, sp
    call {trap}
    csrci sstatus, 1 << 1
    ld t0, 288(sp)
    ld t1, 296(sp)
    csrw sepc, t0
    csrw sstatus, t1
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
    addi sp, sp, 304
    sret
    .option pop
    "#,
    trap = sym trap,
);

/// What the entry has stored.
#[repr(C)]
struct Frame {
    registers: [u64; 36],
    instruction: u64,
    flags: u64,
}

const _: () = assert!(core::mem::offset_of!(Frame, instruction) == 288 && size_of::<Frame>() == 304);

/// Serves a trap, on the stack of what it interrupted. Interrupts are off.
extern "C" fn trap(frame: *mut Frame) {
    let (cause, address): (u64, usize);
    // SAFETY: reads registers.
    unsafe { asm!("csrr {}, scause", "csrr {}, stval", out(reg) cause, out(reg) address, options(nomem, nostack)) };
    // SAFETY: the entry passes the frame that it has built on the stack, and uses it again only after this returns.
    let frame = unsafe { &mut *frame };
    match cause {
        CALL => {
            processor::end_call();
            processors::this().interrupted(Reason::Call);
        }
        ALARM => {
            processor::end_alarm();
            processors::this().interrupted(Reason::Alarm);
        }
        DEVICE if imsic::is_used() => imsic::arrived(),
        DEVICE => plic::arrived(),
        LOAD_FAULT | STORE_FAULT => serve_fault(frame, address, cause == STORE_FAULT),
        cause => panic!("trap of cause {cause:#x} at {:#x}, address {address:#x}", frame.instruction),
    }
}

fn serve_fault(frame: &mut Frame, address: usize, is_store: bool) {
    if frame.flags & processor::INTERRUPTS_WERE_ON != 0 {
        processor::interrupts_on();
    }
    if mapping::serve(address, is_store) {
        return;
    }
    match copy::continuation(frame.instruction as usize) {
        Some(at) => frame.instruction = at as u64,
        None => panic!("no page at {address:#x}, for the instruction at {:#x}", frame.instruction),
    }
}
