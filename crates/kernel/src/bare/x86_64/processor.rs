//! Instructions that change how the processor runs: interrupts, and what it keeps of page tables.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::arch::asm;

/// The flag that lets interrupts in.
const INTERRUPTS_ON: u64 = 1 << 9;

/// Keeps interrupts off while it lives.
pub(in crate::bare) struct Quiet {
    were_on: bool,
}

impl Quiet {
    /// Turns interrupts off.
    pub(in crate::bare) fn begin() -> Self {
        let flags: u64;
        // SAFETY: reads the flags, and keeps interrupts off, which no code here relies on being let in. The block may
        // touch memory as far as the compiler knows, so accesses do not move out of the quiet section.
        unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        Self { were_on: flags & INTERRUPTS_ON != 0 }
    }

    /// Lets interrupts in and halts until one has been handled; if they were off before, returns soon.
    pub(in crate::bare) fn pause(self) {
        if self.were_on {
            // SAFETY: interrupts were on before, so their handlers are set up. `sti` takes effect after the next
            // instruction: an interrupt that is pending already ends the halt.
            unsafe { asm!("sti", "hlt") };
        } else {
            core::hint::spin_loop();
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.were_on {
            let_interrupts_in();
        }
    }
}

/// Lets interrupts in. Their handlers are set up: [`super::traps::begin`] comes first.
pub(super) fn let_interrupts_in() {
    // SAFETY: the table of handlers has an entry for each vector that the kernel lets devices send.
    unsafe { asm!("sti") };
}

/// Keeps interrupts off.
pub(super) fn keep_interrupts_off() {
    // SAFETY: no code relies on interrupts being let in.
    unsafe { asm!("cli") };
}

/// Returns the address whose access faulted last.
pub(super) fn fault_address() -> usize {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Returns the address of the highest page table.
pub(super) fn root() -> u64 {
    let root: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root & !0xfff
}

/// Forgets the translation of the page at `address`.
pub(super) fn flush_page(address: usize) {
    // SAFETY: only makes the processor read the page tables again. Not `nomem`: changes to them come before.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Forgets every translation: no page is global.
pub(super) fn flush_all() {
    // SAFETY: loads the register with its own value. Not `nomem`, as above.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) };
}
