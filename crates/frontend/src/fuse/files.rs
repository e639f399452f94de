//! Operations on open files.

use transom_wire::{
    Opcode,
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        fallocate::FallocateIn,
        flush::FlushIn,
        fsync::FsyncIn,
        interrupt::InterruptIn,
        lk::{FileLock, LkIn, LkOut},
        lseek::{LseekIn, LseekOut},
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        write::{WriteIn, WriteOut},
    },
};
use zerocopy::IntoBytes;

use super::{Answer, Exchange, Session};

/// FUSE_LK_FLOCK.
const FLOCK: u32 = 1;

impl<E: Exchange> Session<E> {
    /// Sends OPEN and returns the handle.
    pub fn open(&mut self, nodeid: u64, flags: u32) -> Answer<u64> {
        let arg = OpenIn { flags: flags.into(), open_flags: 0.into() };
        Ok(self.ask::<OpenOut>(Opcode::Open, nodeid, &[arg.as_bytes()])?.fh.get())
    }

    /// Sends READ and returns the data.
    pub fn read(&mut self, nodeid: u64, fh: u64, offset: u64, size: u32) -> Answer<Vec<u8>> {
        self.request(Opcode::Read as u32, nodeid, &[read_in(fh, offset, size).as_bytes()], size as usize)
    }

    /// Sends WRITE and returns the number of bytes written.
    pub fn write(&mut self, nodeid: u64, fh: u64, offset: u64, data: &[u8]) -> Answer<u32> {
        let arg = WriteIn {
            fh: fh.into(),
            offset: offset.into(),
            size: (data.len() as u32).into(),
            write_flags: 0.into(),
            lock_owner: 0.into(),
            flags: 0.into(),
            padding: 0.into(),
        };
        let body: &[&[u8]] = if data.is_empty() { &[arg.as_bytes()] } else { &[arg.as_bytes(), data] };
        Ok(self.ask::<WriteOut>(Opcode::Write, nodeid, body)?.size.get())
    }

    /// Sends FLUSH.
    pub fn flush(&mut self, nodeid: u64, fh: u64) -> Answer<()> {
        let arg = FlushIn { fh: fh.into(), unused: 0.into(), padding: 0.into(), lock_owner: 0.into() };
        self.ask_nothing(Opcode::Flush, nodeid, &[arg.as_bytes()])
    }

    /// Sends RELEASE.
    pub fn release(&mut self, nodeid: u64, fh: u64) -> Answer<()> {
        self.ask_nothing(Opcode::Release, nodeid, &[release_in(fh).as_bytes()])
    }

    /// Sends FSYNC.
    pub fn fsync(&mut self, nodeid: u64, fh: u64) -> Answer<()> {
        let arg = FsyncIn { fh: fh.into(), fsync_flags: 0.into(), padding: 0.into() };
        self.ask_nothing(Opcode::Fsync, nodeid, &[arg.as_bytes()])
    }

    /// Sends FALLOCATE.
    pub fn fallocate(&mut self, nodeid: u64, fh: u64, offset: u64, length: u64, mode: u32) -> Answer<()> {
        let arg = FallocateIn {
            fh: fh.into(),
            offset: offset.into(),
            length: length.into(),
            mode: mode.into(),
            padding: 0.into(),
        };
        self.ask_nothing(Opcode::Fallocate, nodeid, &[arg.as_bytes()])
    }

    /// Sends LSEEK and returns the new offset.
    pub fn lseek(&mut self, nodeid: u64, fh: u64, offset: u64, whence: u32) -> Answer<u64> {
        let arg = LseekIn { fh: fh.into(), offset: offset.into(), whence: whence.into(), padding: 0.into() };
        Ok(self.ask::<LseekOut>(Opcode::Lseek, nodeid, &[arg.as_bytes()])?.offset.get())
    }

    /// Sends COPY_FILE_RANGE_64 from one (nodeid, handle, offset) to another and returns the number of bytes copied.
    pub fn copy_file_range(&mut self, from: (u64, u64, u64), to: (u64, u64, u64), len: u64) -> Answer<u64> {
        let arg = CopyFileRangeIn {
            fh_in: from.1.into(),
            off_in: from.2.into(),
            nodeid_out: to.0.into(),
            fh_out: to.1.into(),
            off_out: to.2.into(),
            len: len.into(),
            flags: 0.into(),
        };
        Ok(self.ask::<CopyFileRangeOut>(Opcode::CopyFileRange64, from.0, &[arg.as_bytes()])?.bytes_copied.get())
    }

    /// Sends GETLK for a lock of type `type_` on the whole file.
    pub fn getlk(&mut self, nodeid: u64, fh: u64, owner: u64, type_: u32) -> Answer<FileLock> {
        let arg = lk_in(fh, owner, type_, self.pid);
        Ok(self.ask::<LkOut>(Opcode::Getlk, nodeid, &[arg.as_bytes()])?.lk)
    }

    /// Sends SETLK, or SETLKW if `waits`, for the whole file.
    pub fn setlk(&mut self, nodeid: u64, fh: u64, owner: u64, type_: u32, waits: bool) -> Answer<()> {
        let arg = lk_in(fh, owner, type_, self.pid);
        self.ask_nothing(if waits { Opcode::Setlkw } else { Opcode::Setlk }, nodeid, &[arg.as_bytes()])
    }

    /// Sends SETLK for a lock of flock(2), of type `type_`.
    pub fn flock(&mut self, nodeid: u64, fh: u64, owner: u64, type_: u32) -> Answer<()> {
        let arg = LkIn { lk_flags: FLOCK.into(), ..lk_in(fh, owner, type_, self.pid) };
        self.ask_nothing(Opcode::Setlk, nodeid, &[arg.as_bytes()])
    }

    /// Like [`Session::flock`], and waits for the lock.
    pub fn flock_waiting(&mut self, nodeid: u64, fh: u64, owner: u64, type_: u32) -> Answer<()> {
        let arg = LkIn { lk_flags: FLOCK.into(), ..lk_in(fh, owner, type_, self.pid) };
        self.ask_nothing(Opcode::Setlkw, nodeid, &[arg.as_bytes()])
    }

    /// Sends INTERRUPT for the request `unique`.
    pub fn interrupt(&mut self, unique: u64) -> Answer<()> {
        self.tell(Opcode::Interrupt, 0, &[InterruptIn { unique: unique.into() }.as_bytes()])
    }
}

/// Returns the arguments of READ, READDIR and READDIRPLUS.
pub(super) fn read_in(fh: u64, offset: u64, size: u32) -> ReadIn {
    ReadIn {
        fh: fh.into(),
        offset: offset.into(),
        size: size.into(),
        read_flags: 0.into(),
        lock_owner: 0.into(),
        flags: 0.into(),
        padding: 0.into(),
    }
}

/// Returns the arguments of RELEASE and RELEASEDIR.
pub(super) fn release_in(fh: u64) -> ReleaseIn {
    ReleaseIn { fh: fh.into(), flags: 0.into(), release_flags: 0.into(), lock_owner: 0.into() }
}

fn lk_in(fh: u64, owner: u64, type_: u32, pid: u32) -> LkIn {
    let lk = FileLock { start: 0.into(), end: (i64::MAX as u64).into(), type_: type_.into(), pid: pid.into() };
    LkIn { fh: fh.into(), owner: owner.into(), lk, lk_flags: 0.into(), padding: 0.into() }
}
