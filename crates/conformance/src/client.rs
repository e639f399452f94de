//! The operations that a file system offers to its users, in terms of Linux's system calls.
//!
//! Paths are relative to the directory of the case, which is the client's current directory. A [`Handle`] is what an
//! open returned; a client's own processes share the numbers, as after a fork. A client returns `ENOSYS` for what it
//! does not support. A case reaches what only a kernel has (sockets, inotify, `/proc`) by [`Client::descriptor`].

use std::os::fd::BorrowedFd;

pub use rustix::fs::{Access, FallocateFlags, FileType, OFlags, RenameFlags, SeekFrom, XattrFlags};
pub use rustix::io::Errno;

/// The answer of every operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// An open file or directory of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u64);

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub sec: i64,
    /// 0 to 999,999,999.
    pub nsec: u32,
}

/// What `utimensat` does with one of the two times.
#[derive(Clone, Copy, Debug)]
pub enum SetTime {
    /// The clock of the file system.
    Now,
    /// The time stays.
    Omit,
    /// This time.
    At(Time),
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The number of the inode.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// Length in bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// The preferred size of a transfer.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Creation, where the file system keeps it.
    pub btime: Option<Time>,
}

impl Attr {
    /// Permissions with the set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// File, directory, symlink …
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// One entry of a directory stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// The inode's number.
    pub ino: u64,
    /// The type, where the file system tells it.
    pub kind: FileType,
    /// Seek the stream here to go on after this entry.
    pub cookie: u64,
}

/// Who a process is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Whom a byte-range lock belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// The process (`F_SETLK`): any close of the file drops it.
    Process,
    /// The open file description (`F_OFD_SETLK`).
    Description,
}

/// Shared, exclusive, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Readers.
    Read,
    /// One writer.
    Write,
    /// Unlock; as the answer of a query: nobody is in the way.
    None,
}

/// A lock on a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Number of bytes; 0 reaches to the end, wherever that will be.
    pub len: u64,
}

/// What a mapping of a file lets one do.
#[derive(Clone, Copy, Debug)]
pub struct MapMode {
    /// Stores are allowed.
    pub is_writable: bool,
    /// Stores reach the file.
    pub is_shared: bool,
}

/// A mapped range of a file; it ends with the value.
pub trait Mapping: Send + Sync {
    /// Loads bytes from `offset` within the mapping.
    fn load(&self, offset: usize, bytes: &mut [u8]);
    /// Stores bytes at `offset` within the mapping.
    fn store(&self, offset: usize, bytes: &[u8]);
    /// `msync(MS_SYNC)` over the mapping.
    fn sync(&self) -> Result<()>;
    /// Reads from `file` into up to `len` bytes at `offset` within the mapping, by one system call.
    fn read_from(&self, offset: usize, len: usize, file: BorrowedFd<'_>, file_offset: u64) -> Result<usize>;
    /// Writes up to `len` bytes at `offset` within the mapping to `file`, by one system call.
    fn write_to(&self, offset: usize, len: usize, file: BorrowedFd<'_>, file_offset: u64) -> Result<usize>;
    /// Adds to the aligned number at `offset`, in one step; returns what it was before.
    fn add(&self, offset: usize, number: u64) -> u64;
    /// Whether touching the byte at `offset` raises a bus error.
    fn is_bus_error(&self, offset: usize) -> bool;
}

/// Totals of the file system that a case asks about.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The size of a block of the counts below.
    pub block_size: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// The longest name.
    pub name_len_max: u64,
}

/// A client of a file system, as one process sees it.
///
/// Every method may block. `follow` means that a symlink at the end of the path is followed.
#[expect(missing_docs, reason = "each method is the system call of its name")]
pub trait Client: Sync {
    // Names
    fn open(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle>;
    fn close(&self, handle: Handle) -> Result<()>;
    fn mkdir(&self, path: &[u8], mode: u32) -> Result<()>;
    fn mknod(&self, path: &[u8], kind: FileType, mode: u32, device: (u32, u32)) -> Result<()>;
    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()>;
    fn readlink(&self, path: &[u8], buf: &mut [u8]) -> Result<usize>;
    fn link(&self, old: &[u8], new: &[u8], follow: bool) -> Result<()>;
    fn link_handle(&self, handle: Handle, new: &[u8]) -> Result<()>;
    fn unlink(&self, path: &[u8]) -> Result<()>;
    fn rmdir(&self, path: &[u8]) -> Result<()>;
    fn rename(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> Result<()>;

    // Attributes
    fn stat(&self, path: &[u8], follow: bool) -> Result<Attr>;
    fn stat_handle(&self, handle: Handle) -> Result<Attr>;
    fn chmod(&self, path: &[u8], mode: u32) -> Result<()>;
    fn chmod_handle(&self, handle: Handle, mode: u32) -> Result<()>;
    fn chown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()>;
    fn chown_handle(&self, handle: Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
    fn utimens(&self, path: &[u8], atime: SetTime, mtime: SetTime, follow: bool) -> Result<()>;
    fn utimens_handle(&self, handle: Handle, atime: SetTime, mtime: SetTime) -> Result<()>;
    fn truncate(&self, path: &[u8], len: u64) -> Result<()>;
    fn truncate_handle(&self, handle: Handle, len: u64) -> Result<()>;
    fn access(&self, path: &[u8], access: Access, is_effective: bool) -> Result<()>;
    fn statfs(&self, path: &[u8]) -> Result<Space>;

    // Data
    fn read(&self, handle: Handle, buf: &mut [u8]) -> Result<usize>;
    fn write(&self, handle: Handle, data: &[u8]) -> Result<usize>;
    fn read_at(&self, handle: Handle, buf: &mut [u8], offset: u64) -> Result<usize>;
    fn write_at(&self, handle: Handle, data: &[u8], offset: u64) -> Result<usize>;
    fn seek(&self, handle: Handle, to: SeekFrom) -> Result<u64>;
    fn fallocate(&self, handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()>;
    fn copy_range(&self, from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: usize) -> Result<usize>;
    fn sync(&self, handle: Handle, is_data_only: bool) -> Result<()>;
    fn sync_fs(&self, handle: Handle) -> Result<()>;
    fn map(&self, handle: Handle, offset: u64, len: usize, mode: MapMode) -> Result<Box<dyn Mapping>>;

    // Directory streams
    /// The next entries, as many as fit `buf_len` bytes of `getdents64`; none at the end.
    fn read_dir(&self, handle: Handle, buf_len: usize) -> Result<Vec<Entry>>;

    // Locks
    fn lock(&self, handle: Handle, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()>;
    /// The first lock in the way of `lock`, and the process that a kernel names for it (-1 for a description's).
    fn query_lock(&self, handle: Handle, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)>;
    fn flock(&self, handle: Handle, kind: LockKind, is_waiting: bool) -> Result<()>;

    // Extended attributes
    fn xattr_set(&self, path: &[u8], name: &[u8], value: &[u8], flags: XattrFlags, follow: bool) -> Result<()>;
    fn xattr_get(&self, path: &[u8], name: &[u8], buf: &mut [u8], follow: bool) -> Result<usize>;
    fn xattr_list(&self, path: &[u8], buf: &mut [u8], follow: bool) -> Result<usize>;
    fn xattr_remove(&self, path: &[u8], name: &[u8], follow: bool) -> Result<()>;
    fn xattr_set_handle(&self, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;
    fn xattr_get_handle(&self, handle: Handle, name: &[u8], buf: &mut [u8]) -> Result<usize>;

    // Processes
    /// Who this process is.
    fn identity(&self) -> Identity;
    /// Sets the mask of creation and returns the one before.
    fn umask(&self, mask: u32) -> u32;
    /// Runs `body` as another process, which inherits the handles and the current directory, and ends with `body`.
    ///
    /// Errors: `EPERM` when this process may not become `who`.
    fn process(&self, who: &Identity, body: &mut (dyn FnMut(&dyn Client) + Send)) -> Result<()>;

    /// The descriptor behind a handle, for a client that is the kernel of this machine.
    fn descriptor(&self, handle: Handle) -> Option<BorrowedFd<'_>>;
    /// Whether the current directory of this thread is the directory of the case.
    fn is_kernel(&self) -> bool;
}
