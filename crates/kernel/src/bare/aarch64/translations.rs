//! What processors keep of page tables. An instruction of one processor has all of them forget it.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::{arch::asm, ops::Range};

use crate::bare::platform::PAGE_LEN;

/// Pages beyond which forgetting everything is cheaper than forgetting each.
const PAGES_MAX: usize = 32;

/// Returns the address of the highest page table.
pub(in crate::bare) fn root() -> usize {
    let root: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, ttbr0_el1", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root & !(PAGE_LEN as usize - 1)
}

/// Makes a stored entry of a page table known to what reads it.
pub(in crate::bare) fn publish() {
    // SAFETY: only waits for stores.
    unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
}

/// Has all processors forget the translations of `addresses`, of which the page tables have been changed. Returns when
/// they have: the barrier after it waits for all.
pub(in crate::bare) fn forget(addresses: Range<usize>) {
    // SAFETY: here and below, this only makes processors read the page tables again. Not `nomem`: changes to the tables
    // come before.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    if addresses.len() / PAGE_LEN as usize > PAGES_MAX {
        // SAFETY: as above.
        unsafe { asm!("tlbi vmalle1is", options(nostack, preserves_flags)) };
    } else {
        let page_len = PAGE_LEN as usize;
        for page in (addresses.start / page_len * page_len..addresses.end).step_by(page_len) {
            // SAFETY: as above. The operand is the address in units of 4 KiB, whatever the size of a page.
            unsafe { asm!("tlbi vaae1is, {}", in(reg) page >> 12, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: as above.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Has this processor forget the translations of `addresses`.
pub(in crate::bare) fn forget_here(addresses: Range<usize>) {
    forget(addresses);
}
