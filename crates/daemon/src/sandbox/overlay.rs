//! The share under a layer that takes what the guest changes, so that the shared directory stays as it is.
//!
//! The kernel's overlayfs does it: lower is the shared directory, upper and work are directories of their own. The
//! mount has no place in any directory tree until the sandbox gives it one. It keeps its notes in attributes of users
//! (`userxattr`), so that an ordinary user's user namespace suffices, and so that a layer which root has made and one
//! which a user has made look the same to whoever reads them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

use super::SandboxError;

/// Mounts `share` as the lower layer of an overlay whose layers are `layer/upper` and `layer/work`. The process must
/// have its own mount namespace. Returns the overlay's root; no device node in it can be opened.
///
/// # Errors
/// With the reason and what to do, if the kernel mounts no overlay of these directories, or file systems are mounted
/// below `share`, which an overlay would not contain.
pub(super) fn mount(share: &Path, layer: &Path) -> Result<OwnedFd, SandboxError> {
    let failed =
        |cause: io::Error, advice: &'static str| SandboxError::Overlay { path: share.to_owned(), cause, advice };
    if let Some(below) = mounted_below(share) {
        return Err(SandboxError::MountedBelow { path: share.to_owned(), below });
    }
    let lower = open(share).map_err(|error| failed(error, ""))?;
    let upper = open(&layer.join("upper")).map_err(|error| failed(error, "; --overlay DIR needs DIR/upper"))?;
    let work = open(&layer.join("work")).map_err(|error| failed(error, "; --overlay DIR needs DIR/work"))?;
    configured(&lower, &upper, &work).map_err(|errno| failed(errno.into(), advice(errno)))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| io::Error::new(io::Error::from(errno).kind(), format!("{}: {errno}", path.display())))
}

fn configured(lower: &OwnedFd, upper: &OwnedFd, work: &OwnedFd) -> Result<OwnedFd, Errno> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = context.as_fd();
    fsconfig_set_string(context, "source", "transomd")?;
    fsconfig_set_flag(context, "userxattr")?;
    // One device number, and the numbers of inodes stay when a file is copied to the upper layer: the guest knows files
    // by them.
    fsconfig_set_string(context, "xino", "on")?;
    // A descriptor's name has none of the characters that separate layers and options.
    for (option, layer) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
        fsconfig_set_string(context, option, format!("/proc/self/fd/{}", layer.as_raw_fd()))?;
    }
    fsconfig_create(context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NODEV => "; this kernel has no overlayfs: load the module `overlay`",
        Errno::PERM => "; ordinary users need Linux 5.11 or newer for it, and user namespaces, or start it as root",
        Errno::INVAL => {
            "; the layers must be on a local file system that is no overlay itself, and Linux be 5.11 or newer: the \
             kernel's log says which"
        }
        Errno::LOOP => "; the layers must not be in the shared directory",
        _ => "",
    }
}

/// Returns a place below `share` where a file system is mounted, if there is one.
fn mounted_below(share: &Path) -> Option<PathBuf> {
    let share = fs::canonicalize(share).ok()?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let places = mounts.split(|&byte| byte == b'\n').filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    let mut places = places.map(|place| PathBuf::from(std::ffi::OsStr::from_bytes(&unescaped(place))));
    places.find(|place| *place != share && place.starts_with(&share))
}

/// Replaces the octal escapes of `/proc` by the bytes that they stand for.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        plain.push(octal.unwrap_or(first));
        rest = &after[if octal.is_some() { 3 } else { 0 }..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_list_of_mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(br"/a\040b\134c\12"), br"/a b\c\12");
        assert_eq!(unescaped(b"/plain"), b"/plain");
    }

    #[test]
    fn what_is_mounted_below_a_directory_is_found() {
        assert!(mounted_below(Path::new("/")).is_some());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mounted_below(folder.path()), None);
    }
}
