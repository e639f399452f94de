//! The contents of files: reading, writing, sizes, holes.

use transom_host::Errno;
use transom_host::server::GuestSlice;

use super::tree::Tree;

const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const ZERO_RANGE_KEEP_SIZE: u32 = ZERO_RANGE | KEEP_SIZE;

impl Tree {
    /// Copies from `offset` on until `data` is full or the file ends.
    pub(super) fn read(&mut self, nodeid: u64, offset: u64, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
        let file = self.file_mut(nodeid)?;
        let mut rest = file.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let mut read = 0;
        for slice in data {
            let len = slice.len().min(rest.len());
            slice.copy_from(&rest[..len]);
            rest = &rest[len..];
            read += len;
        }
        Ok(read)
    }

    /// Copies all of `data` to `offset`. Errors: EFBIG, ENOSPC, with nothing written.
    pub(super) fn write(&mut self, nodeid: u64, offset: u64, data: &[GuestSlice<'_>]) -> Result<u32, Errno> {
        let len: usize = data.iter().map(|slice| slice.len()).sum();
        if len == 0 {
            self.file_mut(nodeid)?;
            return Ok(0);
        }
        let end = offset.checked_add(len as u64).ok_or(Errno::FBIG)?;
        self.grow(nodeid, end)?;
        let mut target = &mut self.file_mut(nodeid)?[offset as usize..end as usize];
        for slice in data {
            let (part, rest) = target.split_at_mut(slice.len());
            let copied = slice.copy_to(part);
            debug_assert_eq!(copied, part.len());
            target = rest;
        }
        self.changed(nodeid)?;
        Ok(len as u32)
    }

    /// Cuts or extends with zeros. Errors: EFBIG, ENOSPC.
    pub(super) fn truncate(&mut self, nodeid: u64, size: u64) -> Result<(), Errno> {
        let old_size = self.file_mut(nodeid)?.len() as u64;
        if size < old_size {
            let file = self.file_mut(nodeid)?;
            file.truncate(size as usize);
            file.shrink_to_fit();
            self.discharge(old_size - size);
        }
        self.grow(nodeid, size)?;
        self.changed(nodeid)
    }

    /// FALLOCATE without the modes that move data. Errors: EINVAL, EOPNOTSUPP, EFBIG, ENOSPC.
    pub(super) fn fallocate(&mut self, nodeid: u64, offset: u64, length: u64, mode: u32) -> Result<(), Errno> {
        if length == 0 {
            return Err(Errno::INVAL);
        }
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        if !matches!(mode, 0 | KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE | ZERO_RANGE_KEEP_SIZE) {
            return Err(Errno::OPNOTSUPP);
        }
        if mode & KEEP_SIZE == 0 {
            self.grow(nodeid, end)?;
        }
        if mode & !KEEP_SIZE != 0 {
            let file = self.file_mut(nodeid)?;
            let size = file.len() as u64;
            file[offset.min(size) as usize..end.min(size) as usize].fill(0);
        }
        self.file_mut(nodeid)?;
        self.changed(nodeid)
    }

    /// SEEK_DATA and SEEK_HOLE of a file without holes. Errors: ENXIO, EINVAL.
    pub(super) fn lseek(&mut self, nodeid: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
        let size = self.file_mut(nodeid)?.len() as u64;
        match whence as i32 {
            libc::SEEK_DATA if offset < size => Ok(offset),
            libc::SEEK_HOLE if offset < size => Ok(size),
            libc::SEEK_DATA | libc::SEEK_HOLE => Err(Errno::NXIO),
            _ => Err(Errno::INVAL),
        }
    }

    /// COPY_FILE_RANGE. Errors: EINVAL where both ranges overlap in one file, EFBIG, ENOSPC.
    pub(super) fn copy(&mut self, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u64, Errno> {
        let source = self.file_mut(from.0)?;
        let size = source.len() as u64;
        let len = len.min(size.saturating_sub(from.1)).min(i32::MAX as u64);
        let distance = from.1.abs_diff(to.1);
        if from.0 == to.0 && distance < len {
            return Err(Errno::INVAL);
        }
        let mut bytes = source[from.1.min(size) as usize..][..len as usize].to_vec();
        self.file_mut(to.0)?;
        self.write(to.0, to.1, &[bytes.as_mut_slice().into()]).map(u64::from)
    }

    /// Extends with zeros to `size`, where the file is shorter. Errors: EFBIG, ENOSPC.
    fn grow(&mut self, nodeid: u64, size: u64) -> Result<(), Errno> {
        let old_size = self.file_mut(nodeid)?.len() as u64;
        if size <= old_size {
            return Ok(());
        }
        if size > self.limits().file_bytes {
            return Err(Errno::FBIG);
        }
        self.charge(size - old_size)?;
        self.file_mut(nodeid)?.resize(size as usize, 0);
        Ok(())
    }

    fn changed(&mut self, nodeid: u64) -> Result<(), Errno> {
        let now = self.now();
        let inode = self.inode_mut(nodeid)?;
        (inode.mtime, inode.ctime) = (now, now);
        Ok(())
    }
}
