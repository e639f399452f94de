//! The load of a rig: random operations on a few files whose blocks say what they must hold, and on names beside them.
//!
//! A [`Target`] is a [directory](super::directory), or a session of the [library](super::library). Each block of 4 KiB
//! has the number of its file, its own number and a generation, and the rest follows from these. A write replaces a
//! whole block, so that a block is whole at any time, whoever dies: every read checks that, and that the block has the
//! generation that was written last.

use std::{fmt, fs, path::Path};

use anyhow::Context as _;

pub(super) const FILES: usize = 4;
const BLOCKS: usize = 128;
const BLOCK: usize = 4096;
const LEN: usize = BLOCKS * BLOCK;
/// The file in which a load counts its steps, for the one who watches it from the host.
pub(super) const PROGRESS: &str = "progress";
/// Steps between two records of the count.
const RECORD_EVERY: u64 = 16;

/// Exit statuses of a process that is a load.
pub(super) const IS_WRONG: u8 = 3;
pub(super) const IS_CUT_OFF: u8 = 4;

/// Begins the message of a load that has read something wrong.
pub(super) const WRONG: &str = "wrong data";

/// Why a load ended.
#[derive(Debug)]
pub(super) enum End {
    /// What was read is not what was written.
    Wrong(String),
    /// An operation failed, as all do when the daemon or the front end has died.
    CutOff(String),
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(what) => write!(formatter, "{WRONG}: {what}"),
            Self::CutOff(what) => write!(formatter, "an operation failed: {what}"),
        }
    }
}

/// Where a load works. Errors are those of operations.
pub(super) trait Target {
    fn read(&self, file: usize, at: u64, bytes: &mut [u8]) -> Result<(), String>;
    fn write(&self, file: usize, at: u64, bytes: &[u8]) -> Result<(), String>;
    /// Reads, or stores, through a mapping.
    fn map(&self, file: usize, at: u64, bytes: &mut [u8], is_store: bool) -> Result<(), String>;
    fn sync(&self, file: usize) -> Result<(), String>;
    /// Creates, renames, links, locks, lists and removes names that begin with `prefix`.
    fn names(&self, prefix: &str) -> Result<(), String>;
    fn record(&self, steps: u64) -> Result<(), String>;
}

/// Runs a load on `target` until an operation fails, or for `steps`.
pub(super) fn run(target: &impl Target, seed: u64, steps: Option<u64>) -> Result<(), End> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![[0; BLOCKS]; FILES];
    let mut bytes = vec![0; BLOCK];
    for (file, blocks) in model.iter_mut().enumerate() {
        for (block, last) in blocks.iter_mut().enumerate() {
            target.read(file, (block * BLOCK) as u64, &mut bytes).map_err(End::CutOff)?;
            *last = generation(file, block, &bytes).map_err(End::Wrong)?;
        }
    }
    for step in 1.. {
        let (file, block) = (random.usize(..FILES), random.usize(..BLOCKS));
        let (at, last) = ((block * BLOCK) as u64, &mut model[file][block]);
        let work = random.u32(..20);
        match work {
            0..8 => {
                match work {
                    0..6 => target.write(file, at, &content(file, block, *last + 1)),
                    _ => target.map(file, at, &mut content(file, block, *last + 1), true),
                }
                .map_err(End::CutOff)?;
                *last += 1;
            }
            8..17 => {
                match work {
                    8..14 => target.read(file, at, &mut bytes),
                    _ => target.map(file, at, &mut bytes, false),
                }
                .map_err(End::CutOff)?;
                let found = generation(file, block, &bytes).map_err(End::Wrong)?;
                if found != *last {
                    let wrong = format!("file {file}, block {block}: generation {found} instead of {last}");
                    return Err(End::Wrong(wrong));
                }
            }
            17 => target.sync(file).map_err(End::CutOff)?,
            _ => target.names(&format!("name-{}", step % 7)).map_err(End::CutOff)?,
        }
        if step % RECORD_EVERY == 0 {
            target.record(step).map_err(End::CutOff)?;
        }
        if steps == Some(step) {
            break;
        }
    }
    Ok(())
}

/// Makes the files of a load in `dir`, unless they are there.
pub(super) fn prepare(dir: &Path) -> anyhow::Result<()> {
    for file in 0..FILES {
        let path = dir.join(name(file));
        if !path.exists() {
            fs::write(&path, vec![0; LEN]).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Checks the files in `dir` on the host: each block is whole. Returns the sum of all generations, which only grows.
pub(super) fn verify(dir: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for file in 0..FILES {
        let bytes = fs::read(dir.join(name(file)))?;
        anyhow::ensure!(bytes.len() == LEN, "file {file} has {} bytes", bytes.len());
        for (block, bytes) in bytes.chunks(BLOCK).enumerate() {
            sum += generation(file, block, bytes).map_err(anyhow::Error::msg)?;
        }
    }
    Ok(sum)
}

pub(super) fn name(file: usize) -> String {
    format!("file-{file}")
}

/// A block of generation 0 is all zeros.
fn content(file: usize, block: usize, generation: u64) -> Vec<u8> {
    if generation == 0 {
        return vec![0; BLOCK];
    }
    let mut bytes = [file as u64 + 1, block as u64, generation].map(u64::to_le_bytes).concat();
    let mut random = fastrand::Rng::with_seed(generation << 32 | (file as u64) << 16 | block as u64);
    bytes.resize(BLOCK, 0);
    random.fill(&mut bytes[24..]);
    bytes
}

/// Returns the generation of a block. Errors: it is not whole, or not this block.
fn generation(file: usize, block: usize, bytes: &[u8]) -> Result<u64, String> {
    let word = bytes.get(16..24).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    if content(file, block, word) == bytes {
        Ok(word)
    } else {
        Err(format!("file {file}, block {block} is not a whole block (of generation {word}?)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::directory::Directory;

    #[test]
    fn a_load_on_a_bare_directory_ends_well_and_leaves_whole_blocks() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).unwrap();
        let target = Directory(dir.path().to_owned());
        run(&target, 1, Some(400)).unwrap();
        let sum = verify(dir.path()).unwrap();
        assert!(sum > 0);
        // A second one goes on from there.
        run(&target, 2, Some(400)).unwrap();
        assert!(verify(dir.path()).unwrap() > sum);
        assert_eq!(fs::read_to_string(dir.path().join(PROGRESS)).unwrap().trim(), "400");
    }

    #[test]
    fn a_torn_block_a_moved_one_and_an_old_one_are_found() {
        let (old, new) = (content(1, 2, 3), content(1, 2, 4));
        let torn = [&old[..2048], &new[2048..]].concat();
        assert!(generation(1, 2, &torn).is_err());
        assert!(generation(1, 3, &new).is_err());
        assert!(generation(0, 2, &new).is_err());
        assert_eq!(generation(1, 2, &new), Ok(4));
        assert_eq!(generation(1, 2, &[0; BLOCK]), Ok(0));
        // A target that loses every write.
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).unwrap();
        let target = Lossy(Directory(dir.path().to_owned()));
        assert!(matches!(run(&target, 1, Some(2000)), Err(End::Wrong(_))));
    }

    struct Lossy(Directory);

    impl Target for Lossy {
        fn read(&self, file: usize, at: u64, bytes: &mut [u8]) -> Result<(), String> {
            self.0.read(file, at, bytes)
        }
        fn write(&self, _: usize, _: u64, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
        fn map(&self, file: usize, at: u64, bytes: &mut [u8], _: bool) -> Result<(), String> {
            self.0.map(file, at, bytes, false)
        }
        fn sync(&self, _: usize) -> Result<(), String> {
            Ok(())
        }
        fn names(&self, _: &str) -> Result<(), String> {
            Ok(())
        }
        fn record(&self, _: u64) -> Result<(), String> {
            Ok(())
        }
    }
}
