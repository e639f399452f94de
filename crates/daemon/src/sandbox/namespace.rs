//! The file system that an isolated process sees: an empty, read-only directory with two entries.
//!
//! `/share` is an overlay, or a clone of the share's mounts and everything mounted below, in which no device node can
//! be opened and no program executed. Mounts that the host adds later appear there too, with the options that the host
//! gave them. `/fd` is the process's own `/proc/self/fd`. A symlink or `..` that leads out of either resolves to
//! nothing.

use super::mount_attributes::forbid_devices_and_programs;
use super::{SandboxError, Shared, overlay, step};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, mount_remount,
    move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};
use std::os::fd::OwnedFd;
use tracing::warn;

/// Why `/` has no propagation to change: EINVAL.
const NO_MOUNT_POINT: &str =
    "; where / is not a mount point, as in a chroot, --sandbox chroot or --sandbox none remain";

/// Replaces the file system that this process sees. The process must have its own mount namespace.
///
/// Returns `O_PATH` descriptors of the share and of `/proc/self/fd`.
pub(super) fn isolate_files(share: Shared<'_>) -> Result<(OwnedFd, OwnedFd), SandboxError> {
    // Downstream propagation: later mounts of the host appear here, mounts made here stay here.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(step("cannot detach the mounts from the machine's", NO_MOUNT_POINT))?;

    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let root = match share.layer {
        Some(layer) => overlay::mount(share.path, layer)?,
        None => open_tree(CWD, share.path, clone | OpenTreeFlags::AT_RECURSIVE)
            .map_err(step("cannot clone the share's mounts", ""))?,
    };
    let fds = open_tree(CWD, "/proc/self/fd", clone)
        .map_err(step("cannot clone /proc/self/fd", "; /proc has to be mounted"))?;

    // Restrict them before they are attached, so that there is no moment in which a device could be opened.
    match forbid_devices_and_programs(&root).and_then(|()| forbid_devices_and_programs(&fds)) {
        Err(Errno::NOSYS) => warn!("this kernel is older than Linux 5.12: {}", super::OPEN_DEVICES),
        result => result.map_err(step("cannot restrict the share's mounts", ""))?,
    }

    // Any directory can be the mount point; /proc always exists.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("transomd", "/proc", "tmpfs", flags, c"mode=0755,size=64k")
        .map_err(step("cannot mount an empty root", ""))?;
    chdir("/proc").map_err(step("cannot enter the empty root", ""))?;
    let mode = Mode::from_raw_mode(0o755);
    let failed_entry = step("cannot fill the empty root", "");
    if share.is_directory {
        rustix::fs::mkdir("share", mode).map_err(&failed_entry)?;
    } else {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open("share", flags, Mode::RUSR).map_err(&failed_entry)?;
    }
    rustix::fs::mkdir("fd", mode).map_err(&failed_entry)?;
    for (tree, name) in [(&root, "share"), (&fds, "fd")] {
        move_mount(tree, "", CWD, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(step("cannot mount the share in the empty root", ""))?;
    }

    // The new root is stacked on the old one, and the old one, now below it, is detached.
    pivot_root(".", ".").map_err(step("cannot change the root", ""))?;
    unmount(".", UnmountFlags::DETACH).map_err(step("cannot leave the machine's files", ""))?;
    chdir("/").map_err(step("cannot enter the new root", ""))?;
    mount_remount("/", flags | MountFlags::RDONLY, "").map_err(step("cannot make the empty root read-only", ""))?;
    Ok((root, fds))
}
