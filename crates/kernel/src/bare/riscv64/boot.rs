//! The entry points: set up page tables, floating point, interrupts and a stack, then call Rust.

#![expect(unsafe_code, reason = "the processor starts in a state that only assembly can leave")]

use core::{arch::global_asm, sync::atomic::Ordering};

// The firmware enters at `start` with one processor, in supervisor mode, with paging and interrupts off; `a0` is the
// number of its hart, which may be any, and `a1` the address of the device tree. It enters at `second_start` with the
// second one, once it is asked to. `tp` is the processor's number. Addresses have 48 bits. The table `identity` maps
// 512 times 1 GiB to itself; what is memory and what a device, the machine knows. The rest of the highest table is
// `bare::tables`'.
global_asm!(
    r#"
    .section .boot, "ax"
    .global start, second_start
start:
    la t0, identity
    srli t1, t0, 2              // the number of its page, at the place for it
    ori t1, t1, 1               // a table
    la t2, page_table
    sd t1, 0(t2)
    li t1, 0xc7                 // a page of 1 GiB that is read, written, accessed and dirty
    ori t1, t1, 0x8             // and executed
    li t2, 512
    li t3, 1 << 28              // 1 GiB, in the same unit
1:
    sd t1, 0(t0)
    add t1, t1, t3
    addi t0, t0, 8
    addi t2, t2, -1
    bnez t2, 1b
    li tp, 0
    j begin
second_start:
    li tp, 1
begin:
    la t0, page_table
    srli t0, t0, 12
    li t1, 9 << 60              // Sv48
    or t0, t0, t1
    csrw satp, t0
    sfence.vma
    li t0, 1 << 13
    csrs sstatus, t0
    la t0, trap_entry
    csrw stvec, t0
    li t0, 0x222                // interrupts by software, the timer and devices
    csrw sie, t0
    la sp, stacks
    addi t0, tp, 1
    slli t0, t0, 18
    add sp, sp, t0
    call {enter}
1:
    j 1b

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

extern "C" fn enter(hart: usize, device_tree: usize) -> ! {
    if super::number() != 0 {
        super::serve();
    }
    super::processor::set_first_hart(hart);
    super::DEVICE_TREE.store(device_tree, Ordering::Relaxed);
    crate::bare::main()
}
