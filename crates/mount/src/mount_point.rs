//! Mounts and unmounts: with mount(2) for root, with `fusermount3` for everybody else.
//!
//! Source: linux/Documentation/filesystems/fuse.rst; `_FUSE_COMMFD` as in libfuse's lib/mount.c.

use std::{
    ffi::CString,
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::{
    fs::{AtFlags, CWD, StatxFlags, statx},
    mount::{UnmountFlags, mount, unmount},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{getegid, geteuid},
};

use super::{MountError, fuse_device::FuseDevice, options::Options};

/// The file system's type in `/proc/mounts`.
const TYPE: &str = "fuse.transom";
const HELPER: &str = "fusermount3";
/// The descriptor of the socket in the helper's process.
const COMM_FD: i32 = 3;

/// A path where a share is mounted.
#[derive(Debug)]
pub(super) struct MountPoint {
    path: PathBuf,
    /// The id of the mount, from Linux 5.8 on.
    id: Option<u64>,
    /// Whether it is a directory, as opposed to a file.
    is_dir: bool,
    /// Mounted by `fusermount3`, which also has to unmount it.
    is_by_helper: bool,
}

/// What to do if somebody uses the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnmountMode {
    /// Fail with EBUSY.
    Normal,
    /// Detach it from the directory tree at once. It ends when nobody uses it.
    Lazy,
}

impl MountPoint {
    /// Mounts at `path`. The kernel's INIT can then be read from the device that is returned.
    ///
    /// # Errors
    /// [`MountError::MountPoint`].
    pub(super) fn mount(path: &Path, source: &str, options: &Options) -> Result<(Self, FuseDevice), MountError> {
        let path = fs::canonicalize(path).map_err(|error| failed(path, error))?;
        let source = options.fsname.as_deref().unwrap_or(source);
        let is_dir = path.is_dir();
        let is_by_helper = !geteuid().is_root();
        let mounted =
            if is_by_helper { mount_by_helper(&path, source, options) } else { mount_by_call(&path, source, options) };
        let device = mounted.map_err(|error| failed(&path, error))?;
        let id = mount_id(&path);
        Ok((Self { path, id, is_dir, is_by_helper }, device))
    }

    /// Returns whether it is still mounted, and nothing is mounted over it.
    pub(super) fn is_mounted(&self) -> bool {
        self.id.is_some() && mount_id(&self.path) == self.id
    }

    /// Returns the path, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is a directory, as opposed to a file.
    pub(super) fn is_dir(&self) -> bool {
        self.is_dir
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// Those of umount(2) and `fusermount3`.
    pub(super) fn unmount(&self, mode: UnmountMode) -> io::Result<()> {
        if !self.is_by_helper {
            let flags = if mode == UnmountMode::Lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
            return Ok(unmount(&self.path, flags | UnmountFlags::NOFOLLOW)?);
        }
        let lazy = (mode == UnmountMode::Lazy).then_some("-z");
        let output = Command::new(HELPER).arg("-u").args(lazy).arg("--").arg(&self.path).output()?;
        if output.status.success() { Ok(()) } else { Err(helper_error(&output.stderr)) }
    }
}

/// Returns the id of the mount at `path`. Does not send a request to a FUSE file system.
fn mount_id(path: &Path) -> Option<u64> {
    let shown = statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID).ok()?;
    (shown.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(shown.stx_mnt_id)
}

fn failed(path: &Path, source: io::Error) -> MountError {
    MountError::MountPoint { path: path.to_owned(), source }
}

fn mount_by_call(path: &Path, source: &str, options: &Options) -> io::Result<FuseDevice> {
    let device = FuseDevice::open()?;
    let kind = fs::metadata(path)?.mode() & libc::S_IFMT;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut data = format!("fd={},rootmode={kind:o},user_id={uid},group_id={gid}", device.as_fd().as_raw_fd());
    options.words().for_each(|word| {
        data.push(',');
        data.push_str(word);
    });
    let data = CString::new(data)?;
    mount(source, path, TYPE, options.flags, data.as_c_str())?;
    Ok(device)
}

/// Has the helper, which is set-uid root, open `/dev/fuse`, mount it, and send the descriptor.
fn mount_by_helper(path: &Path, source: &str, options: &Options) -> io::Result<FuseDevice> {
    let words = options.for_fusermount(source).map_err(io::Error::other)?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(words).arg("--").arg(path);
    command.env("_FUSE_COMMFD", COMM_FD.to_string());
    let theirs = FdMapping { parent_fd: theirs.into(), child_fd: COMM_FD };
    command.fd_mappings(vec![theirs]).map_err(io::Error::other)?;
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            "mounting without root needs fusermount3 (package fuse3), which is not installed",
        ),
        _ => error,
    })?;
    // Closes our copy of the helper's end of the socket.
    drop(command);
    if !output.status.success() {
        return Err(helper_error(&output.stderr));
    }
    receive(&ours)?.map(FuseDevice::mounted).unwrap_or_else(|| Err(io::Error::other("fusermount3 sent no descriptor")))
}

fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [io::IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut descriptors| descriptors.next()))
}

/// Returns the helper's error message in one line.
fn helper_error(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr).trim().replace('\n', "; ");
    io::Error::other(if text.is_empty() { "fusermount3 failed without a message".to_owned() } else { text })
}

/// Returns the name of the source in `/proc/mounts`.
pub(super) fn source_name(path: Option<&Path>) -> String {
    path.map_or_else(|| "transom".to_owned(), |path| String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned())
}
