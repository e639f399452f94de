//! Small programs that a coherence test starts on several sides of one file at once.
//!
//! They access the file only through a shared mapping. [`count`] adds to a number atomically, [`ping_pong`] takes turns
//! with another side, [`watch`] waits for a number, and [`fill`] and [`verify`] write and check data derived from a
//! seed.

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    client::{Client as _, Handle, MapMode, Mapping},
    syscalls::Syscalls,
};

/// A number in a file, through a mapping of the page around it.
struct Number {
    mapping: Box<dyn Mapping>,
    at: usize,
}

/// Bytes of the pieces in which data is written and checked.
const PIECE_LEN: usize = 1 << 16;
const PAGE_LEN: u64 = 4096;

/// Adds 1 to the number at `offset`, which must be a multiple of 8, `times` times. Returns the number after the last
/// addition.
pub fn count(path: &Path, offset: u64, times: u64) -> anyhow::Result<u64> {
    let number = Number::map(path, offset)?;
    let mut last = number.get();
    for _ in 0..times {
        last = number.mapping.add(number.at, 1) + 1;
    }
    Ok(last)
}

/// Waits until the number at `offset` is at least `value`; returns what it is then.
pub fn watch(path: &Path, offset: u64, value: u64, limit: Duration) -> anyhow::Result<u64> {
    Number::map(path, offset)?.wait(value, limit)
}

/// Sets the number at `offset`.
pub fn set(path: &Path, offset: u64, value: u64) -> anyhow::Result<()> {
    let number = Number::map(path, offset)?;
    number.mapping.store(number.at, &value.to_le_bytes());
    Ok(())
}

/// Takes turns with another side: the first makes the number at `offset` odd, the second even. Returns the mean time of
/// a round.
pub fn ping_pong(path: &Path, offset: u64, rounds: u64, is_first: bool, limit: Duration) -> anyhow::Result<Duration> {
    let number = Number::map(path, offset)?;
    let base = if is_first { 0 } else { 1 };
    let mut begin = None;
    for round in 0..rounds {
        number.wait(2 * round + base, limit)?;
        begin.get_or_insert_with(Instant::now);
        number.mapping.add(number.at, 1);
    }
    if is_first {
        number.wait(2 * rounds, limit)?;
    }
    Ok(begin.map_or(Duration::ZERO, |begin: Instant| begin.elapsed() / rounds.max(1) as u32))
}

/// Stores `len` bytes that `seed` repeats at `offset` of a file that reaches so far.
pub fn fill(path: &Path, offset: u64, len: u64, seed: u64) -> anyhow::Result<()> {
    pieces(path, offset, len, true, |mapping, at, piece_len, position| {
        mapping.store(at, &data(seed, position, piece_len));
        Ok(())
    })
}

/// Compares what [`fill`] stored; errors with the first difference.
pub fn verify(path: &Path, offset: u64, len: u64, seed: u64) -> anyhow::Result<()> {
    pieces(path, offset, len, false, |mapping, at, piece_len, position| {
        let (mut found, expected) = (vec![0; piece_len], data(seed, position, piece_len));
        mapping.load(at, &mut found);
        match (0..piece_len).find(|&index| found[index] != expected[index]) {
            None => Ok(()),
            Some(index) => {
                let wrong = (0..piece_len).filter(|&index| found[index] != expected[index]).count();
                let zeros = found.iter().filter(|&&byte| byte == 0).count();
                bail!(
                    "byte {} is {:#x} and should be {:#x}; {wrong} of {piece_len} differ, {zeros} are zero",
                    position + index as u64,
                    found[index],
                    expected[index]
                )
            }
        }
    })
}

impl Number {
    fn map(path: &Path, offset: u64) -> anyhow::Result<Self> {
        ensure!(offset.is_multiple_of(8), "the offset {offset} is no multiple of 8");
        let (page, at) = (offset / PAGE_LEN * PAGE_LEN, (offset % PAGE_LEN) as usize);
        let file = open(path, offset + 8)?;
        Ok(Self { mapping: map(&file, page, PAGE_LEN as usize, true)?, at })
    }

    fn get(&self) -> u64 {
        self.mapping.add(self.at, 0)
    }

    fn wait(&self, value: u64, limit: Duration) -> anyhow::Result<u64> {
        let deadline = Instant::now() + limit;
        loop {
            let now = self.get();
            if now >= value {
                return Ok(now);
            }
            ensure!(Instant::now() < deadline, "the number is {now} and not {value} after {} s", limit.as_secs());
            std::thread::yield_now();
        }
    }
}

/// A file that has at least `len` bytes.
fn open(path: &Path, len: u64) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path).with_context(|| path.display().to_string())?;
    let size = file.metadata()?.len();
    ensure!(size >= len, "{} has {size} bytes, and {len} are needed", path.display());
    Ok(file)
}

fn map(file: &File, offset: u64, len: usize, is_writable: bool) -> anyhow::Result<Box<dyn Mapping>> {
    let mode = MapMode { is_writable, is_shared: true };
    Syscalls
        .map(Handle(file.as_raw_fd() as u64), offset, len, mode)
        .with_context(|| format!("cannot map {len} bytes from {offset}"))
}

fn pieces(
    path: &Path,
    offset: u64,
    len: u64,
    is_writable: bool,
    mut each: impl FnMut(&dyn Mapping, usize, usize, u64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let file = open(path, offset + len)?;
    let begin = offset / PAGE_LEN * PAGE_LEN;
    let mapping = map(&file, begin, usize::try_from(offset + len - begin)?, is_writable)?;
    let mut position = offset;
    while position < offset + len {
        let piece_len = (offset + len - position).min(PIECE_LEN as u64) as usize;
        each(&*mapping, (position - begin) as usize, piece_len, position)?;
        position += piece_len as u64;
    }
    Ok(())
}

/// Bytes that depend on their position: a piece in the wrong place shows. None is zero, as a page that is missing is.
fn data(seed: u64, position: u64, len: usize) -> Vec<u8> {
    let byte = |position: u64| {
        let mixed = ((position / 8) ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29) >> (8 * (position % 8))) as u8 | 1
    };
    (position..position + len as u64).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn file(len: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(len).unwrap();
        file
    }

    #[test]
    fn counts_from_two_sides_are_all_there() {
        let file = file(8192);
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| count(file.path(), 4096, 10_000).unwrap())));
        });
        assert_eq!(watch(file.path(), 4096, 20_000, Duration::ZERO).unwrap(), 20_000);
        set(file.path(), 4096, 3).unwrap();
        assert!(watch(file.path(), 4096, 4, Duration::ZERO).is_err());
    }

    #[test]
    fn two_sides_take_turns() {
        let file = file(8);
        std::thread::scope(|scope| {
            scope.spawn(|| ping_pong(file.path(), 0, 500, false, LIMIT).unwrap());
            ping_pong(file.path(), 0, 500, true, LIMIT).unwrap();
        });
        assert_eq!(watch(file.path(), 0, 1000, Duration::ZERO).unwrap(), 1000);
    }

    #[test]
    fn what_was_filled_is_verified_and_a_change_shows() {
        let file = file(300_000);
        fill(file.path(), 5, 299_000, 7).unwrap();
        verify(file.path(), 5, 299_000, 7).unwrap();
        verify(file.path(), 100_000, 1, 7).unwrap();
        assert!(verify(file.path(), 5, 299_000, 8).is_err());
        set(file.path(), 200_000, 0).unwrap();
        let error = verify(file.path(), 5, 299_000, 7).unwrap_err().to_string();
        assert!(error.starts_with("byte 200000 is 0x0") && error.contains("8 are zero"), "{error}");
        assert!(fill(file.path(), 5, 300_000, 7).unwrap_err().to_string().contains("are needed"));
    }
}
