//! A traced process: its memory, its mapped files, and the functions in them that are counted by calls.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use anyhow::Context as _;
use nix::libc::user_regs_struct;

use super::{
    atomics::{INSTRUCTION_LEN_MAX, Operand},
    functions::{self, Function, Image},
};

/// A process whose threads are traced.
pub(super) struct Process {
    pid: u32,
    memory: File,
    /// By the address of the first instruction.
    functions: HashMap<u64, Function>,
    /// Whether the instruction at an address is `syscall`; programs do not change.
    is_call: HashMap<u64, bool>,
    /// What the instruction at an address changes atomically.
    atomics: HashMap<u64, Option<Operand>>,
}

/// A file in the memory of a process, or the vDSO.
struct Mapped {
    start: u64,
    end: u64,
    name: String,
}

impl Process {
    /// Opens the memory of `pid` and finds its functions.
    pub(super) fn open(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let memory = File::options().read(true).write(true).open(&path).with_context(|| format!("opening {path}"))?;
        let mut process =
            Self { pid, memory, functions: HashMap::new(), is_call: HashMap::new(), atomics: HashMap::new() };
        process.functions = process.find_functions()?;
        Ok(process)
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the function whose first instruction is at `address`, if it is counted by calls.
    pub(super) fn function_at(&self, address: u64) -> Option<Function> {
        self.functions.get(&address).copied()
    }

    /// Returns whether the instruction at `address` is `syscall`.
    pub(super) fn is_system_call(&mut self, address: u64) -> io::Result<bool> {
        if let Some(is_call) = self.is_call.get(&address) {
            return Ok(*is_call);
        }
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let mut bytes = [0; 2];
        // A page may end behind the first byte, which then is not this instruction.
        let is_call = match self.memory.read_exact_at(&mut bytes, address) {
            Ok(()) => bytes == SYSCALL,
            Err(_) => false,
        };
        self.is_call.insert(address, is_call);
        Ok(is_call)
    }

    /// Returns the address of the word that the next instruction changes atomically, if it does.
    pub(super) fn atomic_at(&mut self, regs: &user_regs_struct) -> Option<u64> {
        let memory = &self.memory;
        let operand = self.atomics.entry(regs.rip).or_insert_with(|| {
            let mut bytes = [0; INSTRUCTION_LEN_MAX];
            // A page may end behind the instruction.
            let len = memory.read_at(&mut bytes, regs.rip).unwrap_or(0);
            Operand::of(&bytes[..len])
        });
        operand.map(|operand| operand.address(regs))
    }

    /// Reads a word of memory.
    pub(super) fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes two words of memory.
    pub(super) fn write_words(&self, address: u64, words: [i64; 2]) -> io::Result<()> {
        let bytes = [words[0].to_le_bytes(), words[1].to_le_bytes()].concat();
        self.memory.write_all_at(&bytes, address)
    }

    /// Returns whether descriptor `fd` is an eventfd.
    pub(super) fn is_eventfd(&self, fd: u64) -> bool {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", self.pid));
        link.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
    }

    fn find_functions(&self) -> anyhow::Result<HashMap<u64, Function>> {
        let mapped = self.mapped()?;
        let mut images = Vec::new();
        for file in &mapped {
            let bytes = self.contents(file)?;
            images.push(Image { start: file.start, end: file.end, is_vdso: file.name == VDSO, bytes });
        }
        functions::find(&images, |address| self.word(address).ok())
    }

    /// Returns the files that are mapped to be executed, and the vDSO.
    fn mapped(&self) -> anyhow::Result<Vec<Mapped>> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let mut files: Vec<Mapped> = Vec::new();
        let mut executed = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            let Some(name) = words.nth(3) else { continue };
            let Some((start, end)) = range.split_once('-') else { continue };
            let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
            if rights.contains('x') {
                executed.push(name.to_owned());
            }
            match files.iter_mut().find(|file| file.name == name) {
                Some(file) => file.end = end,
                None => files.push(Mapped { start, end, name: name.to_owned() }),
            }
        }
        files.retain(|file| executed.contains(&file.name) && (file.name.starts_with('/') || file.name == VDSO));
        Ok(files)
    }

    fn contents(&self, file: &Mapped) -> anyhow::Result<Vec<u8>> {
        if file.name == VDSO {
            let mut bytes = vec![0; (file.end - file.start) as usize];
            self.memory.read_exact_at(&mut bytes, file.start)?;
            return Ok(bytes);
        }
        // A daemon in a mount namespace of its own has files that no path of ours leads to.
        let first = fs::read_dir(format!("/proc/{}/map_files", self.pid)).ok().and_then(|mut entries| {
            let begin = format!("{:x}-", file.start);
            entries.find_map(|entry| entry.ok().filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin)))
        });
        let path = first.map_or_else(|| PathBuf::from(&file.name), |entry| entry.path());
        fs::read(&path).or_else(|_| fs::read(&file.name)).with_context(|| format!("reading the program {}", file.name))
    }
}

const VDSO: &str = "[vdso]";
