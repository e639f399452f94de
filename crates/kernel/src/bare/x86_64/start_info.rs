//! What the loader says of the machine's memory (PVH's `hvm_start_info`).
//!
//! Source: Xen's `arch-x86/hvm/start_info.h`. The structures are in the lowest MiB, which nothing else uses.

#![expect(unsafe_code, reason = "the loader leaves its structures at addresses")]

use core::ops::Range;

const MAGIC: u32 = 0x336e_c578;
/// The version that has a map of the memory.
const VERSION_WITH_MAP: u32 = 1;
const MAP: usize = 40;
const MAP_COUNT: usize = 48;
/// An entry of the map: address, length, type.
const ENTRY_LEN: usize = 24;
const TYPE: usize = 16;
const IS_MEMORY: u32 = 1;

/// Everything that the loader leaves, and so all that is read here, is in the lowest MiB, after the interrupt vectors.
const LOADER: Range<usize> = 0x400..1 << 20;

unsafe extern "C" {
    /// The address that the loader passed, which `boot` has stored.
    static start_info: u32;
}

/// Returns the number of bytes of memory from `start` on, at most `most`. Without a map, these are taken to be there.
pub(super) fn memory_from(start: usize, most: usize) -> usize {
    let Some(info) = info().filter(|&info| u32_at(info + 4) >= VERSION_WITH_MAP) else { return most };
    let (map, count) = (u64_at(info + MAP) as usize, u32_at(info + MAP_COUNT) as usize);
    let end = (0..count).map(|number| map + number * ENTRY_LEN).find_map(|entry| {
        let (first, len) = (u64_at(entry) as usize, u64_at(entry + 8) as usize);
        (u32_at(entry + TYPE) == IS_MEMORY && (first..first + len).contains(&start)).then_some(first + len)
    });
    end.map_or(most, |end| (end - start).min(most))
}

fn info() -> Option<usize> {
    // SAFETY: `boot` has stored it before this code runs, and nobody stores to it later.
    let at = unsafe { start_info } as usize;
    (at != 0 && u32_at(at) == MAGIC).then_some(at)
}

fn u32_at(at: usize) -> u32 {
    if !LOADER.contains(&at) {
        return 0;
    }
    // SAFETY: this is memory of the machine that is mapped to itself, below all that Rust uses; nobody stores to it.
    unsafe { (at as *const u32).read_unaligned() }
}

fn u64_at(at: usize) -> u64 {
    u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32
}
