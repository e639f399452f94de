//! The guest's mounts: those of the kernel, and the root. The shares are in [`shares`](super::shares).

use std::{
    ffi::{CString, OsStr},
    fs::{self, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_move, unmount},
    process::{chdir, chroot},
};

use super::while_doing;
use crate::protocol::Task;

/// The root's lower layer, what its upper one is in, and the two together; below the initramfs.
const LAYERS: &str = "layers";
const LOWER: &str = "/layers/lower";
const UPPER: &str = "/layers/upper";
const MERGED: &str = "/layers/merged";

/// The kind of the error if no device appears for a share.
pub(super) const NO_DEVICE: io::ErrorKind = io::ErrorKind::NotConnected;
/// A device that is plugged into the running machine appears within this time.
const APPEAR_MAX: Duration = Duration::from_secs(10);

/// Mounts what the kernel provides below `root`: processes, devices, terminals, its state, and memory for files.
pub(super) fn kernel_file_systems(root: &Path) -> io::Result<()> {
    let hidden = MountFlags::NOSUID | MountFlags::NODEV;
    let at = |path: &str| root.join(path);
    mount_at("proc", "proc", &at("proc"), hidden | MountFlags::NOEXEC, "")?;
    mount_at("sysfs", "sysfs", &at("sys"), hidden | MountFlags::NOEXEC, "")?;
    mount_at("devtmpfs", "devtmpfs", &at("dev"), MountFlags::NOSUID, "")?;
    mount_at(
        "devpts",
        "devpts",
        &at("dev/pts"),
        MountFlags::NOSUID | MountFlags::NOEXEC,
        "gid=5,mode=620,ptmxmode=666",
    )?;
    mount_at("tmpfs", "tmpfs", &at("dev/shm"), hidden, "mode=1777")?;
    mount_at("tmpfs", "tmpfs", &at("tmp"), hidden, "mode=1777")?;
    mount_at("tmpfs", "tmpfs", &at("run"), hidden, "mode=755")?;
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        match symlink(target, at("dev").join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Makes the task's root `/`, unless that is the initramfs itself.
pub(super) fn root(task: &Task) -> io::Result<()> {
    if task.root_tag.is_none() && task.scratch.is_none() {
        return Ok(());
    }
    overlay(task)?;
    let merged = Path::new(MERGED);
    kernel_file_systems(merged)?;
    if task.scratch.is_some() {
        let scratch = Path::new(UPPER).join("tmp");
        fs::create_dir(&scratch)?;
        fs::set_permissions(&scratch, Permissions::from_mode(0o1777))?;
        let tmp = merged.join("tmp");
        unmount(&tmp, UnmountFlags::empty())
            .and_then(|()| mount_bind(&scratch, &tmp))
            .map_err(while_doing("cannot mount /tmp"))?;
    }
    chdir(MERGED)?;
    mount_move(".", "/").map_err(while_doing("cannot move the root"))?;
    chroot(".")?;
    chdir("/")?;
    Ok(())
}

/// The root's share, read-only, or the initramfs, under a layer on the scratch disk or in memory.
fn overlay(task: &Task) -> io::Result<()> {
    let lower = match &task.root_tag {
        Some(tag) => {
            mount_tag(tag, Path::new(LOWER), MountFlags::RDONLY, "", task.has_late_shares)?;
            LOWER
        }
        None => "/",
    };
    match &task.scratch {
        Some(device) => mount_scratch(device)?,
        None => mount_at("tmpfs", "tmpfs", Path::new(UPPER), MountFlags::empty(), "mode=755,size=80%")?,
    }
    for folder in ["upper", "work"] {
        fs::create_dir(Path::new(UPPER).join(folder))?;
    }
    let options = format!("lowerdir={lower},upperdir={UPPER}/upper,workdir={UPPER}/work");
    mount_at("overlay", "overlay", Path::new(MERGED), MountFlags::empty(), &options)?;
    if task.root_tag.is_none() {
        // The initramfs has the mount points of the layers.
        fs::remove_dir_all(Path::new(MERGED).join(LAYERS))?;
    }
    Ok(())
}

/// Mounts the scratch disk, whose device may appear later. What is removed there is given back to the host.
fn mount_scratch(device: &str) -> io::Result<()> {
    let deadline = Instant::now() + APPEAR_MAX;
    while !Path::new(device).exists() {
        if Instant::now() >= deadline {
            let message = format!("no scratch disk appeared within {} s", APPEAR_MAX.as_secs());
            return Err(io::Error::new(NO_DEVICE, message));
        }
        thread::sleep(Duration::from_millis(1));
    }
    mount_at("ext4", device, Path::new(UPPER), MountFlags::empty(), "discard")
}

/// Mounts the share `tag`, whose device may appear later.
pub(super) fn mount_tag(tag: &str, path: &Path, flags: MountFlags, options: &str, is_late: bool) -> io::Result<()> {
    let deadline = Instant::now() + APPEAR_MAX;
    loop {
        match mount_at("virtiofs", tag, path, flags, options) {
            // No device has this tag.
            Err(error) if is_late && error.kind() == io::ErrorKind::InvalidInput => {
                if Instant::now() >= deadline {
                    let seconds = APPEAR_MAX.as_secs();
                    let message = format!("no device appeared for the share {tag} within {seconds} s ({error})");
                    return Err(io::Error::new(NO_DEVICE, message));
                }
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Mounts `source` of the kind `kind` at `path`, which is made if it is not there.
pub(super) fn mount_at(kind: &str, source: &str, path: &Path, flags: MountFlags, options: &str) -> io::Result<()> {
    let doing = || format!("cannot mount {kind} {source} at {path:?}");
    fs::create_dir_all(path).map_err(while_doing(doing()))?;
    let options = CString::new(OsStr::new(options).as_bytes())?;
    mount(source, path, kind, flags, options.as_c_str()).map_err(while_doing(doing()))
}
