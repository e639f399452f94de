//! A file system, an open file and an open directory, whatever the platform; and what C sees of them.

use alloc::boxed::Box;

use transom_guest::{
    Errno, Platform,
    fs::{DirEntry, File, FileType, Fs, Metadata, OpenOptions, ReadDir},
};

/// A mounted file system.
pub(crate) trait Share: Send + Sync {
    fn open(&self, path: &[u8], options: &OpenOptions) -> Result<Box<dyn Open>, Errno>;
    fn opendir(&self, path: &[u8]) -> Result<Box<dyn Iterator<Item = Result<DirEntry, Errno>>>, Errno>;
    fn stat(&self, path: &[u8], follows: bool) -> Result<Metadata, Errno>;
    fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Errno>;
    fn rmdir(&self, path: &[u8]) -> Result<(), Errno>;
    fn unlink(&self, path: &[u8]) -> Result<(), Errno>;
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno>;
    fn sync(&self) -> Result<(), Errno>;
    fn unmount(self: Box<Self>) -> Result<(), Errno>;
}

/// An open file.
pub(crate) trait Open: Send + Sync {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno>;
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno>;
    fn stat(&self) -> Result<Metadata, Errno>;
    fn truncate(&self, size: u64) -> Result<(), Errno>;
    fn sync(&self) -> Result<(), Errno>;
    fn close(self: Box<Self>) -> Result<(), Errno>;
}

impl<P: Platform> Share for Fs<P> {
    fn open(&self, path: &[u8], options: &OpenOptions) -> Result<Box<dyn Open>, Errno> {
        Ok(Box::new(Fs::open(self, path, options)?))
    }

    fn opendir(&self, path: &[u8]) -> Result<Box<dyn Iterator<Item = Result<DirEntry, Errno>>>, Errno> {
        let entries: ReadDir<P> = self.read_dir(path)?;
        Ok(Box::new(entries))
    }

    fn stat(&self, path: &[u8], follows: bool) -> Result<Metadata, Errno> {
        if follows { self.metadata(path) } else { self.symlink_metadata(path) }
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        self.create_dir(path, mode)
    }

    fn rmdir(&self, path: &[u8]) -> Result<(), Errno> {
        self.remove_dir(path)
    }

    fn unlink(&self, path: &[u8]) -> Result<(), Errno> {
        self.remove_file(path)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        Fs::rename(self, from, to)
    }

    fn sync(&self) -> Result<(), Errno> {
        Fs::sync(self)
    }

    fn unmount(self: Box<Self>) -> Result<(), Errno> {
        Fs::unmount(*self)
    }
}

impl<P: Platform> Open for File<P> {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.read_at(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.write_at(offset, bytes)
    }

    fn stat(&self) -> Result<Metadata, Errno> {
        self.metadata()
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.set_len(size)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.sync_all()
    }

    fn close(self: Box<Self>) -> Result<(), Errno> {
        File::close(*self)
    }
}

/// `transom_fs`.
pub struct TransomFs(pub(crate) Box<dyn Share>);

/// `transom_file`.
pub struct TransomFile(pub(crate) Box<dyn Open>);

/// `transom_dir`.
pub struct TransomDir(pub(crate) Box<dyn Iterator<Item = Result<DirEntry, Errno>>>);

/// `struct transom_attr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says it")]
pub struct TransomAttr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atime_nsec: u32,
    pub mtime_nsec: u32,
    pub ctime_nsec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
}
const _: () = assert!(size_of::<TransomAttr>() == 80);

impl From<&Metadata> for TransomAttr {
    fn from(metadata: &Metadata) -> Self {
        let attr = metadata.attr();
        Self {
            ino: attr.ino.get(),
            size: attr.size.get(),
            blocks: attr.blocks.get(),
            atime: attr.atime.get() as i64,
            mtime: attr.mtime.get() as i64,
            ctime: attr.ctime.get() as i64,
            atime_nsec: attr.atimensec.get(),
            mtime_nsec: attr.mtimensec.get(),
            ctime_nsec: attr.ctimensec.get(),
            mode: attr.mode.get(),
            nlink: attr.nlink.get(),
            uid: attr.uid.get(),
            gid: attr.gid.get(),
            rdev: attr.rdev.get(),
        }
    }
}

/// The room for a name and its NUL.
const NAME_ROOM: usize = 256;

/// `struct transom_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says it")]
pub struct TransomEntry {
    pub ino: u64,
    pub kind: u32,
    pub name_len: u32,
    pub name: [u8; NAME_ROOM],
}
const _: () = assert!(size_of::<TransomEntry>() == 272);

impl TransomEntry {
    /// Returns `None` for a name that no operation accepts.
    pub(crate) fn new(entry: &DirEntry) -> Option<Self> {
        let mut name = [0; NAME_ROOM];
        if entry.name.len() >= NAME_ROOM {
            return None;
        }
        name[..entry.name.len()].copy_from_slice(&entry.name);
        let kind = match entry.file_type {
            None => 0,
            Some(FileType::Fifo) => 1,
            Some(FileType::CharacterDevice) => 2,
            Some(FileType::Directory) => 4,
            Some(FileType::BlockDevice) => 6,
            Some(FileType::File) => 8,
            Some(FileType::Symlink) => 10,
            Some(FileType::Socket) => 12,
        };
        Some(Self { ino: entry.ino, kind, name_len: entry.name.len() as u32, name })
    }
}
