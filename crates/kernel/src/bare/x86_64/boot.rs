//! The entry point: sets up page tables, long mode and a stack, then calls Rust.

#![expect(unsafe_code, reason = "the CPU starts in a mode that only assembly can leave")]

use core::arch::global_asm;

use super::{processor, second};

// The PVH boot protocol enters at `start` in 32-bit protected mode with flat segments, and with paging and interrupts
// off. The page tables identity-map the first 512 GiB in pages of 1 GiB; `super::tables` fills the second 512 GiB.
//
// The second processor enters at a copy of `second_begin`, in real mode (see `super::second`). `ebx` is the processor's
// number from there on.
global_asm!(
    r#"
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad start

    .section .boot, "ax"
    .code32
    .global start
start:
    cli
    mov dword ptr [start_info], ebx
    mov esp, offset stacks + 262144
    mov eax, offset page_directories
    or eax, 3
    mov dword ptr [page_map], eax
    xor ecx, ecx
1:
    mov eax, ecx
    shl eax, 30
    or eax, 0x83
    mov dword ptr [page_directories + ecx * 8], eax
    mov eax, ecx
    shr eax, 2
    mov dword ptr [page_directories + ecx * 8 + 4], eax
    inc ecx
    cmp ecx, 512
    jne 1b
    xor ebx, ebx
enter_long_mode:
    mov eax, offset page_map
    mov cr3, eax
    mov eax, cr4
    or eax, 0x20
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    or eax, 0x80010001          // paging, and write protection for the kernel too
    mov cr0, eax
    lgdt [gdt_pointer]
    push 8
    mov eax, offset long_mode
    push eax
    retf
    .code64
long_mode:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    lea eax, [ebx + 1]
    shl eax, 18
    add eax, offset stacks
    mov rsp, rax
    mov edi, ebx
    xor ebp, ebp
    call {enter}
    ud2

    .code32
second_in_protected_mode:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov esp, offset stacks + 2 * 262144
    mov ebx, 1
    jmp enter_long_mode

    .code16
    .global second_begin, second_end
second_begin:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16                // lgdt, with a base of 32 bits, of the pointer's copy
    .word 0x8000 + second_gdt_pointer - second_begin
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea                            // jmp far
    .long second_in_protected_mode
    .word 24
second_gdt_pointer:
    .word 31
    .long gdt
second_end:
    .code64

    .balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
    .quad 0x00cf9a000000ffff                    // code of 32 bits
gdt_pointer:
    .word 31
    .long gdt

    .section .bss
    .balign 4
    .global start_info
start_info:
    .skip 4
    .balign 4096
page_map:
    .skip 4096
page_directories:
    .skip 4096
stacks:
    .skip 2 * 262144
    .text
    "#,
    enter = sym enter,
);

extern "C" fn enter(number: usize) -> ! {
    processor::set_number(number);
    if number == 0 { crate::bare::main() } else { second::enter() }
}
