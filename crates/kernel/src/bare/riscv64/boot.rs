//! The entry point: sets up floating point and a stack, then calls Rust.

#![expect(unsafe_code, reason = "the processor starts in a state that only assembly can leave")]

use core::{arch::global_asm, sync::atomic::Ordering};

// QEMU enters here in machine mode, with `-bios none`; `a1` is the address of the device tree.
global_asm!(
    r#"
    .section .boot, "ax"
    .global start
start:
    li t0, 1 << 13
    csrs mstatus, t0
    la sp, stack_top
    mv a0, a1
    call {main}
1:
    j 1b

    .section .bss
    .balign 4096
stack:
    .skip 262144
stack_top:
    .text
    "#,
    main = sym enter,
);

extern "C" fn enter(device_tree: usize) -> ! {
    super::DEVICE_TREE.store(device_tree, Ordering::Relaxed);
    crate::bare::main()
}
