//! Into the tree of directories and out of it: mount(2) for root, `fusermount3` for everybody else.
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

use super::{MountError, kernel::Kernel, options::Options};

/// The file system's type, as `/proc/mounts` has it.
const TYPE: &str = "fuse.transom";
const HELPER: &str = "fusermount3";
/// The number of the socket in the helper.
const COMM_FD: i32 = 3;

/// A place where a share is mounted.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// The mount's number, where the kernel tells it (Linux 5.8).
    id: Option<u64>,
    /// By `fusermount3`, which also has to take it away again.
    is_by_helper: bool,
}

/// How hard to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Force {
    /// EBUSY while somebody uses it.
    None,
    /// It leaves the tree at once, and ends when nobody uses it.
    Lazy,
}

impl Place {
    /// Mounts at `path`; the kernel's INIT then waits to be read.
    pub(super) fn mount(path: &Path, source: &str, options: &Options) -> Result<(Self, Kernel), MountError> {
        let path = fs::canonicalize(path).map_err(|error| refused(path, error))?;
        let source = options.fsname.as_deref().unwrap_or(source);
        let is_by_helper = !geteuid().is_root();
        let mounted = if is_by_helper { ask_helper(&path, source, options) } else { by_call(&path, source, options) };
        let kernel = mounted.map_err(|error| refused(&path, error))?;
        let id = mount_id(&path);
        Ok((Self { path, id, is_by_helper }, kernel))
    }

    /// Whether it is still mounted there, and nothing over it.
    pub(super) fn is_in_tree(&self) -> bool {
        self.id.is_some() && mount_id(&self.path) == self.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn unmount(&self, force: Force) -> io::Result<()> {
        if !self.is_by_helper {
            let flags = if force == Force::Lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
            return Ok(unmount(&self.path, flags | UnmountFlags::NOFOLLOW)?);
        }
        let lazy = (force == Force::Lazy).then_some("-z");
        let output = Command::new(HELPER).arg("-u").args(lazy).arg("--").arg(&self.path).output()?;
        if output.status.success() { Ok(()) } else { Err(words_of(&output.stderr)) }
    }
}

/// The number of the mount at `path`. This makes no request of a FUSE file system.
fn mount_id(path: &Path) -> Option<u64> {
    let shown = statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID).ok()?;
    (shown.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(shown.stx_mnt_id)
}

fn refused(path: &Path, source: io::Error) -> MountError {
    MountError::Place { path: path.to_owned(), source }
}

fn by_call(path: &Path, source: &str, options: &Options) -> io::Result<Kernel> {
    let kernel = Kernel::open()?;
    let kind = fs::metadata(path)?.mode() & libc::S_IFMT;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut data = format!("fd={},rootmode={kind:o},user_id={uid},group_id={gid}", kernel.as_fd().as_raw_fd());
    options.words().for_each(|word| {
        data.push(',');
        data.push_str(word);
    });
    let data = CString::new(data)?;
    mount(source, path, TYPE, options.flags, data.as_c_str())?;
    Ok(kernel)
}

/// The helper, which is set-uid root, opens `/dev/fuse`, mounts, and sends the descriptor.
fn ask_helper(path: &Path, source: &str, options: &Options) -> io::Result<Kernel> {
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
            "without root it takes fusermount3, of the package fuse3, which is not installed",
        ),
        _ => error,
    })?;
    // The helper's end of the socket goes with the command.
    drop(command);
    if !output.status.success() {
        return Err(words_of(&output.stderr));
    }
    receive(&ours)?.map(Kernel::mounted).unwrap_or_else(|| Err(io::Error::other("fusermount3 has sent no descriptor")))
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

/// What the helper says of its failure, in one line.
fn words_of(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr).trim().replace('\n', "; ");
    io::Error::other(if text.is_empty() { "fusermount3 fails without a word".to_owned() } else { text })
}

/// How a place is told in `/proc/mounts`' fourth field and in messages.
pub(super) fn source_name(path: Option<&Path>) -> String {
    path.map_or_else(|| "transom".to_owned(), |path| String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned())
}
