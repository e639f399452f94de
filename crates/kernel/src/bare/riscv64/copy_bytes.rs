//! The copy of `bare::copy`: words where both addresses and the length are multiples of one, else bytes.

#![expect(unsafe_code, reason = "instructions that the fault handler knows")]

use core::arch::global_asm;

global_asm!(
    r#"
    .text
    .global copy_bytes, copy_begin, copy_end
copy_bytes:
copy_begin:
    beqz a2, copy_end
    or t0, a0, a1
    or t0, t0, a2
    andi t0, t0, 7
    bnez t0, 2f
1:
    ld t0, 0(a1)
    sd t0, 0(a0)
    addi a1, a1, 8
    addi a0, a0, 8
    addi a2, a2, -8
    bnez a2, 1b
    j copy_end
2:
    lb t0, 0(a1)
    sb t0, 0(a0)
    addi a1, a1, 1
    addi a0, a0, 1
    addi a2, a2, -1
    bnez a2, 2b
copy_end:
    mv a0, a2
    ret
    "#
);
