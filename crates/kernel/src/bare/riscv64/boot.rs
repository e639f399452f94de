//! The entry point: sets up floating point, interrupts and a stack, then calls Rust.

#![expect(unsafe_code, reason = "the processor starts in a state that only assembly can leave")]

use core::{arch::global_asm, sync::atomic::Ordering};

// QEMU enters here with each processor, in machine mode, with `-bios none`; `a1` is the address of the device tree. The
// second processor waits until the first one interrupts it, the others for good.
global_asm!(
    r#"
    .section .boot, "ax"
    .global start
start:
    csrr a0, mhartid
    beqz a0, 2f
    li t0, 1 << 3
    csrw mie, t0
1:
    wfi
    csrr t0, mip
    andi t0, t0, 1 << 3
    beqz t0, 1b
    li t0, 1
    bne a0, t0, 1b
2:
    li t0, 1 << 13
    csrs mstatus, t0
    la t0, trap_entry
    csrw mtvec, t0
    li t0, 0x888                // interrupts by software, the timer and devices
    csrw mie, t0
    la sp, stacks
    addi t0, a0, 1
    slli t0, t0, 18
    add sp, sp, t0
    call {enter}
1:
    j 1b

    .section .bss
    .balign 4096
stacks:
    .skip 2 * 262144
    .text
    "#,
    enter = sym enter,
);

extern "C" fn enter(number: usize, device_tree: usize) -> ! {
    if number != 0 {
        crate::bare::processors::serve();
    }
    super::DEVICE_TREE.store(device_tree, Ordering::Relaxed);
    crate::bare::main()
}
