//! File handles, by which fanotify names objects.

#![expect(unsafe_code, reason = "name_to_handle_at and open_by_handle_at are not in rustix")]

use std::{
    fmt,
    hash::{Hash, Hasher},
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use rustix::{
    fs::{OFlags, fstatvfs},
    io::Errno,
};
use smallvec::SmallVec;

/// Maximum length of a handle (`MAX_HANDLE_SZ` of Linux).
const HANDLE_LEN_MAX: usize = 128;

/// Handles of ext4, XFS and tmpfs have 8 to 16 bytes, those of btrfs 20 or 40.
const INLINE_LEN: usize = 20;

/// A file handle in a buffer of events.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleRef<'a> {
    pub(crate) file_system: u64,
    pub(crate) type_: i32,
    pub(crate) bytes: &'a [u8],
}

/// A file handle: the id of a file system, and which of its objects.
#[derive(Clone)]
pub struct ObjectHandle {
    file_system: u64,
    type_: i32,
    bytes: SmallVec<[u8; INLINE_LEN]>,
}

/// `struct file_handle` with room for the largest handle.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_LEN_MAX],
}
const _: () = assert!(size_of::<RawHandle>() == 8 + HANDLE_LEN_MAX);

impl HandleRef<'_> {
    /// Returns `handle_type` of `struct file_handle`.
    pub fn handle_type(self) -> i32 {
        self.type_
    }

    /// Returns `f_handle` of `struct file_handle`.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns a copy that outlives the event.
    pub fn to_owned(self) -> ObjectHandle {
        ObjectHandle { file_system: self.file_system, type_: self.type_, bytes: SmallVec::from_slice(self.bytes) }
    }

    /// Opens the object; `on_file_system` is any descriptor on the same file system that is not `O_PATH`. `fstat` of
    /// the result has its device and inode.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_DAC_READ_SEARCH in the initial user namespace, ESTALE if the object is gone; those of open(2).
    pub fn open(self, on_file_system: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let len = self.bytes.len().min(HANDLE_LEN_MAX);
        let mut raw = RawHandle { handle_bytes: len as u32, handle_type: self.type_, f_handle: [0; HANDLE_LEN_MAX] };
        raw.f_handle[..len].copy_from_slice(&self.bytes[..len]);
        let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
        // SAFETY: `raw` begins as `struct file_handle` does, followed by at least `handle_bytes` bytes.
        let fd = unsafe { libc::open_by_handle_at(on_file_system.as_fd().as_raw_fd(), (&raw mut raw).cast(), flags) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the call has just opened `fd` for us, and nobody else knows its number.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl ObjectHandle {
    /// Returns the handle by which events name the object of `fd`, which may be `O_PATH`.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP if the file system has no handles.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let mut raw = RawHandle { handle_bytes: HANDLE_LEN_MAX as u32, handle_type: 0, f_handle: [0; HANDLE_LEN_MAX] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY:
        // 1. The name is a constant with its NUL.
        // 2. `raw` begins as `struct file_handle` does, followed by the HANDLE_LEN_MAX bytes that `handle_bytes`
        //    states.
        // 3. `mount_id` is an int of ours, as the call requires without AT_HANDLE_MNT_ID_UNIQUE.
        let result = unsafe {
            libc::name_to_handle_at(
                fd.as_fd().as_raw_fd(),
                c"".as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount_id,
                libc::AT_EMPTY_PATH,
            )
        };
        if result < 0 {
            return Err(last_errno());
        }
        let bytes = raw.f_handle.get(..raw.handle_bytes as usize).ok_or(Errno::OVERFLOW)?;
        let file_system = file_system_id(fd)?;
        Ok(Self { file_system, type_: raw.handle_type, bytes: SmallVec::from_slice(bytes) })
    }

    /// Returns the form that events have.
    pub fn as_ref(&self) -> HandleRef<'_> {
        HandleRef { file_system: self.file_system, type_: self.type_, bytes: &self.bytes }
    }
}

/// Returns `f_fsid` of statfs(2), which fanotify reports: the first of its two numbers in the lower bits.
fn file_system_id(fd: impl AsFd) -> Result<u64, Errno> {
    Ok(fstatvfs(fd)?.f_fsid)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl PartialEq for ObjectHandle {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for ObjectHandle {}

impl Hash for ObjectHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl fmt::Debug for HandleRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle({:x}, type {}, ", self.file_system, self.type_)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

impl fmt::Debug for ObjectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}
