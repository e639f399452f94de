//! The file of an NVDIMM, with a file system on it, in the form that Linux detects at boot.
//!
//! An NVDIMM without labels is one namespace. Linux gives a file system direct access to it only if an info block says
//! where the data begins ("fsdax", drivers/nvdimm/pfn.h). `ndctl create-namespace` writes one, and so does [`create`].

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use transom_vm::packages::{Closure, Freshness, Packages, Request};

use crate::job::FileSystem;

/// Of the file. XFS takes no less than 300 MiB.
pub(super) const LEN: u64 = 322 << 20;
/// Where the file system begins: the alignment of a huge page, and behind the info block.
pub(super) const DATA_OFFSET: u64 = 2 << 20;

/// Where the info block lies in the namespace.
const INFO_OFFSET: u64 = 4096;
const INFO_LEN: usize = 4096;
const CHECKSUM_AT: usize = INFO_LEN - 8;
const SIGNATURE: &[u8; 16] = b"NVDIMM_PFN_INFO\0";
const PAGE_LEN: u32 = 4096;
/// The kernel keeps its `struct page`s in ordinary memory.
const MODE_RAM: u32 = 1;

/// Makes the file at `path` with an empty file system. Errors: the tools for it are not there, or fail.
pub(super) fn create(path: &Path, file_system: FileSystem, packages: &Packages<'_>) -> anyhow::Result<()> {
    let image = path.with_extension("image");
    File::create(&image)?.set_len(LEN - DATA_OFFSET)?;
    format(&image, file_system, packages)?;
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(LEN)?;
    file.write_all_at(&info_block(), INFO_OFFSET)?;
    copy_data(&mut File::open(&image)?, &file)?;
    Ok(std::fs::remove_file(image)?)
}

fn format(image: &Path, file_system: FileSystem, packages: &Packages<'_>) -> anyhow::Result<()> {
    let mut command = match file_system {
        // All of it now: a thread of the kernel would do the rest while the test runs.
        FileSystem::Ext4 => {
            let mut command = tool("mkfs.ext4", "e2fsprogs", packages)?;
            command.args(["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
            command
        }
        // Linux before 6.2 has no DAX where blocks may be shared.
        FileSystem::Xfs => {
            let mut command = tool("mkfs.xfs", "xfsprogs", packages)?;
            command.args(["-q", "-f", "-m", "reflink=0"]);
            command
        }
    };
    let output = command.arg(image).stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A program that makes file systems: the machine's, or from its package.
fn tool(name: &str, package: &str, packages: &Packages<'_>) -> anyhow::Result<Command> {
    const PLACES: [&str; 2] = ["usr/sbin", "sbin"];
    if let Some(path) = PLACES.map(|place| PathBuf::from("/").join(place).join(name)).iter().find(|path| path.is_file())
    {
        return Ok(Command::new(path));
    }
    let suite = Packages::own_suite()?;
    let (closure, freshness) = (Closure::WithDependencies, Freshness::Cached);
    let prefix = packages
        .fetch(&Request { suite: &suite, packages: &[package], closure, freshness })
        .with_context(|| format!("{name}, of the package {package}"))?;
    let programs = PLACES.map(|place| format!("{place}/{name}"));
    let program = programs.iter().find(|program| prefix.root().join(program).is_file());
    Ok(prefix.command(program.with_context(|| format!("{package} has no {name}"))?)?)
}

/// Copies what is not zero.
fn copy_data(from: &mut File, to: &File) -> anyhow::Result<()> {
    let mut block = vec![0; 1 << 20];
    let mut at = DATA_OFFSET;
    loop {
        let len = from.read(&mut block)?;
        if len == 0 {
            return Ok(());
        }
        if block[..len].iter().any(|&byte| byte != 0) {
            to.write_all_at(&block[..len], at)?;
        }
        at += len as u64;
    }
}

/// `struct nd_pfn_sb`, version 1.4.
fn info_block() -> [u8; INFO_LEN] {
    let mut block = [0; INFO_LEN];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, SIGNATURE);
    // The uuid, of which any but zero will do; that of the parent, the namespace without labels, is zero.
    put(16, b"transom suite pm");
    put(52, &1_u16.to_le_bytes());
    put(54, &4_u16.to_le_bytes());
    put(56, &DATA_OFFSET.to_le_bytes());
    put(64, &((LEN - DATA_OFFSET) / u64::from(PAGE_LEN)).to_le_bytes());
    put(72, &MODE_RAM.to_le_bytes());
    // The alignment, behind two pads; then the sizes of a page and of the kernel's `struct page`.
    put(84, &(DATA_OFFSET as u32).to_le_bytes());
    put(88, &PAGE_LEN.to_le_bytes());
    put(92, &64_u16.to_le_bytes());
    let checksum = fletcher64(&block);
    block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// The kernel's `nd_fletcher64`, over little-endian words.
fn fletcher64(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let (low, high) = words.fold((0_u32, 0_u64), |(low, high), word| {
        let low = low.wrapping_add(word);
        (low, high.wrapping_add(low.into()))
    });
    high << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_info_block_is_signed_and_sums_up() {
        let block = info_block();
        assert_eq!(&block[..16], SIGNATURE);
        let mut unsigned = block;
        unsigned[CHECKSUM_AT..].fill(0);
        assert_eq!(block[CHECKSUM_AT..], fletcher64(&unsigned).to_le_bytes());
        assert_eq!(fletcher64(&[1, 0, 0, 0, 2, 0, 0, 0]), 4 << 32 | 3);
    }
}
