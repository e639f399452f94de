//! What processors keep of page tables. Each forgets for itself, and the firmware has the others do it.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::{arch::asm, ops::Range};

use transom_guest::dax::entry::PAGE_LEN;

use super::sbi;
use crate::bare::processors;

/// Pages beyond which forgetting everything is cheaper than forgetting each.
const PAGES_MAX: usize = 32;

/// The number of the highest table's page within the register that has it.
const NUMBER_MASK: usize = (1 << 44) - 1;

/// Returns the address of the highest page table.
pub(in crate::bare) fn root() -> usize {
    let register: usize;
    // SAFETY: reads a register.
    unsafe { asm!("csrr {}, satp", out(reg) register, options(nomem, nostack, preserves_flags)) };
    (register & NUMBER_MASK) << 12
}

/// Makes a stored entry of a page table known to what reads it: a processor that still knows that there was nothing
/// faults, and forgets it then.
pub(in crate::bare) fn publish() {
    // SAFETY: only orders stores.
    unsafe { asm!("fence w, rw", options(nostack, preserves_flags)) };
}

/// Has all processors forget the translations of `addresses`, of which the page tables have been changed. Returns when
/// they have.
pub(in crate::bare) fn forget(addresses: Range<usize>) {
    forget_here(addresses.clone());
    if processors::running() > 1 {
        sbi::forget(addresses).expect("the firmware reaches the other processor");
    }
}

/// Has this processor forget the translations of `addresses`.
pub(in crate::bare) fn forget_here(addresses: Range<usize>) {
    if addresses.len() / PAGE_LEN as usize > PAGES_MAX {
        // SAFETY: here and below, this only makes the processor read the page tables again. Not `nomem`: changes to
        // them come before.
        unsafe { asm!("sfence.vma", options(nostack, preserves_flags)) };
        return;
    }
    for page in addresses.step_by(PAGE_LEN as usize) {
        // SAFETY: as above.
        unsafe { asm!("sfence.vma {}", in(reg) page, options(nostack, preserves_flags)) };
    }
}
