//! What a request that must not be done twice is about to do, and what it has seen before.

use rustix::fs::{Statx, StatxFlags};

/// A file, as it is recognised after a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    dev: u64,
    ino: u64,
    /// When it was made, in nanoseconds since 1970; 0 if the file system does not know.
    pub(crate) born_ns: u64,
}

impl FileId {
    /// Returns the file that `stat` describes.
    pub(crate) fn of(stat: &Statx) -> Self {
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born = stat.stx_btime.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into());
        Self {
            dev: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            ino: stat.stx_ino,
            born_ns: if has_birth { born.cast_unsigned() } else { 0 },
        }
    }
}

/// What a request is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Makes a new file under a name that did not exist at this time, in nanoseconds since 1970.
    Make { at_ns: u64 },
    /// Removes the name of this file.
    Remove(FileId),
    /// Moves the first file to a name that the second has.
    Rename(FileId, Option<FileId>),
    /// Writes at the end of a file of this size.
    Append { size: u64 },
    /// Something that leaves no trace by which it could be recognised.
    Other,
}

impl Intent {
    pub(super) fn encode(&self) -> Vec<u8> {
        let id = |id: &FileId| [id.dev, id.ino, id.born_ns];
        let words = match self {
            Self::Make { at_ns } => vec![1, *at_ns],
            Self::Remove(file) => [&[2], &id(file)[..]].concat(),
            Self::Rename(file, None) => [&[3], &id(file)[..]].concat(),
            Self::Rename(file, Some(replaced)) => [&[4], &id(file)[..], &id(replaced)].concat(),
            Self::Append { size } => vec![5, *size],
            Self::Other => vec![6],
        };
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let words: Vec<_> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let id = |dev, ino, born_ns| FileId { dev, ino, born_ns };
        Some(match words[..] {
            [1, at_ns] => Self::Make { at_ns },
            [2, dev, ino, born] => Self::Remove(id(dev, ino, born)),
            [3, dev, ino, born] => Self::Rename(id(dev, ino, born), None),
            [4, dev, ino, born, dev2, ino2, born2] => Self::Rename(id(dev, ino, born), Some(id(dev2, ino2, born2))),
            [5, size] => Self::Append { size },
            [6] => Self::Other,
            _ => return None,
        })
    }
}
