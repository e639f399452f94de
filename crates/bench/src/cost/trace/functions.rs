//! Functions that are counted by calls: where a program and its libraries have them.
//!
//! Of those that the C library chooses by the processor (`STT_GNU_IFUNC`), the address of the chosen one is in a
//! relocated word of each file that calls it.

use std::collections::HashMap;

use anyhow::Context as _;
use object::{
    LittleEndian,
    elf::{
        FileHeader64, PT_LOAD, R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, SHN_UNDEF, SHT_DYNSYM,
        SHT_RELA, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC,
    },
    read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym},
};

/// What is done when a function is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// Allocates; the size is in this argument, or is the product of the first two.
    Allocate(Size),
    /// Copies as many bytes as its third argument says, by instructions that depend on the processor.
    Copy,
    /// Its instructions depend on the processor or the kernel.
    Library,
    /// `clock_gettime` of the vDSO.
    ClockGettime,
}

/// Where an allocating function has the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    First,
    Second,
    Third,
    FirstTimesSecond,
}

/// A file that is mapped.
pub(super) struct Image {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) is_vdso: bool,
    pub(super) bytes: Vec<u8>,
}

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Finds the functions of all `images`; `word` reads the memory of the process.
pub(super) fn find(images: &[Image], word: impl Fn(u64) -> Option<u64>) -> anyhow::Result<HashMap<u64, Function>> {
    let mut functions = HashMap::new();
    for image in images {
        let header = Header::parse(&*image.bytes).context("not a program of x86_64")?;
        let first = header.program_headers(LE, &*image.bytes)?.iter().find(|segment| segment.p_type(LE) == PT_LOAD);
        let lowest = first.map_or(0, |segment| segment.p_vaddr(LE)) & !0xfff;
        let mut file = File { image, header, bias: image.start.wrapping_sub(lowest), chosen: HashMap::new() };
        file.named(&mut functions)?;
        if !image.is_vdso {
            file.relocated(&word, &mut functions)?;
        }
    }
    Ok(functions)
}

struct File<'a> {
    image: &'a Image,
    header: &'a Header,
    /// What addresses in memory are above those in the file.
    bias: u64,
    /// Names of the functions that choose, by their address in the file.
    chosen: HashMap<u64, String>,
}

impl File<'_> {
    /// Finds functions by their names.
    fn named(&mut self, functions: &mut HashMap<u64, Function>) -> anyhow::Result<()> {
        let bytes = &*self.image.bytes;
        let sections = self.header.sections(LE, bytes)?;
        for kind in [SHT_DYNSYM, SHT_SYMTAB] {
            let symbols = sections.symbols(LE, bytes, kind)?;
            for symbol in symbols.iter().filter(|symbol| symbol.st_shndx(LE) != SHN_UNDEF) {
                let name = String::from_utf8_lossy(symbol.name(LE, symbols.strings()).unwrap_or_default()).into_owned();
                let address = self.bias.wrapping_add(symbol.st_value(LE));
                match symbol.st_type() {
                    STT_FUNC if self.image.is_vdso && name.ends_with("clock_gettime") => {
                        functions.insert(address, Function::ClockGettime);
                    }
                    STT_FUNC if self.image.is_vdso => {
                        functions.entry(address).or_insert(Function::Library);
                    }
                    STT_FUNC => {
                        if let Some(size) = allocator(&name) {
                            functions.insert(address, Function::Allocate(size));
                        }
                    }
                    STT_GNU_IFUNC => {
                        self.chosen.insert(symbol.st_value(LE), name);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Finds functions that were chosen when the program was loaded.
    fn relocated(
        &self,
        word: &impl Fn(u64) -> Option<u64>,
        functions: &mut HashMap<u64, Function>,
    ) -> anyhow::Result<()> {
        let bytes = &*self.image.bytes;
        let sections = self.header.sections(LE, bytes)?;
        let symbols = sections.symbols(LE, bytes, SHT_DYNSYM)?;
        for section in sections.iter().filter(|section| section.sh_type(LE) == SHT_RELA) {
            let Some((relocations, _)) = section.rela(LE, bytes)? else { continue };
            for relocation in relocations {
                let name = match relocation.r_type(LE, false) {
                    R_X86_64_IRELATIVE => {
                        let chooser = relocation.r_addend(LE) as u64;
                        self.chosen.get(&chooser).cloned().unwrap_or_default()
                    }
                    R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT => {
                        let Some(index) = relocation.symbol(LE, false) else { continue };
                        let Ok(symbol) = symbols.symbol(index) else { continue };
                        let name = symbol.name(LE, symbols.strings()).unwrap_or_default();
                        let name = String::from_utf8_lossy(name).into_owned();
                        if !is_chosen(&name) {
                            continue;
                        }
                        name
                    }
                    _ => continue,
                };
                let slot = self.bias.wrapping_add(relocation.r_offset(LE));
                let is_here = |address: u64| (self.image.start..self.image.end).contains(&address);
                let is_irelative = relocation.r_type(LE, false) == R_X86_64_IRELATIVE;
                // A word that still leads into the file itself is not yet relocated.
                let target = word(slot).filter(|target| *target != 0 && (is_irelative || !is_here(*target)));
                if let Some(target) = target {
                    let is_copy = ["memcpy", "memmove", "mempcpy"].iter().any(|copy| name.contains(copy));
                    let function = if is_copy { Function::Copy } else { Function::Library };
                    let known = functions.entry(target).or_insert(function);
                    // One implementation serves several names, of which some have no symbol.
                    if *known == Function::Library {
                        *known = function;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns where the allocating function `name` has the size.
fn allocator(name: &str) -> Option<Size> {
    Some(match name {
        "malloc" | "valloc" | "pvalloc" => Size::First,
        "calloc" => Size::FirstTimesSecond,
        "realloc" | "aligned_alloc" | "memalign" => Size::Second,
        "posix_memalign" | "reallocarray" => Size::Third,
        _ => return None,
    })
}

/// Returns whether a C library chooses `name` by the processor.
fn is_chosen(name: &str) -> bool {
    let name = name.trim_start_matches('_').trim_end_matches("_chk");
    let is_memory = ["cpy", "move", "set", "cmp", "cmpeq", "chr", "rchr", "pcpy"].iter();
    let is_string =
        ["len", "nlen", "chr", "rchr", "chrnul", "cmp", "ncmp", "cpy", "ncpy", "cat", "ncat", "spn", "cspn"];
    let is_string = is_string.iter().chain(&["pbrk", "str", "casecmp", "ncasecmp"]);
    name == "bcmp"
        || name == "rawmemchr"
        || name.strip_prefix("mem").is_some_and(|rest| is_memory.clone().any(|end| *end == rest))
        || name.strip_prefix("str").is_some_and(|rest| is_string.clone().any(|end| *end == rest))
}
