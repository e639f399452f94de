//! Reads and writes of 4 KiB and 1 MiB in one file, through the page cache and around it.

use std::io;

use super::{
    aligned::{AlignedBuffer, PAGE_BYTES},
    laps::Laps,
    place::{How, Storage},
    stage::Stage,
};

pub(super) const COUNT: usize = 13;

const SMALL: usize = PAGE_BYTES;
const LARGE: usize = 1 << 20;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let path = stage.path("blocks");
    let len_bytes = u64::from(stage.params.blocks_mib) << 20;
    let ops = stage.params.block_ops as usize;
    let passes = stage.params.large_passes as usize;
    fill(stage.place(), &path, len_bytes)?;

    let sequential: Vec<u64> = (0..len_bytes / SMALL as u64).cycle().take(ops).map(|n| n * SMALL as u64).collect();
    let mut random = stage.random(1);
    let scattered: Vec<u64> = (0..ops).map(|_| random.u64(0..len_bytes / SMALL as u64) * SMALL as u64).collect();
    let large: Vec<u64> = (0..len_bytes / LARGE as u64).map(|n| n * LARGE as u64).collect();
    let large_passes = large.repeat(passes);

    let buffered = Access { path: &path, is_direct: false };
    let direct = Access { path: &path, is_direct: true };
    let mut reads = |name: &str, access: &Access<'_>, is_cold: bool, offsets: &[u64], block: usize| {
        let body = |place: &dyn Storage, laps: &mut Laps| access.read(place, offsets, block, laps);
        if is_cold { stage.measure_cold(name, body) } else { stage.measure(name, body) }
    };
    reads("read_4k_seq_cold", &buffered, true, &sequential, SMALL)?;
    reads("read_4k_seq_warm", &buffered, false, &sequential, SMALL)?;
    reads("read_4k_rand_cold", &buffered, true, &scattered, SMALL)?;
    reads("read_4k_seq_direct", &direct, false, &sequential, SMALL)?;
    reads("read_4k_rand_direct", &direct, false, &scattered, SMALL)?;
    reads("read_1m_seq_cold", &buffered, true, &large, LARGE)?;
    reads("read_1m_seq_direct", &direct, false, &large_passes, LARGE)?;

    let mut writes = |name: &str, access: &Access<'_>, offsets: &[u64], block: usize| {
        stage.measure(name, |place, laps| access.write(place, offsets, block, laps))
    };
    writes("write_4k_seq", &buffered, &sequential, SMALL)?;
    writes("write_4k_rand", &buffered, &scattered, SMALL)?;
    writes("write_4k_seq_direct", &direct, &sequential, SMALL)?;
    writes("write_4k_rand_direct", &direct, &scattered, SMALL)?;
    writes("write_1m_seq", &buffered, &large_passes, LARGE)?;
    writes("write_1m_seq_direct", &direct, &large_passes, LARGE)?;
    stage.place().remove_file(&path)
}

/// Creates a file of `len_bytes` with all its blocks allocated.
pub(super) fn fill(place: &dyn Storage, path: &str, len_bytes: u64) -> io::Result<()> {
    let file = place.open(path, How::CREATE)?;
    let block = AlignedBuffer::new(LARGE, 0xa5);
    let mut offset = 0;
    while offset < len_bytes {
        let len = (len_bytes - offset).min(LARGE as u64);
        file.write_all_at(&block.bytes()[..len as usize], offset)?;
        offset += len;
    }
    file.sync()
}

/// A way to access the file.
struct Access<'a> {
    path: &'a str,
    is_direct: bool,
}

impl Access<'_> {
    fn read(&self, place: &dyn Storage, offsets: &[u64], block: usize, laps: &mut Laps) -> io::Result<()> {
        let file = place.open(self.path, How::READ.direct(self.is_direct))?;
        let mut buffer = AlignedBuffer::new(block, 0);
        for &offset in offsets {
            file.read_exact_at(buffer.bytes_mut(), offset)?;
            laps.lap(block);
        }
        Ok(())
    }

    fn write(&self, place: &dyn Storage, offsets: &[u64], block: usize, laps: &mut Laps) -> io::Result<()> {
        let file = place.open(self.path, How::WRITE.direct(self.is_direct))?;
        let buffer = AlignedBuffer::new(block, 0x3c);
        for &offset in offsets {
            file.write_all_at(buffer.bytes(), offset)?;
            laps.lap(block);
        }
        Ok(())
    }
}
