#![expect(unsafe_code, reason = "the compiler's fences order memory among processors only")]
//! The barriers of architectures on which devices are not ordered as processors are.

/// Orders all accesses before it with all after it, for the whole system.
#[cfg(target_arch = "aarch64")]
pub(super) fn barrier() {
    // SAFETY: a barrier accesses nothing; not `nomem`, so that the compiler moves no access across it.
    unsafe { core::arch::asm!("dmb sy", options(nostack, preserves_flags)) };
}

/// Orders all accesses before it with all after it, also those of devices.
#[cfg(target_arch = "riscv64")]
pub(super) fn barrier() {
    // SAFETY: as for aarch64.
    unsafe { core::arch::asm!("fence iorw, iorw", options(nostack, preserves_flags)) };
}
