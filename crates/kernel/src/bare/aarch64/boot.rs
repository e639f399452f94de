//! The entry points: set up page tables, floating point and a stack, then call Rust.

#![expect(unsafe_code, reason = "the processor starts in a state that only assembly can leave")]

use core::arch::global_asm;

use transom_guest::platform::PageSize;

use super::IDENTITY_LEN;
use crate::bare::{
    geometry::{INDEX_BITS, PAGE_SHIFT, ROOT_LEVEL},
    platform::PAGE_SIZE,
};

/// The level of the largest entries that map something by themselves, and the bits of an address in such a block.
const BLOCK_LEVEL: u32 = match PAGE_SIZE {
    PageSize::Kib4 => 2,
    PageSize::Kib16 | PageSize::Kib64 => 1,
};
const BLOCK_SHIFT: u32 = PAGE_SHIFT + INDEX_BITS * BLOCK_LEVEL;
const BLOCKS: u64 = IDENTITY_LEN >> BLOCK_SHIFT;

/// Tables of the blocks, to which the first entries of the highest table lead; 0 if they are in the highest table.
const ROOT_ENTRIES: u64 = if BLOCK_LEVEL == ROOT_LEVEL { 0 } else { BLOCKS.div_ceil(1 << INDEX_BITS) };
const IDENTITY_TABLES_LEN: u64 = if ROOT_ENTRIES == 0 { 1 } else { ROOT_ENTRIES } << PAGE_SHIFT;
const _: () = assert!(ROOT_ENTRIES == 0 || BLOCK_LEVEL + 1 == ROOT_LEVEL);

/// How addresses are translated (Arm ARM, TCR_EL1). From the lowest bit: how many of the 64 bits addresses do not have,
/// tables that are cached and shared, the size of pages, no walks of TTBR1_EL1, 40 bits of physical addresses.
const TRANSLATION: u64 = {
    let granule = match PAGE_SIZE {
        PageSize::Kib4 => 0b00,
        PageSize::Kib64 => 0b01,
        PageSize::Kib16 => 0b10,
    };
    let bits = PAGE_SHIFT + INDEX_BITS * (ROOT_LEVEL + 1);
    (64 - bits) as u64 | granule << 14 | 0x2_0080_3500
};

// QEMU enters at `start`, at exception level 1, with the MMU off. The firmware enters the second processor at
// `second_start`, in the same state. `x19` is the processor's number. The tables `identity` map 512 GiB to themselves
// by blocks: the first GiB is devices, those up to 256 GiB are memory, and above are devices again, such as the
// configuration of PCI functions. The rest of the highest table is `bare::tables`'. With the MMU off, all memory would
// be treated as a device, without unaligned access and without atomic operations.
global_asm!(
    r#"
    .section .boot, "ax"
    .global start, second_start
start:
    adrp x0, page_table
    add x0, x0, :lo12:page_table
    adrp x3, identity
    add x3, x3, :lo12:identity
    .ifgt {root_entries}        // else the blocks are in the highest table
    orr x1, x3, #3              // a table
    mov x2, #0
0:
    str x1, [x0, x2, lsl #3]
    add x1, x1, #(1 << {page_shift})
    add x2, x2, #1
    cmp x2, #{root_entries}
    b.ne 0b
    .endif
    mov x2, #0
    ldr x6, ={blocks}
1:
    mov x1, #0x401              // a block of memory of attribute 0, accessed
    mov x4, #0x705              // the same with attribute 1, shared
    lsr x5, x2, #(30 - {block_shift})
    sub x5, x5, #1
    cmp x5, #255
    csel x1, x4, x1, lo
    orr x1, x1, x2, lsl #{block_shift}
    str x1, [x3, x2, lsl #3]
    add x2, x2, #1
    cmp x2, x6
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
    ldr x1, ={translation}
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
    .balign 1 << {page_shift}
page_table:
    .ifgt {root_entries}
    .skip 1 << {page_shift}
    .endif
identity:
    .skip {identity_len}
stacks:
    .skip 2 * 262144
    .text
    "#,
    page_shift = const PAGE_SHIFT,
    root_entries = const ROOT_ENTRIES,
    block_shift = const BLOCK_SHIFT,
    blocks = const BLOCKS,
    identity_len = const IDENTITY_TABLES_LEN,
    translation = const TRANSLATION,
    enter = sym enter,
);

extern "C" fn enter(number: usize) -> ! {
    if number == 0 { crate::bare::main() } else { super::serve() }
}
