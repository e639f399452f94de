//! Reading directories, by path.

use super::{FileType, Fs, permission::READ};
use crate::{
    Errno, Platform,
    volume::{DirectoryStream, Entry},
};

/// Shift from the type bits of a mode to `d_type`.
const TYPE_SHIFT: u32 = 12;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// 1 to 1024 bytes without `/` and NUL, neither `.` nor `..`. No other operation accepts more than 255 bytes.
    pub name: alloc::vec::Vec<u8>,
    /// The inode number.
    pub ino: u64,
    /// The file type, if the server reports it.
    pub file_type: Option<FileType>,
    /// The position after this entry, for [`ReadDir::seek`].
    pub cookie: u64,
}

/// Iterates over the entries of a directory, without `.` and `..`; ends at the first error.
pub struct ReadDir<P: Platform> {
    fs: Fs<P>,
    stream: DirectoryStream<P>,
    is_over: bool,
}

impl<P: Platform> Fs<P> {
    /// Opens a directory for reading. Errors: ENOTDIR, EACCES.
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<ReadDir<P>, Errno> {
        let stream = self.walking(|walk| {
            walk.follow(path.as_ref(), true)?;
            walk.check_directory()?;
            self.check(&walk.caller, walk.here(), READ)?;
            self.volume.opendir(&walk.caller, walk.here(), 0)
        })?;
        Ok(ReadDir { fs: self.clone(), stream, is_over: false })
    }
}

impl<P: Platform> ReadDir<P> {
    /// Returns the next entry, including `.` and `..`; `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Errno> {
        self.fs.volume.readdir(&self.fs.caller(), &mut self.stream)
    }

    /// Continues after the entry with this cookie, or at the beginning for 0, in which case the directory is read
    /// again.
    pub fn seek(&mut self, cookie: u64) {
        self.stream.seek(cookie);
        self.is_over = false;
    }

    /// Makes the directory's names durable.
    pub fn sync(&self) -> Result<(), Errno> {
        self.stream.fsync(&self.fs.caller(), false)
    }
}

impl<P: Platform> Iterator for ReadDir<P> {
    type Item = Result<DirEntry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let Entry { ino, cookie, file_type, name } = match self.next_entry() {
                Ok(Some(entry)) => entry,
                end => {
                    self.is_over = true;
                    return end.err().map(Err);
                }
            };
            if !matches!(&*name, b"." | b"..") {
                let file_type = FileType::of_mode(file_type << TYPE_SHIFT);
                return Some(Ok(DirEntry { name, ino, file_type, cookie }));
            }
        }
        None
    }
}
