//! The entry point: sets up page tables, long mode and a stack, then calls Rust.

#![expect(unsafe_code, reason = "the CPU starts in a mode that only assembly can leave")]

use core::arch::global_asm;

// The PVH boot protocol enters here in 32-bit protected mode with flat segments, and with paging and interrupts off.
// The page tables identity-map the first 512 GiB in pages of 1 GiB;
// `super::tables` fills the second 512 GiB.
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
    mov esp, offset stack_top
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
    mov rsp, offset stack_top
    xor ebp, ebp
    call {main}
    ud2

    .balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
gdt_pointer:
    .word 23
    .long gdt

    .section .bss
    .balign 4096
page_map:
    .skip 4096
page_directories:
    .skip 4096
stack:
    .skip 262144
stack_top:
    .text
    "#,
    main = sym enter,
);

extern "C" fn enter() -> ! {
    crate::bare::main()
}
