//! What the host says about a file, as far as it matters here.

use rustix::fs::{FileType, Stat, major, minor};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device node.
    Device,
    /// In the upper layer: the name is gone.
    Whiteout,
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// The permissions and set-id bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length in bytes.
    pub len_bytes: u64,
    /// The time of the last change of its content, in seconds and nanoseconds.
    pub mtime: (i64, u64),
    pub(crate) atime: (i64, u64),
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) nlink: u64,
}

/// Set-user-id and set-group-id.
pub(crate) const SET_ID: u32 = 0o6000;

impl Meta {
    /// Returns whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Returns the mode that a commit gives it: a program that the guest has made never runs with its owner's rights.
    pub(crate) fn committed_mode(&self) -> u32 {
        if self.kind == Kind::File { self.mode & !SET_ID } else { self.mode }
    }
}

impl From<Stat> for Meta {
    fn from(stat: Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice if (major(stat.st_rdev), minor(stat.st_rdev)) == (0, 0) => Kind::Whiteout,
            FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
            FileType::RegularFile | FileType::Unknown => Kind::File,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            atime: (stat.st_atime, stat.st_atime_nsec),
            dev: stat.st_dev,
            ino: stat.st_ino,
            nlink: stat.st_nlink,
        }
    }
}
