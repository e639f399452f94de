//! Copies to and from memory that others may change at the same time: the host, a device, another thread.
//!
//! A plain copy would be a data race, which is undefined behaviour, and a compiler may read a byte of it twice. Here
//! every byte of the shared side is accessed exactly once, as a relaxed atomic byte, so the result is a mixture of old
//! and new bytes. Accesses of several bytes are in assembly. An assembly block may do whatever some Rust code could do,
//! and each block here stands for as many accesses to `AtomicU8`: the instruction does no less. Accesses that are
//! atomic only per byte never conflict in size, however the copies of two threads overlap; Rust's own atomic words
//! would conflict.

#![expect(unsafe_code, reason = "memory that others change is accessed by address")]

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Maximum number of bytes that one instruction moves, except for repeating instructions.
const WORD: usize = size_of::<u64>();

/// Copies `to.len()` bytes from `from`, reading each exactly once.
///
/// # Safety
/// The bytes at `from` are mapped and readable, do not overlap `to`, and are only accessed atomically, from outside
/// Rust, or by this module.
pub(crate) unsafe fn load(from: *const u8, to: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if to.len() >= block::LEN_MIN {
        // SAFETY: guaranteed by the caller; `to` is borrowed for writing.
        unsafe { block::copy(to.as_mut_ptr(), from, to.len()) };
        return;
    }
    let (head, words, _) = parts(from, to.len());
    let (first, rest) = to.split_at_mut(head);
    let (middle, last) = rest.split_at_mut(words * WORD);
    let mut at = from;
    // SAFETY: `at` runs through the bytes at `from`, as many as `to` has; words are aligned where alignment is
    // required.
    unsafe {
        load_bytes(&mut at, first);
        for word in middle.chunks_exact_mut(WORD) {
            word.copy_from_slice(&word::load(at).to_ne_bytes());
            at = at.add(WORD);
        }
        load_bytes(&mut at, last);
    }
}

/// Copies `from` to `to`, writing each byte exactly once.
///
/// # Safety
/// As for [`load`], and the bytes at `to` are writable.
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if from.len() >= block::LEN_MIN {
        // SAFETY: guaranteed by the caller; `from` is borrowed.
        unsafe { block::copy(to, from.as_ptr(), from.len()) };
        return;
    }
    let (head, words, _) = parts(to, from.len());
    let (first, rest) = from.split_at(head);
    let (middle, last) = rest.split_at(words * WORD);
    let mut at = to;
    // SAFETY: `at` runs through the bytes at `to`, as many as `from` has; words are aligned where alignment is
    // required.
    unsafe {
        store_bytes(&mut at, first);
        for word in middle.chunks_exact(WORD) {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            word::store(at, u64::from_ne_bytes(bytes));
            at = at.add(WORD);
        }
        store_bytes(&mut at, last);
    }
}

/// Sets `len_bytes` at `to` to `value`.
///
/// # Safety
/// As for [`store`].
pub(crate) unsafe fn fill(to: *mut u8, value: u8, len_bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len_bytes >= block::LEN_MIN {
        // SAFETY: guaranteed by the caller.
        unsafe { block::fill(to, value, len_bytes) };
        return;
    }
    let piece = [value; 64];
    for at in (0..len_bytes).step_by(piece.len()) {
        // SAFETY: within the bytes at `to`.
        unsafe { store(to.add(at), &piece[..piece.len().min(len_bytes - at)]) };
    }
}

/// Copies `len_bytes` from `from` to `to`, both of which others may change. The ranges may overlap: the bytes that were
/// at `from` arrive, unless others change them.
///
/// # Safety
/// As for [`load`] and [`store`].
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len_bytes >= block::LEN_MIN && to.addr().abs_diff(from.addr()) >= len_bytes {
        // SAFETY: guaranteed by the caller; the ranges do not overlap.
        unsafe { block::copy(to, from, len_bytes) };
        return;
    }
    let mut piece = [0; 256];
    let is_forward = to.addr() <= from.addr() || to.addr() >= from.addr() + len_bytes;
    let mut left = len_bytes;
    while left > 0 {
        let len = left.min(piece.len());
        let at = if is_forward { len_bytes - left } else { left - len };
        // SAFETY: `at..at + len` lies within both ranges.
        unsafe {
            load(from.add(at), &mut piece[..len]);
            store(to.add(at), &piece[..len]);
        }
        left -= len;
    }
}

/// Divides `len_bytes` at `shared`: the bytes before the first word, the words, and the bytes after the last one.
fn parts(shared: *const u8, len_bytes: usize) -> (usize, usize, usize) {
    let head = if word::IS_ALIGNED { shared.align_offset(WORD).min(len_bytes) } else { 0 };
    let words = if word::EXISTS { (len_bytes - head) / WORD } else { 0 };
    (head, words, len_bytes - head - words * WORD)
}

/// # Safety
/// As for [`load`].
unsafe fn load_bytes(at: &mut *const u8, to: &mut [u8]) {
    for byte in to {
        // SAFETY: guaranteed by the caller; a byte is always aligned, and a load does not change it.
        unsafe {
            *byte = AtomicU8::from_ptr(at.cast_mut()).load(Relaxed);
            *at = at.add(1);
        }
    }
}

/// # Safety
/// As for [`store`].
unsafe fn store_bytes(at: &mut *mut u8, from: &[u8]) {
    for &byte in from {
        // SAFETY: guaranteed by the caller; a byte is always aligned.
        unsafe {
            AtomicU8::from_ptr(*at).store(byte, Relaxed);
            *at = at.add(1);
        }
    }
}

/// Moves eight bytes with one instruction.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"), not(miri)))]
mod word {
    use core::arch::asm;

    pub(super) const EXISTS: bool = true;
    /// Whether an address must be a multiple of 8.
    pub(super) const IS_ALIGNED: bool = !cfg!(target_arch = "x86_64");

    /// # Safety
    /// As for [`load`](super::load), for 8 bytes, aligned if [`IS_ALIGNED`].
    pub(super) unsafe fn load(from: *const u8) -> u64 {
        let word;
        // SAFETY: reads the bytes that the caller vouches for, as 8 relaxed loads of a byte would.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) from, options(nostack, preserves_flags, readonly));
            #[cfg(target_arch = "aarch64")]
            asm!("ldr {}, [{}]", out(reg) word, in(reg) from, options(nostack, preserves_flags, readonly));
            #[cfg(target_arch = "riscv64")]
            asm!("ld {}, 0({})", out(reg) word, in(reg) from, options(nostack, preserves_flags, readonly));
        }
        word
    }

    /// # Safety
    /// As for [`store`](super::store), for 8 bytes, aligned if [`IS_ALIGNED`].
    pub(super) unsafe fn store(to: *mut u8, word: u64) {
        // SAFETY: writes the bytes that the caller vouches for, as 8 relaxed stores of a byte would.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("mov qword ptr [{}], {}", in(reg) to, in(reg) word, options(nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            asm!("str {1}, [{0}]", in(reg) to, in(reg) word, options(nostack, preserves_flags));
            #[cfg(target_arch = "riscv64")]
            asm!("sd {1}, 0({0})", in(reg) to, in(reg) word, options(nostack, preserves_flags));
        }
    }
}

/// Moves single bytes, on other processors and if the language's rules are checked.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"), not(miri))))]
mod word {
    pub(super) const EXISTS: bool = false;
    pub(super) const IS_ALIGNED: bool = false;

    pub(super) unsafe fn load(_: *const u8) -> u64 {
        unreachable!("there are no words")
    }

    pub(super) unsafe fn store(_: *mut u8, _: u64) {
        unreachable!("there are no words")
    }
}

/// Moves or sets many bytes with one repeating instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod block {
    use core::arch::asm;

    /// Below this length the instruction takes longer to start than copying by words.
    pub(super) const LEN_MIN: usize = 512;

    /// # Safety
    /// The bytes at `from` may be read and those at `to` written, by [`load`](super::load) or [`store`](super::store);
    /// they do not overlap.
    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize) {
        // SAFETY: copies the bytes that the caller vouches for, ascending, each once, as relaxed loads and stores of
        // bytes would. The direction flag is clear, as at the beginning of every assembly block.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len_bytes => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// The bytes at `to` may be written, by [`store`](super::store).
    pub(super) unsafe fn fill(to: *mut u8, value: u8, len_bytes: usize) {
        // SAFETY: writes the bytes that the caller vouches for, ascending, each once, as relaxed stores of bytes would.
        // The direction flag is clear, as at the beginning of every assembly block.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") len_bytes => _,
                inout("rdi") to => _,
                in("al") value,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec::Vec;
    use std::{cell::UnsafeCell, thread};

    use super::*;

    fn bytes(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + seed) as u8).collect()
    }

    #[test]
    fn every_length_is_copied_from_and_to_every_alignment() {
        for len in (0..70).chain([255, 256, 257, 1000]) {
            for at in 0..9 {
                let (mut shared, source, mut found) = (bytes(len + 32, 0), bytes(len, 99), bytes(len, 5));
                let before = shared.clone();
                // SAFETY: bytes of a vector that this thread owns.
                unsafe {
                    store(shared.as_mut_ptr().add(at), &source);
                    load(shared.as_ptr().add(at), &mut found);
                }
                assert_eq!(found, source, "{len} bytes at {at}");
                assert_eq!((&shared[..at], &shared[at + len..]), (&before[..at], &before[at + len..]));
                // SAFETY: as above.
                unsafe { fill(shared.as_mut_ptr().add(at), 3, len) };
                assert!(shared[at..at + len].iter().all(|&byte| byte == 3));
                assert_eq!((&shared[..at], &shared[at + len..]), (&before[..at], &before[at + len..]));
            }
        }
    }

    #[test]
    fn ranges_that_overlap_are_copied_as_they_were() {
        for len in [0, 1, 8, 100, 600] {
            for (to, from) in [(0, 0), (0, 5), (5, 0), (0, 256), (300, 0), (100, 700)] {
                let mut found = bytes(1500, 1);
                let mut expected = found.clone();
                expected.copy_within(from..from + len, to);
                let start = found.as_mut_ptr();
                // SAFETY: bytes of a vector that this thread owns.
                unsafe { copy(start.add(to), start.add(from), len) };
                assert_eq!(found, expected, "{len} bytes from {from} to {to}");
            }
        }
    }

    /// Miri reports a data race if copies are not those of shared memory.
    #[test]
    fn threads_that_copy_at_once_find_a_mixture_of_bytes() {
        struct Shared(UnsafeCell<[u8; 100]>);
        // SAFETY: only the copies of this module access it.
        unsafe impl Sync for Shared {}
        impl Shared {
            fn start(&self) -> *mut u8 {
                self.0.get().cast()
            }
        }
        let shared = Shared(UnsafeCell::new([1; 100]));
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: bytes of `shared`.
                unsafe { store(shared.start().add(3), &[2; 90]) };
            });
            scope.spawn(|| {
                // SAFETY: as above.
                unsafe { fill(shared.start().add(7), 3, 70) };
            });
            let mut found = [0; 100];
            // SAFETY: as above.
            unsafe { load(shared.start(), &mut found) };
            assert!(found.iter().all(|byte| (1..=3).contains(byte)));
        });
    }
}
