//! The copy of `bare::copy`: words where both addresses and the length are multiples of one, else bytes.

#![expect(unsafe_code, reason = "instructions that the fault handler knows")]

use core::arch::global_asm;

global_asm!(
    r#"
    .text
    .global copy_bytes, copy_begin, copy_end
copy_bytes:
copy_begin:
    cbz x2, copy_end
    orr x3, x0, x1
    orr x3, x3, x2
    tst x3, #7
    b.ne 2f
1:
    ldr x3, [x1], #8
    str x3, [x0], #8
    subs x2, x2, #8
    b.ne 1b
    b copy_end
2:
    ldrb w3, [x1], #1
    strb w3, [x0], #1
    subs x2, x2, #1
    b.ne 2b
copy_end:
    mov x0, x2
    ret
    "#
);
