//! What processors keep of page tables. Each forgets for itself, and the firmware has the others do it.
//!
//! `sfence.vma` with an address covers the entry that maps it, and not those of the tables above, of which a processor
//! may keep a copy too, or that they were empty. After a change of those, only `sfence.vma` without an address is
//! enough. Source: RISC-V Privileged Architecture, section 12.2.1. QEMU keeps nothing of upper tables, so no test here
//! can tell.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::{arch::asm, ops::Range};

use super::sbi;
use crate::bare::{
    platform::{PAGE_LEN, PAGES_PER_HUGE},
    processors,
};

/// Pages beyond which everything is forgotten, which is cheaper than forgetting each. Who changes an entry of an upper
/// table passes all that it stands for, which is more.
const PAGES_MAX: usize = 32;

const _: () = assert!(PAGES_MAX < PAGES_PER_HUGE as usize);

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
    let are_few = addresses.len() / PAGE_LEN as usize <= PAGES_MAX;
    if are_few {
        for page in addresses.clone().step_by(PAGE_LEN as usize) {
            // SAFETY: this only makes the processor read the page tables again. Not `nomem`: changes to them come
            // before.
            unsafe { asm!("sfence.vma {}", in(reg) page, options(nostack, preserves_flags)) };
        }
    } else {
        forget_all_here();
    }
    if processors::running() > 1 {
        let is_done = if are_few { sbi::forget(addresses) } else { sbi::forget_all() };
        is_done.expect("the firmware reaches the other processor");
    }
}

/// Has this processor forget that an access to `addresses` has faulted. It forgets everything: it may be an entry of an
/// upper table of which it still knows that it was empty, and then the access would fault forever.
pub(in crate::bare) fn forget_here(_addresses: Range<usize>) {
    forget_all_here();
}

fn forget_all_here() {
    // SAFETY: as in `forget`.
    unsafe { asm!("sfence.vma", options(nostack, preserves_flags)) };
}
