//! The guest's mounts: those of the kernel, the root, and the shares; and leaving them in good order.

use std::{
    ffi::{CString, OsStr},
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::syncfs,
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, mount_move, unmount},
    process::{chdir, chroot},
};

use super::while_doing;
use crate::{
    protocol::{FromGuest, Mount, ShareChange, Task},
    snapshot::bus_of,
};

/// The root's lower layer, the memory of its upper one, and the two together; below the initramfs.
const LOWER: &str = "/layers/lower";
const MEMORY: &str = "/layers/memory";
const MERGED: &str = "/layers/merged";

/// Where a share and its layer are, until the two together are mounted; in the guest's own memory.
const LAYERS_OF_SHARE: &str = "/run/transom-layers";

/// The kind of the error if no device appears for a share.
pub(super) const NO_DEVICE: io::ErrorKind = io::ErrorKind::NotConnected;
/// A device that is plugged into the running machine appears within this time.
const APPEAR_MAX: Duration = Duration::from_secs(10);

/// The shares that are mounted, in order.
pub(super) struct Mounted(Vec<MountedShare>);

/// A share that is mounted.
struct MountedShare {
    path: PathBuf,
    /// The device number of its root, by which it is told from what else can be at `path`.
    device: u64,
}

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

/// Makes the task's root `/`.
pub(super) fn root(task: &Task) -> io::Result<()> {
    if let Some(tag) = &task.root_tag {
        overlay(tag, task.has_late_shares)?;
        kernel_file_systems(Path::new(MERGED))?;
        chdir(MERGED)?;
        mount_move(".", "/").map_err(while_doing("cannot move the root"))?;
        chroot(".")?;
        chdir("/")?;
    }
    Ok(())
}

/// Mounts the task's shares in its root and enters the working directory.
pub(super) fn shares(task: &Task) -> io::Result<Mounted> {
    let mount_each = |share| mount_share(share, task.has_late_shares);
    let mounted = task.mounts.iter().map(mount_each).collect::<io::Result<Vec<_>>>()?;
    let mounted = Mounted(mounted);
    mounted.check_visible()?;
    fs::create_dir_all(&task.directory)
        .and_then(|()| Ok(chdir(Path::new(&task.directory))?))
        .map_err(while_doing(format!("cannot enter {:?}", task.directory)))?;
    Ok(mounted)
}

impl Mounted {
    /// Writes everything back and unmounts; returns what went wrong, for a person to read.
    pub(super) fn leave(self) -> Vec<String> {
        let mut warnings = Vec::new();
        let _ = chdir("/");
        for MountedShare { path, .. } in self.0.iter().rev() {
            // An unmount reports no failed write-back, so ask first.
            let written = File::open(path).and_then(|folder| Ok(syncfs(folder)?));
            if let Err(error) = written {
                warnings.push(format!("cannot write back {path:?}: {error}"));
            }
            if let Err(error) = unmount(path, UnmountFlags::empty()) {
                warnings.push(format!("cannot unmount {path:?}: {error}"));
            }
        }
        warnings
    }
}

impl Mounted {
    /// Makes a change, and returns the report of it.
    pub(super) fn changed(&mut self, change: &ShareChange) -> FromGuest {
        FromGuest::ShareChanged { error: self.change(change).err().map(|error| error.to_string()) }
    }

    /// Mounts a share that was plugged in, or unmounts one and switches its device off.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing has changed. The device of a share that cannot be mounted is off then.
    fn change(&mut self, change: &ShareChange) -> io::Result<()> {
        match change {
            ShareChange::Mount { mount, port } => {
                let mounted = mount_share(mount, true).and_then(|share| match self.check_visible() {
                    Ok(()) => Ok(share),
                    Err(error) => unmount(&share.path, UnmountFlags::empty()).map_err(io::Error::from).and(Err(error)),
                });
                match mounted {
                    Ok(share) => self.0.push(share),
                    Err(error) => {
                        switch_off(*port);
                        return Err(error);
                    }
                }
                Ok(())
            }
            ShareChange::Unmount { path, port } => {
                let path = Path::new(path);
                File::open(path)
                    .and_then(|folder| Ok(syncfs(folder)?))
                    .map_err(while_doing(format!("cannot write back {path:?}")))?;
                unmount(path, UnmountFlags::empty()).map_err(|errno| match errno {
                    Errno::BUSY => io::Error::other(format!(
                        "the share at {path:?} is in use: a program in the machine has a file of it open, or its \
                         working directory there"
                    )),
                    errno => while_doing(format!("cannot unmount {path:?}"))(errno),
                })?;
                self.0.retain(|share| share.path != path);
                switch_off(*port);
                Ok(())
            }
        }
    }

    /// Checks that no share is hidden by another one: symbolic links of the root can lead two paths to one place.
    fn check_visible(&self) -> io::Result<()> {
        for share in &self.0 {
            if device(&share.path)? != share.device {
                return Err(io::Error::other(format!("the share at {:?} is hidden by another one", share.path)));
            }
        }
        Ok(())
    }
}

/// Switches the device in a port off, so that the host can take it out. The host sees whether that has worked.
fn switch_off(port: usize) {
    let place = format!("0000:{:02x}:00", bus_of(port));
    for slot in fs::read_dir("/sys/bus/pci/slots").into_iter().flatten().flatten() {
        let slot = slot.path();
        if fs::read_to_string(slot.join("address")).is_ok_and(|address| address.trim() == place) {
            let _ = fs::write(slot.join("power"), "0");
        }
    }
}

/// The share `tag`, read-only, under a layer in memory.
fn overlay(tag: &str, is_late: bool) -> io::Result<()> {
    mount_tag(tag, Path::new(LOWER), MountFlags::RDONLY, "", is_late)?;
    mount_at("tmpfs", "tmpfs", Path::new(MEMORY), MountFlags::empty(), "mode=755,size=80%")?;
    for folder in ["upper", "work"] {
        fs::create_dir(Path::new(MEMORY).join(folder))?;
    }
    let options = format!("lowerdir={LOWER},upperdir={MEMORY}/upper,workdir={MEMORY}/work");
    mount_at("overlay", "overlay", Path::new(MERGED), MountFlags::empty(), &options)
}

/// The share `lower`, read-only, under the layer in the share `layer`. Only the two together stay mounted.
///
/// The kernel keeps its notes in attributes of users, as it does on the host: an ordinary user's daemon can set no
/// others, and whoever reads the layer later finds the same.
fn layered(lower: &str, layer: &str, path: &Path, is_late: bool) -> io::Result<()> {
    let [of_lower, of_layer] = ["lower", "layer"].map(|name| Path::new(LAYERS_OF_SHARE).join(name));
    mount_tag(lower, &of_lower, MountFlags::RDONLY, "", is_late)?;
    mount_tag(layer, &of_layer, MountFlags::empty(), "", is_late)?;
    let (lower, layer) = (of_lower.display(), of_layer.display());
    let options = format!("userxattr,xino=on,lowerdir={lower},upperdir={layer}/upper,workdir={layer}/work");
    mount_at("overlay", "overlay", path, MountFlags::empty(), &options)?;
    for place in [&of_lower, &of_layer] {
        // The overlay has its own reference to it.
        unmount(place, UnmountFlags::DETACH).map_err(while_doing(format!("cannot detach {place:?}")))?;
    }
    fs::remove_dir_all(LAYERS_OF_SHARE)
}

fn mount_share(share: &Mount, is_late: bool) -> io::Result<MountedShare> {
    let path = PathBuf::from(&share.path);
    let flags = if share.is_read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let before = device(&path).ok();
    match &share.layer_tag {
        None => mount_tag(&share.tag, &path, flags, &share.options, is_late)?,
        Some(layer) => layered(&share.tag, layer, &path, is_late)?,
    }
    let device = device(&path)?;
    // A mount over the root of a process is invisible to it.
    if Some(device) == before {
        return Err(io::Error::other(format!("the share mounted at {path:?} is not visible there")));
    }
    Ok(MountedShare { path, device })
}

fn device(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|metadata| metadata.dev()).map_err(while_doing(format!("cannot see {path:?}")))
}

/// Mounts the share `tag`, whose device may appear later.
fn mount_tag(tag: &str, path: &Path, flags: MountFlags, options: &str, is_late: bool) -> io::Result<()> {
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
fn mount_at(kind: &str, source: &str, path: &Path, flags: MountFlags, options: &str) -> io::Result<()> {
    let doing = || format!("cannot mount {kind} {source} at {path:?}");
    fs::create_dir_all(path).map_err(while_doing(doing()))?;
    let options = CString::new(OsStr::new(options).as_bytes())?;
    mount(source, path, kind, flags, options.as_c_str()).map_err(while_doing(doing()))
}
