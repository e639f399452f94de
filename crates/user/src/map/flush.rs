//! Writing the processor's cache back to memory, for storage that is memory.

#![expect(unsafe_code, reason = "instructions that have no function")]

use std::{
    arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count, _mm_sfence},
    },
    sync::OnceLock,
};

/// Bytes that one instruction writes back: what every processor of this architecture has had.
const LINE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    /// Keeps the line in the cache.
    Clwb,
    Clflushopt,
    /// One after the other; every processor has it.
    Clflush,
}

/// The best that the processor has (Intel SDM volume 2, CPUID leaf 7).
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

/// Writes the cache lines of `len` bytes at `start` back, and returns when they are in memory.
///
/// # Safety
/// The bytes are mapped, or a fault there is served.
pub(super) unsafe fn write_back(start: *const u8, len: usize) {
    let instruction = best();
    let first = start.addr() / LINE * LINE;
    for line in (first..start.addr() + len).step_by(LINE) {
        // SAFETY: writes a cache line back, and changes no byte; the processor has the instruction; the line is mapped,
        // as the caller promises.
        unsafe {
            match instruction {
                Instruction::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                Instruction::Clflushopt => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                Instruction::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
    // SAFETY: orders stores and write-backs, on every processor of this architecture.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_back_changes_no_byte() {
        let bytes: Vec<u8> = (0..1000).map(|at| at as u8).collect();
        // SAFETY: the vector's own bytes.
        unsafe { write_back(bytes.as_ptr().wrapping_add(3), 990) };
        assert!(bytes.iter().zip(0..1000).all(|(&byte, at)| byte == at as u8));
    }
}
