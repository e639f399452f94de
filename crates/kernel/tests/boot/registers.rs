//! Disassembles the accesses to registers in a kernel that was built: each is one plain instruction, which a hypervisor
//! can decode, next to the barrier that orders it with memory.
//!
//! Encodings: Arm A-profile A64 (`DMB`, `LDR`/`STR` with an unsigned offset); RISC-V I and C.

use std::{fs, path::Path};

/// Returns whether an instruction is a plain access of a register, by the instruction, whether it stores, and the
/// logarithm of its width.
type IsPlain = fn(u32, bool, u32) -> bool;

/// Checks all accesses of the kernel in the ELF file. They are inlined, so each is found by its barrier, which nothing
/// else uses: one before each store, and one after each load.
pub(crate) fn check(kernel: &Path, architecture: &str) {
    let elf = fs::read(kernel).unwrap();
    let (mut loads, mut stores) = (0, 0);
    for (symbol, code) in functions(&elf) {
        let (instructions, [after_load, before_store], is_plain) = match architecture {
            "aarch64" => (words(code), [DMB_OSH, DMB_OSH], is_plain_of_aarch64 as IsPlain),
            _ => (of_two_lengths(code), [FENCE_I_IORW, FENCE_IORW_O], is_plain_of_riscv64 as IsPlain),
        };
        let is_plain =
            |at: Option<&u32>, is_store| at.is_some_and(|&word| (0..3).any(|width| is_plain(word, is_store, width)));
        for (at, &word) in instructions.iter().enumerate() {
            let is_load = word == after_load && is_plain(at.checked_sub(1).map(|at| &instructions[at]), false);
            let is_store = word == before_store && is_plain(instructions.get(at + 1), true);
            loads += usize::from(is_load);
            stores += usize::from(is_store);
            let is_barrier = word == after_load || word == before_store;
            assert!(
                !is_barrier || is_load || is_store,
                "{architecture}: instruction {at} of {symbol}: {instructions:08x?}"
            );
        }
    }
    println!("{architecture}: {loads} loads and {stores} stores of registers");
    assert!(loads > 1 && stores > 1, "{architecture}: {loads} loads, {stores} stores");
}

const DMB_OSH: u32 = 0xd503_33bf;
/// `fence i, iorw` and `fence iorw, o`.
const FENCE_I_IORW: u32 = 0x08f0_000f;
const FENCE_IORW_O: u32 = 0x0f40_000f;

fn words(code: &[u8]) -> Vec<u32> {
    code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Returns RISC-V's instructions, of 16 and 32 bits: those of 16 do not end in two ones.
fn of_two_lengths(code: &[u8]) -> Vec<u32> {
    let mut instructions = Vec::new();
    let mut rest = code;
    while rest.len() >= 2 {
        let len = if rest[0] & 3 == 3 { rest.len().min(4) } else { 2 };
        let mut word = [0; 4];
        word[..len].copy_from_slice(&rest[..len]);
        instructions.push(u32::from_le_bytes(word));
        rest = &rest[len..];
    }
    instructions
}

/// `strb`, `strh`, `str` or the loads, of a W register, at a register other than the stack's, without an offset and
/// without a change of the register.
fn is_plain_of_aarch64(word: u32, is_store: bool, width: u32) -> bool {
    let wanted = 0x3900_0000 | width << 30 | if is_store { 0 } else { 1 << 22 };
    word & 0xffff_fc00 == wanted && word >> 5 & 31 != 31
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
