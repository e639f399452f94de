//! Writes the CPU's cache back to memory, for storage that is memory.

#![expect(unsafe_code, reason = "instructions that have no function")]

use std::{
    arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count, _mm_sfence},
    },
    sync::OnceLock,
};

/// Bytes that one instruction writes back, the same on every CPU of this architecture.
const LINE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    /// Keeps the line in the cache.
    Clwb,
    Clflushopt,
    /// Serialising, but available on every CPU.
    Clflush,
}

/// Returns the best instruction that the CPU has (Intel SDM volume 2, CPUID leaf 7).
fn best() -> Instruction {
    static BEST: OnceLock<Instruction> = OnceLock::new();
    *BEST.get_or_init(|| {
        let features = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        if features & 1 << 24 != 0 {
            Instruction::Clwb
        } else if features & 1 << 23 != 0 {
            Instruction::Clflushopt
        } else {
            Instruction::Clflush
        }
    })
}

/// Writes back the cache lines of `len` bytes at `start`, and returns when they are in memory.
///
/// # Safety
/// The bytes must be mapped, or faults there must be served.
pub(super) unsafe fn write_back(start: *const u8, len: usize) {
    let instruction = best();
    let first = start.addr() / LINE * LINE;
    for line in (first..start.addr() + len).step_by(LINE) {
        // SAFETY: the instruction writes back a cache line and changes no byte; `best` checked that the CPU has it; the
        // caller guarantees that the line is mapped.
        unsafe {
            match instruction {
                Instruction::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                Instruction::Clflushopt => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                Instruction::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
    // SAFETY: the instruction exists on every CPU of this architecture, and only orders stores and write-backs.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_back_changes_no_byte() {
        let bytes: Vec<u8> = (0..1000).map(|at| at as u8).collect();
        // SAFETY: the bytes are the vector's.
        unsafe { write_back(bytes.as_ptr().wrapping_add(3), 990) };
        assert!(bytes.iter().zip(0..1000).all(|(&byte, at)| byte == at as u8));
    }
}
