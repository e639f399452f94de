//! Disassembles the accesses to registers in a kernel that was built: each is one plain instruction, which a hypervisor
//! can decode, next to the barrier that orders it with memory.
//!
//! Encodings: Arm A-profile A64 (`DMB`, `LDR`/`STR` with an unsigned offset); RISC-V I and C.

use std::{fs, path::Path};

/// The functions of `transport/registers/instructions.rs`: name, binary logarithm of the width, and whether every kernel
/// uses it.
const ACCESSES: [(&str, u32, bool); 6] = [
    ("read_u8", 0, false),
    ("write_u8", 0, false),
    ("read_u16", 1, false),
    ("write_u16", 1, false),
    ("read_u32", 2, true),
    ("write_u32", 2, true),
];

/// Checks all accesses of the kernel in the ELF file.
pub(crate) fn check(kernel: &Path, architecture: &str) {
    let elf = fs::read(kernel).unwrap();
    let functions = functions(&elf);
    for (name, width, is_needed) in ACCESSES {
        let mangled = format!("instructions{}{name}", name.len());
        let found: Vec<_> = functions.iter().filter(|(symbol, _)| symbol.contains(&mangled)).collect();
        assert!(!is_needed || !found.is_empty(), "{architecture}: {name} is in no kernel");
        for (symbol, code) in found {
            let is_store = name.starts_with("write");
            let near = match architecture {
                "aarch64" => near_barrier_of_aarch64(code, is_store),
                _ => near_barrier_of_riscv64(code, is_store),
            };
            let plain = match architecture {
                "aarch64" => is_plain_of_aarch64(near, is_store, width),
                _ => is_plain_of_riscv64(near, is_store, width),
            };
            assert!(plain, "{architecture}: {symbol}: {near:#010x} beside the barrier, in {code:02x?}");
        }
    }
}

/// Returns the instruction after the only `dmb osh`, or, for loads, before it.
fn near_barrier_of_aarch64(code: &[u8], is_store: bool) -> u32 {
    const DMB_OSH: u32 = 0xd503_33bf;
    let words: Vec<u32> = code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    let places: Vec<_> = (0..words.len()).filter(|&at| words[at] == DMB_OSH).collect();
    assert_eq!(places.len(), 1, "barriers in {code:02x?}");
    words[if is_store { places[0] + 1 } else { places[0] - 1 }]
}

/// `strb`, `strh`, `str` or the loads, of a W register, at a register other than the stack's, without an offset and
/// without a change of the register.
fn is_plain_of_aarch64(word: u32, is_store: bool, width: u32) -> bool {
    let wanted = 0x3900_0000 | width << 30 | if is_store { 0 } else { 1 << 22 };
    word & 0xffff_fc00 == wanted && word >> 5 & 31 != 31
}

/// Returns the instruction after the only `fence iorw, o`, or, for loads, before the only `fence i, iorw`.
fn near_barrier_of_riscv64(code: &[u8], is_store: bool) -> u32 {
    let barrier = if is_store { 0x0f40_000f } else { 0x08f0_000f };
    let mut instructions = Vec::new();
    let mut rest = code;
    while rest.len() >= 2 {
        // Those of 16 bits do not end in two ones.
        let len = if rest[0] & 3 == 3 { 4 } else { 2 };
        let mut word = [0; 4];
        word[..len].copy_from_slice(&rest[..len]);
        instructions.push(u32::from_le_bytes(word));
        rest = &rest[len..];
    }
    let places: Vec<_> = (0..instructions.len()).filter(|&at| instructions[at] == barrier).collect();
    assert_eq!(places.len(), 1, "barriers in {code:02x?}");
    instructions[if is_store { places[0] + 1 } else { places[0] - 1 }]
}

/// `sb`, `sh`, `sw`, `lbu`, `lhu` or `lw` without an offset, or the short form of the two with 32 bits.
fn is_plain_of_riscv64(word: u32, is_store: bool, width: u32) -> bool {
    if word & 3 != 3 {
        // c.sw, c.lw: the offset is in bits 12 to 10, 6 and 5.
        return width == 2 && word & 0xe003 == if is_store { 0xc000 } else { 0x4000 } && word & 0x1c60 == 0;
    }
    let (opcode, kind, base) = (word & 0x7f, word >> 12 & 7, word >> 15 & 31);
    let is_at_base = if is_store { word & 0xfe00_0f80 == 0 } else { word >> 20 == 0 };
    let wanted = if is_store { (0x23, width) } else { (0x03, [4, 5, 2][width as usize]) };
    (opcode, kind) == wanted && is_at_base && base != 2
}

/// Returns name and code of each function of a 64-bit, little-endian ELF file.
fn functions(elf: &[u8]) -> Vec<(String, &[u8])> {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()));
    let u32_at = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap()) as usize;
    let u64_at = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01");
    let (table, entry_len, count) = (u64_at(0x28), u16_at(0x3a), u16_at(0x3c));
    let section = |number: usize| table + number * entry_len;
    // Of each section: its type at 4, its address at 0x10, its place in the file at 0x18, its length at 0x20, and the
    // section that it refers to at 0x28.
    const SYMBOLS: usize = 2;
    const FUNCTION: u8 = 2;
    let symbols = (0..count).map(section).find(|&at| u32_at(at + 4) == SYMBOLS).expect("the kernel has symbols");
    let names = u64_at(section(u32_at(symbols + 0x28)) + 0x18);
    let mut functions = Vec::new();
    for symbol in (u64_at(symbols + 0x18)..).step_by(24).take(u64_at(symbols + 0x20) / 24) {
        let (kind, in_section) = (elf[symbol + 4] & 15, u16_at(symbol + 6));
        let (address, len) = (u64_at(symbol + 8), u64_at(symbol + 16));
        if kind != FUNCTION || in_section == 0 || in_section >= count || len == 0 {
            continue;
        }
        let start = u64_at(section(in_section) + 0x18) + (address - u64_at(section(in_section) + 0x10));
        let name = names + u32_at(symbol);
        let name_len = elf[name..].iter().position(|&byte| byte == 0).unwrap();
        functions.push((String::from_utf8_lossy(&elf[name..name + name_len]).into_owned(), &elf[start..start + len]));
    }
    functions
}

#[test]
fn instructions_that_change_a_register_or_have_an_offset_are_not_plain() {
    // str w1, [x0]; str w1, [x0], #4; str w1, [x0, #4]; str w1, [sp]; strh w1, [x0]
    let words = [0xb900_0001, 0xb800_4401, 0xb900_0401, 0xb900_03e1, 0x7900_0001];
    assert_eq!(words.map(|word| is_plain_of_aarch64(word, true, 2)), [true, false, false, false, false]);
    // sw a1, 0(a0); sw a1, 4(a0); c.sw a1, 0(a0); c.sw a1, 4(a0); sw a1, 0(sp); sh a1, 0(a0)
    let words = [0x00b5_2023, 0x00b5_2223, 0xc10c, 0xc14c, 0x00b1_2023, 0x00b5_1023];
    assert_eq!(words.map(|word| is_plain_of_riscv64(word, true, 2)), [true, false, true, false, false, false]);
}
