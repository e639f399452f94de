//! File handles, which refer to inodes without using descriptors.
//!
//! [`FileHandle`] is small, owned and comparable. [`FileHandle::open`] needs CAP_DAC_READ_SEARCH and a descriptor on
//! the handle's mount, which the caller keeps for each [`MountId`].

#![expect(unsafe_code, reason = "name_to_handle_at and open_by_handle_at are not in rustix")]

use std::{
    ffi::CStr,
    fmt,
    hash::{Hash, Hasher},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use rustix::{fs::OFlags, io::Errno, path::Arg as _};

use super::{MountId, checked};

/// Maximum length of a handle (`MAX_HANDLE_SZ` of Linux).
pub const HANDLE_LEN_MAX: usize = 128;

/// Length of a handle that is stored without an allocation: ext4 and XFS use 8 to 12 bytes, btrfs and NFS more.
const INLINE_LEN: usize = 22;

/// A file handle together with the mount it belongs to.
#[derive(Clone)]
pub struct FileHandle {
    mount: MountId,
    type_: i32,
    bytes: Bytes,
}
const _: () = assert!(size_of::<FileHandle>() == 40);

#[derive(Clone)]
enum Bytes {
    Inline { len: u8, bytes: [u8; INLINE_LEN] },
    Heap(Box<[u8]>),
}

/// `struct file_handle` with room for the largest handle.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_LEN_MAX],
}
const _: () = assert!(size_of::<RawHandle>() == 8 + HANDLE_LEN_MAX);

impl FileHandle {
    /// Returns a handle that another process has sent. Returns `None` if it is longer than [`HANDLE_LEN_MAX`].
    pub fn from_parts(mount: MountId, type_: i32, bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= HANDLE_LEN_MAX).then(|| Self { mount, type_, bytes: Bytes::new(bytes) })
    }

    /// Returns the handle of the inode that `fd` refers to, which may be `O_PATH`. `mount` comes from `statx` of the
    /// same `fd`.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP if the file system has no handles; EOVERFLOW if it has larger ones than Linux allows.
    pub fn of(fd: impl AsFd, mount: MountId) -> Result<Self, Errno> {
        Self::at(fd.as_fd(), c"", libc::AT_EMPTY_PATH, mount)
    }

    /// Returns the handle of the inode of `name` in `dir`; of a symbolic link itself. `mount` comes from `statx` of the
    /// same name.
    ///
    /// # Errors
    ///
    /// As for [`FileHandle::of`]; ENOENT if there is no such name.
    pub fn of_name(dir: impl AsFd, name: &[u8], mount: MountId) -> Result<Self, Errno> {
        name.into_with_c_str(|name| Self::at(dir.as_fd(), name, 0, mount))
    }

    fn at(dir: BorrowedFd<'_>, name: &CStr, flags: libc::c_int, mount: MountId) -> Result<Self, Errno> {
        let mut raw = RawHandle { handle_bytes: HANDLE_LEN_MAX as u32, handle_type: 0, f_handle: [0; HANDLE_LEN_MAX] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY:
        // 1. The name ends with its NUL and lives during the call.
        // 2. `raw` begins as `struct file_handle` does, followed by the HANDLE_LEN_MAX bytes that `handle_bytes`
        //    states.
        // 3. `mount_id` is an int of ours, as the call requires without AT_HANDLE_MNT_ID_UNIQUE.
        checked(unsafe {
            libc::name_to_handle_at(dir.as_raw_fd(), name.as_ptr(), (&raw mut raw).cast(), &raw mut mount_id, flags)
        })?;
        let bytes = raw.f_handle.get(..raw.handle_bytes as usize).ok_or(Errno::OVERFLOW)?;
        Ok(Self { mount, type_: raw.handle_type, bytes: Bytes::new(bytes) })
    }

    /// Opens the inode; `on_mount` is any descriptor on [`FileHandle::mount`] that is not `O_PATH`.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_DAC_READ_SEARCH, ESTALE if the inode is gone; those of open(2).
    pub fn open(&self, on_mount: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let bytes = self.bytes.as_slice();
        let mut raw =
            RawHandle { handle_bytes: bytes.len() as u32, handle_type: self.type_, f_handle: [0; HANDLE_LEN_MAX] };
        raw.f_handle[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: `raw` begins as `struct file_handle` does, followed by at least `handle_bytes` bytes.
        let fd = checked(unsafe {
            libc::open_by_handle_at(
                on_mount.as_fd().as_raw_fd(),
                (&raw mut raw).cast(),
                (flags | OFlags::CLOEXEC).bits() as libc::c_int,
            )
        })?;
        // SAFETY: the call has just opened `fd` for us, and nobody else knows its number.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns the mount that the handle belongs to.
    pub fn mount(&self) -> MountId {
        self.mount
    }

    /// Returns `handle_type` of `struct file_handle`.
    pub fn type_(&self) -> i32 {
        self.type_
    }

    /// Returns `f_handle` of `struct file_handle`.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// A handle as the kernel reports it, without the mount.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawFileHandle {
    /// `handle_type` of `struct file_handle`.
    pub type_: i32,
    /// `f_handle`.
    pub bytes: Box<[u8]>,
}

impl From<&FileHandle> for RawFileHandle {
    fn from(handle: &FileHandle) -> Self {
        Self { type_: handle.type_, bytes: handle.bytes.as_slice().into() }
    }
}

impl Bytes {
    /// Creates a handle; `bytes` has at most [`HANDLE_LEN_MAX`] elements.
    fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_LEN {
            return Self::Heap(bytes.into());
        }
        let mut inline = [0; INLINE_LEN];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline { len: bytes.len() as u8, bytes: inline }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.mount == other.mount && self.type_ == other.type_ && self.bytes.as_slice() == other.bytes.as_slice()
    }
}

impl Eq for FileHandle {}

impl Hash for FileHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.mount.hash(state);
        self.type_.hash(state);
        self.bytes.as_slice().hash(state);
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle(mount {}, type {}, ", self.mount.0, self.type_)?;
        self.bytes.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs::File, io::Read};

    use super::*;

    #[test]
    fn long_and_short_handles_keep_their_bytes() {
        for len in [0, 1, INLINE_LEN - 1, INLINE_LEN, INLINE_LEN + 1, HANDLE_LEN_MAX] {
            let bytes: Vec<u8> = (0..len as u8).collect();
            assert_eq!(Bytes::new(&bytes).as_slice(), bytes);
        }
    }

    #[test]
    fn two_names_of_an_inode_have_one_handle_that_outlives_both() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "content").unwrap();
        std::fs::hard_link(&a, &b).unwrap();
        std::fs::write(dir.path().join("c"), "other").unwrap();
        let path_fd = |path: &std::path::Path| {
            rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, rustix::fs::Mode::empty()).unwrap()
        };
        let mount = MountId(1);
        let handle = match FileHandle::of(path_fd(&a), mount) {
            Err(Errno::OPNOTSUPP) => return println!("SKIPPED: {} has no file handles", dir.path().display()),
            handle => handle.unwrap(),
        };
        let set = HashSet::from([handle.clone()]);
        assert!(set.contains(&FileHandle::of(path_fd(&b), mount).unwrap()));
        assert!(!set.contains(&FileHandle::of(path_fd(&dir.path().join("c")), mount).unwrap()));
        assert!(!set.contains(&FileHandle::of(path_fd(&b), MountId(2)).unwrap()), "another mount");

        let held = File::open(&a).unwrap();
        std::fs::remove_file(&a).unwrap();
        std::fs::remove_file(&b).unwrap();
        let root = File::open(dir.path()).unwrap();
        let mut content = String::new();
        match handle.open(&root, OFlags::RDONLY) {
            Err(Errno::PERM) => return println!("SKIPPED: opening a handle needs CAP_DAC_READ_SEARCH"),
            opened => File::from(opened.unwrap()).read_to_string(&mut content).unwrap(),
        };
        assert_eq!(content, "content");
        drop(held);
        // A busy kernel may temporarily have no memory for it.
        let mut outcomes = (0..1000).map(|_| handle.open(&root, OFlags::RDONLY).err());
        assert_eq!(outcomes.find(|outcome| *outcome != Some(Errno::NOMEM)), Some(Some(Errno::STALE)));
    }
}
