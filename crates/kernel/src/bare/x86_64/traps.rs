//! The processor's way into the kernel: page faults and interrupts.

#![expect(unsafe_code, reason = "the processor enters through assembly, with its state on the stack")]

use core::{
    arch::{asm, global_asm},
    cell::UnsafeCell,
};

use super::{
    interrupts, processor,
    vectors::{COUNT, FIRST_OF_DEVICES},
};
use crate::bare::{copy, mapping};

const PAGE_FAULT: u64 = 14;
/// The access was a store.
const IS_STORE: u64 = 1 << 1;

const ENTRY_LEN: usize = 16;
/// The kernel's code segment in the table that `boot` loads.
const CODE_SEGMENT: u64 = 8;
/// Present, and of the kind that keeps interrupts off; or that leaves them as they are.
const INTERRUPT_GATE: u64 = 0x8e;
const TRAP_GATE: u64 = 0x8f;

// One entry of 16 bytes for each vector. The processor pushes an error code for some vectors; the others push 0.
global_asm!(
    r#"
    .text
    .balign 16
    .global trap_entries
trap_entries:
    .set vector, 0
    .rept 64
    .balign 16
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
    push 0
    .endif
    push vector
    jmp trap_common
    .set vector, vector + 1
    .endr

trap_common:
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    cld
    mov rdi, rsp
    call {trap}
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    add rsp, 16
    iretq
    "#,
    trap = sym trap,
);

unsafe extern "C" {
    fn trap_entries();
}

/// What the entry and the processor have pushed.
#[repr(C)]
struct Frame {
    registers: [u64; 15],
    vector: u64,
    error: u64,
    instruction: u64,
    code_segment: u64,
    flags: u64,
    stack: u64,
    stack_segment: u64,
}

/// The table of handlers, as the processor reads it.
#[repr(C, align(16))]
struct Table(UnsafeCell<[[u64; 2]; COUNT]>);

// SAFETY: only `begin` stores to it, before any processor uses it.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; COUNT]));

/// Sets the handlers up, and has this processor use them. Called once.
pub(super) fn begin() {
    let mut entries = [[0; 2]; COUNT];
    for (vector, entry) in entries.iter_mut().enumerate() {
        let kind = if vector < usize::from(FIRST_OF_DEVICES) { TRAP_GATE } else { INTERRUPT_GATE };
        let at = (trap_entries as *const () as usize + vector * ENTRY_LEN) as u64;
        *entry = [at & 0xffff | CODE_SEGMENT << 16 | kind << 40 | (at >> 16 & 0xffff) << 48, at >> 32];
    }
    // SAFETY: no processor uses the table yet, and nobody else refers to it.
    unsafe { *TABLE.0.get() = entries };
    load();
}

/// Has this processor use the handlers, which [`begin`] has set up.
pub(super) fn load() {
    let mut pointer = [0; 10];
    pointer[..2].copy_from_slice(&((COUNT * ENTRY_LEN - 1) as u16).to_le_bytes());
    pointer[2..].copy_from_slice(&(TABLE.0.get() as u64).to_le_bytes());
    // SAFETY: the pointer has the form that the instruction reads, and the table lives as long as the kernel.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags)) };
}

/// Serves a trap, on the stack of what it interrupted.
extern "C" fn trap(frame: *mut Frame) {
    // First, because serving a fault may fault.
    let address = processor::fault_address();
    // SAFETY: the entry passes the frame that it has built on the stack, and uses it again only after this returns.
    let frame = unsafe { &mut *frame };
    match frame.vector {
        PAGE_FAULT if mapping::serve(address, frame.error & IS_STORE != 0) => {}
        PAGE_FAULT => match copy::continuation(frame.instruction as usize) {
            Some(at) => frame.instruction = at as u64,
            None => panic!("no page at {address:#x}, for the instruction at {:#x}", frame.instruction),
        },
        vector if vector < FIRST_OF_DEVICES.into() => {
            panic!("exception {vector}, error {:#x}, at {:#x}", frame.error, frame.instruction)
        }
        vector => interrupts::arrived(vector as u8),
    }
}
