//! The file that aborts the kernel's connection of a mount.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// Where the file is if the system has mounted `fusectl`, as systemd does and containers often do not.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Opens the file for what is mounted at `mount_point`. Opened early, it never belongs to a later mount with the same
/// number.
pub(super) fn open(mount_point: &Path) -> Result<File, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = statx(CWD, mount_point, flags, StatxFlags::empty())?;
    let name = PathBuf::from(stat.stx_dev_minor.to_string()).join("abort");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = match openat(CWD, Path::new(CONNECTIONS).join(&name), flags, Mode::empty()) {
        Err(Errno::NOENT) => openat(own_fusectl()?, &name, flags, Mode::empty()),
        result => result,
    }?;
    Ok(file.into())
}

/// Returns a `fusectl` that nobody else sees. Errors: EPERM without CAP_SYS_ADMIN.
fn own_fusectl() -> Result<OwnedFd, Errno> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}
