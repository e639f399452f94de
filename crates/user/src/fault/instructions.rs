//! The instructions that may fault, and where each goes on after a fault.
//!
//! Each is one instruction of our own, so that the handler knows by its address whether a fault is theirs, and
//! continues after it: with what is left in the copy's counting register, or with the result that stands until the
//! store is done.

#![expect(unsafe_code, reason = "in assembler, for the sake of their addresses")]

use std::sync::OnceLock;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the copy that survives faults is written for x86_64");

// fn(to: rdi, from: rsi, len_bytes: rdx) -> bytes that were not copied: rax. `rep movsb` moves whole cache lines on
// processors of the last ten years (ERMS), and is exact at a fault: rcx counts what has not been moved. The ABI
// promises that the direction flag is clear.
std::arch::global_asm!(
    ".pushsection .text.transom_fault_copy,\"ax\",@progbits",
    ".hidden transom_fault_copy",
    ".hidden transom_fault_copy_moves",
    ".hidden transom_fault_copy_lands",
    ".global transom_fault_copy",
    ".global transom_fault_copy_moves",
    ".global transom_fault_copy_lands",
    ".type transom_fault_copy,@function",
    "transom_fault_copy:",
    "mov rcx, rdx",
    "transom_fault_copy_moves:",
    "rep movsb",
    "transom_fault_copy_lands:",
    "mov rax, rcx",
    "ret",
    ".size transom_fault_copy, . - transom_fault_copy",
    ".popsection",
);

// fn(at: rdi) -> 0 where the byte was stored to, else 1: eax.
std::arch::global_asm!(
    ".pushsection .text.transom_fault_touch,\"ax\",@progbits",
    ".hidden transom_fault_touch",
    ".hidden transom_fault_touch_stores",
    ".hidden transom_fault_touch_lands",
    ".global transom_fault_touch",
    ".global transom_fault_touch_stores",
    ".global transom_fault_touch_lands",
    ".type transom_fault_touch,@function",
    "transom_fault_touch:",
    "mov eax, 1",
    "transom_fault_touch_stores:",
    "lock or byte ptr [rdi], 0",
    "mov eax, 0",
    "transom_fault_touch_lands:",
    "ret",
    ".size transom_fault_touch, . - transom_fault_touch",
    ".popsection",
);

unsafe extern "sysv64" {
    pub(super) fn transom_fault_copy(to: *mut u8, from: *const u8, len_bytes: usize) -> usize;
    fn transom_fault_copy_moves();
    fn transom_fault_copy_lands();
    pub(super) fn transom_fault_touch(at: *mut u8) -> u32;
    fn transom_fault_touch_stores();
    fn transom_fault_touch_lands();
}

/// Where a fault at instruction `at` goes on, if `at` is one of ours.
pub(super) fn landing(at: usize) -> Option<usize> {
    static PLACES: OnceLock<[(usize, usize); 2]> = OnceLock::new();
    let place = |of: unsafe extern "sysv64" fn()| of as *const () as usize;
    let places = || {
        [
            (place(transom_fault_copy_moves), place(transom_fault_copy_lands)),
            (place(transom_fault_touch_stores), place(transom_fault_touch_lands)),
        ]
    };
    // Filled when the handlers are installed, so that no handler waits for another thread's initialisation.
    let places = PLACES.get_or_init(places);
    places.iter().find(|place| place.0 == at).map(|place| place.1)
}
