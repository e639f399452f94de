//! The share as a directory of Hermit's file system, and its files as objects behind descriptors.

#![allow(unsafe_code, reason = "reads into Hermit's uninitialised buffers")]

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;

use async_trait::async_trait;
use transom_guest::Errno;
use transom_guest::fs::{File, Fs, Metadata, OpenOptions, SeekFrom};

use super::platform::Hermit;
use crate::fd::{AccessPermission, ObjectInterface, OpenOption};
use crate::fs::{DirectoryEntry, FileAttr, NodeKind, SeekWhence, VfsNode};
use crate::io;
use crate::time::timespec;

/// The directory at the mount point.
pub(super) struct Share(pub(super) Fs<Hermit>);

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Share")
    }
}

/// Returns the path of `components`, which are those that remain, the first one last.
fn path(components: &[&str]) -> String {
    let mut path = String::new();
    for component in components.iter().rev() {
        path.push('/');
        path.push_str(component);
    }
    if path.is_empty() { "/".into() } else { path }
}

impl VfsNode for Share {
    fn get_kind(&self) -> NodeKind {
        NodeKind::Directory
    }

    fn get_file_attributes(&self) -> io::Result<FileAttr> {
        self.traverse_stat(&mut Vec::new())
    }

    fn traverse_open(
        &self,
        components: &mut Vec<&str>,
        option: OpenOption,
        mode: AccessPermission,
    ) -> io::Result<Arc<dyn ObjectInterface>> {
        let options = OpenOptions::of_flags(option.bits() as u32).mode(mode.bits());
        let file = self.0.open(path(components), &options).map_err(error)?;
        Ok(Arc::new(Object(file)))
    }

    fn traverse_readdir(&self, components: &mut Vec<&str>) -> io::Result<Vec<DirectoryEntry>> {
        let entries = self.0.read_dir(path(components)).map_err(error)?;
        entries
            .map(|entry| {
                let name = String::from_utf8(entry.map_err(error)?.name);
                Ok(DirectoryEntry::new(name.map_err(|_| io::Error::EINVAL)?))
            })
            .collect()
    }

    fn traverse_stat(&self, components: &mut Vec<&str>) -> io::Result<FileAttr> {
        self.0.metadata(path(components)).map(|metadata| attributes(&metadata)).map_err(error)
    }

    fn traverse_lstat(&self, components: &mut Vec<&str>) -> io::Result<FileAttr> {
        let metadata = self.0.symlink_metadata(path(components));
        metadata.map(|metadata| attributes(&metadata)).map_err(error)
    }

    fn traverse_mkdir(&self, components: &mut Vec<&str>, mode: AccessPermission) -> io::Result<()> {
        self.0.create_dir(path(components), mode.bits()).map_err(error)
    }

    fn traverse_rmdir(&self, components: &mut Vec<&str>) -> io::Result<()> {
        self.0.remove_dir(path(components)).map_err(error)
    }

    fn traverse_unlink(&self, components: &mut Vec<&str>) -> io::Result<()> {
        self.0.remove_file(path(components)).map_err(error)
    }
}

/// An open file.
struct Object(File<Hermit>);

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Object")
    }
}

#[async_trait]
impl ObjectInterface for Object {
    async fn read(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        buf.fill(MaybeUninit::new(0));
        // SAFETY: every byte was just initialised.
        let bytes = unsafe { &mut *(core::ptr::from_mut(buf) as *mut [u8]) };
        self.0.read(bytes).map_err(error)
    }

    async fn write(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf).map_err(error)
    }

    async fn lseek(&self, offset: isize, whence: SeekWhence) -> io::Result<isize> {
        let from_start = || u64::try_from(offset).map_err(|_| io::Error::EINVAL);
        let to = match whence {
            SeekWhence::Set => SeekFrom::Start(from_start()?),
            SeekWhence::Cur => SeekFrom::Current(offset as i64),
            SeekWhence::End => SeekFrom::End(offset as i64),
            SeekWhence::Data => SeekFrom::Data(from_start()?),
            SeekWhence::Hole => SeekFrom::Hole(from_start()?),
        };
        let position = self.0.seek(to).map_err(error)?;
        isize::try_from(position).map_err(|_| io::Error::EOVERFLOW)
    }

    async fn fstat(&self) -> io::Result<FileAttr> {
        self.0.metadata().map(|metadata| attributes(&metadata)).map_err(error)
    }
}

/// Returns Hermit's error; EIO for one that it does not have.
pub(super) fn error(error: Errno) -> io::Error {
    num::FromPrimitive::from_i32(error.raw()).unwrap_or(io::Error::EIO)
}

fn attributes(metadata: &Metadata) -> FileAttr {
    let attr = metadata.attr();
    let time = |seconds: u64, nanoseconds: u32| timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i32 };
    FileAttr {
        st_ino: attr.ino.get(),
        st_nlink: attr.nlink.get().into(),
        st_mode: AccessPermission::from_bits_retain(attr.mode.get()),
        st_uid: attr.uid.get(),
        st_gid: attr.gid.get(),
        st_rdev: attr.rdev.get().into(),
        st_size: attr.size.get() as i64,
        st_blksize: attr.blksize.get().into(),
        st_blocks: attr.blocks.get() as i64,
        st_atim: time(attr.atime.get(), attr.atimensec.get()),
        st_mtim: time(attr.mtime.get(), attr.mtimensec.get()),
        st_ctim: time(attr.ctime.get(), attr.ctimensec.get()),
        ..FileAttr::default()
    }
}
