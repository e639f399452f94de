//! The copy of `bare::copy`: one instruction, which leaves the number of bytes that are left in `rcx`.

#![expect(unsafe_code, reason = "an instruction that the fault handler knows")]

use core::arch::global_asm;

global_asm!(
    r#"
    .text
    .global copy_bytes, copy_begin, copy_end
copy_bytes:
    mov rcx, rdx
copy_begin:
    rep movsb
copy_end:
    mov rax, rcx
    ret
    "#
);
