//! Reads and writes of 4 KiB and 1 MiB in one file, through the page cache and around it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use super::{
    aligned::{AlignedBuffer, PAGE_BYTES},
    laps::Laps,
    stage::Stage,
};

pub(super) const COUNT: usize = 13;

const SMALL: usize = PAGE_BYTES;
const LARGE: usize = 1 << 20;

pub(super) fn run<W: io::Write>(stage: &mut Stage<W>) -> io::Result<()> {
    let path = stage.path("blocks");
    let len_bytes = u64::from(stage.params.blocks_mib) << 20;
    let ops = stage.params.block_ops as usize;
    let passes = stage.params.large_passes as usize;
    fill(&path, len_bytes)?;

    let sequential: Vec<u64> = (0..len_bytes / SMALL as u64).cycle().take(ops).map(|n| n * SMALL as u64).collect();
    let mut random = stage.random(1);
    let scattered: Vec<u64> = (0..ops).map(|_| random.u64(0..len_bytes / SMALL as u64) * SMALL as u64).collect();
    let large: Vec<u64> = (0..len_bytes / LARGE as u64).map(|n| n * LARGE as u64).collect();
    let large_passes = large.repeat(passes);

    let buffered = Access { path: &path, is_direct: false };
    let direct = Access { path: &path, is_direct: true };
    let mut reads = |name: &str, access: &Access<'_>, is_cold: bool, offsets: &[u64], block: usize| {
        if is_cold {
            stage.forget_all()?;
        }
        stage.measure(name, |laps| access.read(offsets, block, laps))
    };
    reads("read_4k_seq_cold", &buffered, true, &sequential, SMALL)?;
    reads("read_4k_seq_warm", &buffered, false, &sequential, SMALL)?;
    reads("read_4k_rand_cold", &buffered, true, &scattered, SMALL)?;
    reads("read_4k_seq_direct", &direct, true, &sequential, SMALL)?;
    reads("read_4k_rand_direct", &direct, true, &scattered, SMALL)?;
    reads("read_1m_seq_cold", &buffered, true, &large, LARGE)?;
    reads("read_1m_seq_direct", &direct, true, &large_passes, LARGE)?;

    stage.measure("write_4k_seq", |laps| buffered.write(&sequential, SMALL, laps))?;
    stage.measure("write_4k_rand", |laps| buffered.write(&scattered, SMALL, laps))?;
    stage.measure("write_4k_seq_direct", |laps| direct.write(&sequential, SMALL, laps))?;
    stage.measure("write_4k_rand_direct", |laps| direct.write(&scattered, SMALL, laps))?;
    stage.measure("write_1m_seq", |laps| buffered.write(&large_passes, LARGE, laps))?;
    stage.measure("write_1m_seq_direct", |laps| direct.write(&large_passes, LARGE, laps))?;
    fs::remove_file(&path)
}

/// Makes a file of `len_bytes` with all its blocks there.
pub(super) fn fill(path: &Path, len_bytes: u64) -> io::Result<()> {
    let file = File::create(path)?;
    let block = AlignedBuffer::new(LARGE, 0xa5);
    for offset in (0..len_bytes).step_by(LARGE) {
        file.write_all_at(block.bytes(), offset)?;
    }
    file.sync_all()
}

/// A way to the file.
struct Access<'a> {
    path: &'a Path,
    is_direct: bool,
}

impl Access<'_> {
    fn open(&self, options: &mut OpenOptions) -> io::Result<File> {
        options.custom_flags(if self.is_direct { libc::O_DIRECT } else { 0 }).open(self.path)
    }

    fn read(&self, offsets: &[u64], block: usize, laps: &mut Laps) -> io::Result<()> {
        let file = self.open(OpenOptions::new().read(true))?;
        let mut buffer = AlignedBuffer::new(block, 0);
        for &offset in offsets {
            file.read_exact_at(buffer.bytes_mut(), offset)?;
            laps.lap(block);
        }
        Ok(())
    }

    fn write(&self, offsets: &[u64], block: usize, laps: &mut Laps) -> io::Result<()> {
        let file = self.open(OpenOptions::new().write(true))?;
        let buffer = AlignedBuffer::new(block, 0x3c);
        for &offset in offsets {
            file.write_all_at(buffer.bytes(), offset)?;
            laps.lap(block);
        }
        Ok(())
    }
}
