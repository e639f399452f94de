//! Instructions that change how the processor runs: its number, interrupts, and what it keeps of page tables.

#![expect(unsafe_code, reason = "privileged instructions have no other form")]

use core::arch::asm;

use crate::bare::processors::PROCESSORS_MAX;

/// The flag that lets interrupts in.
const INTERRUPTS_ON: u64 = 1 << 9;

/// The register that holds the base address of the segment GS.
const GS_BASE: u32 = 0xc000_0101;

/// The processors' numbers. GS begins at a processor's own entry. What else a processor would keep for itself, and
/// reach by one instruction, goes next to it.
static NUMBERS: [usize; PROCESSORS_MAX] = [0, 1];

/// Sets the number of this processor, before it does anything else.
pub(super) fn set_number(number: usize) {
    let own = &raw const NUMBERS[number] as u64;
    // SAFETY: nothing but `number` uses this segment, and the entry is never freed.
    unsafe {
        asm!("wrmsr", in("ecx") GS_BASE, in("eax") own as u32, in("edx") (own >> 32) as u32, options(nostack));
    }
}

/// Returns the number of this processor.
pub(in crate::bare) fn number() -> usize {
    let number;
    // SAFETY: GS begins at an entry of `NUMBERS`: `set_number` comes first.
    unsafe { asm!("mov {}, gs:[0]", out(reg) number, options(pure, readonly, nostack, preserves_flags)) };
    number
}

/// Turns interrupts off; returns whether they were on.
pub(in crate::bare) fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: reads the flags, and keeps interrupts off, which no code here relies on being let in. The block may
    // touch memory as far as the compiler knows, so accesses do not move out of the quiet section.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags & INTERRUPTS_ON != 0
}

/// Lets interrupts in. Their handlers are set up: [`super::traps::load`] comes first.
pub(in crate::bare) fn interrupts_on() {
    // SAFETY: the table of handlers has an entry for each vector that the kernel lets devices send.
    unsafe { asm!("sti") };
}

/// Lets interrupts in and halts until one has been handled. Interrupts are off.
pub(super) fn halt() {
    // SAFETY: as for `interrupts_on`. `sti` takes effect after the next instruction: an interrupt that is pending
    // already ends the halt.
    unsafe { asm!("sti", "hlt") };
}

/// Returns the address whose access faulted last.
pub(super) fn fault_address() -> usize {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Returns the address of the highest page table.
pub(in crate::bare) fn root() -> usize {
    let root: usize;
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
