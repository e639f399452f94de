//! The entry points: set up page tables, floating point and a stack, then call Rust.

#![expect(unsafe_code, reason = "the processor starts in a state that only assembly can leave")]

use core::arch::global_asm;

// QEMU enters at `start`, at exception level 1, with the MMU off. The firmware enters the second processor at
// `second_start`, in the same state. `x19` is the processor's number. Addresses have 48 bits. The table `identity` maps
// 512 times 1 GiB to itself: the first is devices, those up to 256 GiB are memory, and above are devices again, such as
// the configuration of PCI functions. The rest of the highest table is `bare::tables`'. With the MMU off, all memory
// would be treated as a device, without unaligned access and without atomic operations.
global_asm!(
    r#"
    .section .boot, "ax"
    .global start, second_start
start:
    adrp x0, page_table
    add x0, x0, :lo12:page_table
    adrp x3, identity
    add x3, x3, :lo12:identity
    orr x1, x3, #3              // a table
    str x1, [x0]
    mov x2, #0
1:
    mov x1, #0x401              // a block of memory of attribute 0, accessed
    mov x4, #0x705              // the same with attribute 1, shared
    sub x5, x2, #1
    cmp x5, #255
    csel x1, x4, x1, lo
    orr x1, x1, x2, lsl #30
    str x1, [x3, x2, lsl #3]
    add x2, x2, #1
    cmp x2, #512
    b.ne 1b
    mov x19, #0
    b begin
second_start:
    mov x19, #1
begin:
    mov x0, #(3 << 20)
    msr cpacr_el1, x0
    adrp x0, page_table
    add x0, x0, :lo12:page_table
    ldr x1, =0xff00             // attribute 0: device; 1: memory, cached
    msr mair_el1, x1
    ldr x1, =0x200803510        // 48 bits of address, pages of 4 KiB, cached and shared; 40 physical bits
    mrs x2, id_aa64mmfr1_el1
    and x2, x2, #0xf
    cmp x2, #2
    b.lo 2f
    orr x1, x1, #(3 << 39)      // the processor marks entries accessed and dirty by itself
2:
    msr tcr_el1, x1
    msr ttbr0_el1, x0
    adrp x0, vectors
    add x0, x0, :lo12:vectors
    msr vbar_el1, x0
    msr tpidr_el1, x19
    dsb sy
    isb
    mrs x1, sctlr_el1
    mov x2, #0x1005             // MMU, caches
    orr x1, x1, x2
    msr sctlr_el1, x1
    isb
    adrp x0, stacks
    add x0, x0, :lo12:stacks
    add x1, x19, #1
    add x0, x0, x1, lsl #18
    mov sp, x0
    mov x0, x19
    mov x29, xzr
    mov x30, xzr
    bl {enter}
    b .

    .section .bss
    .balign 4096
page_table:
    .skip 4096
identity:
    .skip 4096
stacks:
    .skip 2 * 262144
    .text
    "#,
    enter = sym enter,
);

extern "C" fn enter(number: usize) -> ! {
    if number == 0 { crate::bare::main() } else { super::serve() }
}
