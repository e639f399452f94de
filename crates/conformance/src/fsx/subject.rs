//! The file itself, with what is open and mapped of it.

use std::path::{Path, PathBuf};

use rustix::{
    fs::{AtFlags, FallocateFlags, Mode as Permissions, OFlags, StatxFlags, fallocate, ftruncate, open, statx},
    io::{Errno, pread, pwrite},
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::operation::{Allocation, BLOCK, HANDLES, MAPPINGS, Mode};
use crate::{
    client::{Client, Handle, MapMode, Mapping, Result},
    syscalls::Syscalls,
};

pub(super) struct Subject {
    paths: Vec<PathBuf>,
    handles: Vec<Open>,
    mappings: Vec<Option<Mapped>>,
}

/// An open handle.
pub(super) struct Open {
    fd: OwnedFd,
    pub(super) mode: Mode,
    pub(super) path: usize,
}

/// A mapping that may reach beyond the end of the file.
pub(super) struct Mapped {
    pub(super) memory: Box<dyn Mapping>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Subject {
    /// A new empty file called `name`, seen at each of `directories`.
    pub(super) fn create(directories: &[PathBuf], name: &str) -> Result<Self> {
        let paths: Vec<PathBuf> = directories.iter().map(|directory| directory.join(name)).collect();
        open(&paths[0], OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, Permissions::RUSR | Permissions::WUSR)?;
        let handles = (0..HANDLES).map(|index| Open::new(&paths, index % paths.len(), Mode::Plain));
        Ok(Self { handles: handles.collect::<Result<_>>()?, mappings: (0..MAPPINGS).map(|_| None).collect(), paths })
    }

    pub(super) fn path(&self, index: usize) -> &Path {
        &self.paths[index]
    }

    /// The size, asked for at every path, so that no client goes by what it heard before.
    pub(super) fn sizes(&self) -> Result<Vec<u64>> {
        let flags = AtFlags::from_bits_retain(libc::AT_STATX_FORCE_SYNC as u32);
        let size = |path: &PathBuf| Ok(statx(rustix::fs::CWD, path, flags, StatxFlags::SIZE)?.stx_size);
        self.paths.iter().map(size).collect()
    }

    pub(super) fn handle(&self, index: usize) -> &Open {
        &self.handles[index]
    }

    pub(super) fn mapping(&self, slot: usize) -> Option<&Mapped> {
        self.mappings[slot].as_ref()
    }

    /// Closes a handle and opens it again.
    pub(super) fn reopen(&mut self, index: usize, path: usize, mode: Mode) -> Result<()> {
        self.handles[index] = Open::new(&self.paths, path, mode)?;
        Ok(())
    }

    pub(super) fn map(&mut self, slot: usize, path: usize, offset: u64, len: u64) -> Result<()> {
        self.mappings[slot] = None;
        let opened = Open::new(&self.paths, path, Mode::Plain)?;
        let mode = MapMode { is_writable: true, is_shared: true };
        let memory = Syscalls.map(Handle(opened.fd.as_raw_fd() as u64), offset, len as usize, mode)?;
        self.mappings[slot] = Some(Mapped { memory, offset, len });
        Ok(())
    }

    pub(super) fn unmap(&mut self, slot: usize) {
        self.mappings[slot] = None;
    }

    /// Removes the file.
    pub(super) fn remove(self) -> Result<()> {
        rustix::fs::unlink(&self.paths[0])
    }
}

impl Open {
    pub(super) fn new(paths: &[PathBuf], path: usize, mode: Mode) -> Result<Self> {
        let flags = match mode {
            Mode::Plain => OFlags::empty(),
            Mode::Append => OFlags::APPEND,
            Mode::Direct => OFlags::DIRECT,
            Mode::Synchronous => OFlags::DSYNC,
        };
        let fd = open(&paths[path], OFlags::RDWR | OFlags::CLOEXEC | flags, Permissions::empty())?;
        Ok(Self { fd, mode, path })
    }

    /// Up to the end of the file.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut buffer = Buffer::new(len);
        let bytes = buffer.bytes();
        let mut count = 0;
        while count < bytes.len() {
            match pread(&self.fd, &mut bytes[count..], offset + count as u64)? {
                0 => break,
                more => count += more,
            }
            // What ends off a block is the end of the file.
            if self.mode == Mode::Direct && !(count as u64).is_multiple_of(BLOCK) {
                break;
            }
        }
        Ok(bytes[..count].to_vec())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut buffer = Buffer::new(data.len() as u64);
        buffer.bytes().copy_from_slice(data);
        let mut rest = &*buffer.bytes();
        while !rest.is_empty() {
            let written = pwrite(&self.fd, rest, offset + (data.len() - rest.len()) as u64)?;
            if written == 0 {
                return Err(Errno::IO);
            }
            rest = &rest[written..];
        }
        Ok(())
    }

    pub(super) fn truncate(&self, len: u64) -> Result<()> {
        ftruncate(&self.fd, len)
    }

    pub(super) fn allocate(&self, kind: Allocation, offset: u64, len: u64) -> Result<()> {
        let flags = match kind {
            Allocation::Grow => FallocateFlags::empty(),
            Allocation::Keep => FallocateFlags::KEEP_SIZE,
            Allocation::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocation::Zero => FallocateFlags::ZERO_RANGE,
            Allocation::ZeroKeep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            Allocation::Collapse => FallocateFlags::COLLAPSE_RANGE,
            Allocation::Insert => FallocateFlags::INSERT_RANGE,
        };
        fallocate(&self.fd, flags, offset, len)
    }

    /// Returns what was copied.
    pub(super) fn copy_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        let (mut from_at, mut to_at) = (offset, to_offset);
        let mut copied = 0;
        while copied < len {
            let rest = (len - copied) as usize;
            match rustix::fs::copy_file_range(&self.fd, Some(&mut from_at), &to.fd, Some(&mut to_at), rest) {
                Ok(0) => break,
                Ok(count) => copied += count as u64,
                // What was copied before counts.
                Err(_) if copied > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(copied)
    }

    pub(super) fn sync(&self, is_data_only: bool) -> Result<()> {
        if is_data_only { rustix::fs::fdatasync(&self.fd) } else { rustix::fs::fsync(&self.fd) }
    }
}

impl AsFd for Open {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Memory that begins at a block, as `O_DIRECT` wants it.
struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Buffer {
    fn new(len: u64) -> Self {
        let memory = vec![0xa5; (len + BLOCK) as usize];
        let begin = memory.as_ptr().align_offset(BLOCK as usize);
        Self { memory, begin, len: len as usize }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..][..self.len]
    }
}
