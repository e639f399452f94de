//! The shares of the guest: mounted at the start, added and removed while a machine runs, and left in good order.
//!
//! Each change has a thread of its own, because a mount, a write-back and an unmount take as long as the host's daemon
//! does. A removed share has no superblock any more, whoever has mounted it a second time: only then is its device
//! switched off, so that nothing that was written is lost ([`holders`] finds those who keep it).

mod holders;
mod stall;
mod superblock;

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, open, syncfs},
    io::Errno,
    mount::{MountFlags, UnmountFlags, unmount},
    process::chdir,
};

use self::{holders::Device, stall::Stall};
use super::{
    channels::Reports,
    mounts::{mount_at, mount_tag},
    while_doing,
};
use crate::{
    protocol::{FromGuest, Mount, ShareChange, Task},
    snapshot::bus_of,
};

/// Where a share and its layer are, until the two together are mounted; in the guest's own memory.
const LAYERS_OF_SHARE: &str = "/run/transom-layers";
/// How long the unmount of a share that was written back may take at the end.
const UNMOUNT_MAX: Duration = Duration::from_secs(20);

/// The shares that are mounted, in order. Not locked while anything is mounted, written back or unmounted.
pub(super) struct Mounted(Mutex<Vec<MountedShare>>);

/// A share that is mounted.
#[derive(Clone)]
struct MountedShare {
    tag: String,
    path: PathBuf,
    flags: MountFlags,
    /// The device number of its root, by which it is told from what else can be at `path`.
    device: Device,
}

/// Mounts the task's shares in its root and enters the working directory.
pub(super) fn mount_all(task: &Task) -> io::Result<Mounted> {
    let mount_each = |share| mount_share(share, task.has_late_shares);
    let mounted = Mounted(Mutex::new(task.mounts.iter().map(mount_each).collect::<io::Result<_>>()?));
    mounted.check_visible()?;
    fs::create_dir_all(&task.directory)
        .and_then(|()| Ok(chdir(Path::new(&task.directory))?))
        .map_err(while_doing(format!("cannot enter {:?}", task.directory)))?;
    Ok(mounted)
}

/// Makes a change in a thread of its own, which reports it.
pub(super) fn change(mounted: &Arc<Mounted>, number: u64, change: ShareChange, reports: Reports) {
    let mounted = Arc::clone(mounted);
    thread::spawn(move || {
        let error = mounted.change(&change).err().map(|error| error.to_string());
        // Without the host the machine ends.
        let _ = reports.send(&FromGuest::ShareChanged { number, error });
    });
}

impl Mounted {
    /// Writes everything back and unmounts; returns what went wrong, for a person to read. A share whose daemon does
    /// not answer keeps no other from it, and is given up once nothing more is written.
    pub(super) fn leave(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let _ = chdir("/");
        let shares = std::mem::take(&mut *self.lock());
        // An unmount reports no failed write-back, so ask first.
        let all = shares.into_iter().rev().map(|MountedShare { path, .. }| {
            let written = in_thread({
                let path = path.clone();
                move || write_back(&path)
            });
            (path, written)
        });
        let mut stall = Stall::new();
        for (path, written) in all.collect::<Vec<_>>() {
            let flags = match stall.wait(&written) {
                Some(Ok(())) => UnmountFlags::empty(),
                Some(Err(error)) => {
                    warnings.push(format!("cannot write back {path:?}: {error}"));
                    UnmountFlags::empty()
                }
                None => {
                    warnings.push(format!(
                        "cannot write back {path:?}: its daemon has taken nothing for {} s",
                        stall::GIVEN_UP_AFTER.as_secs()
                    ));
                    // Those that it is mounted in can be unmounted then.
                    UnmountFlags::DETACH
                }
            };
            let unmounted = in_thread({
                let path = path.clone();
                move || unmount(path, flags)
            });
            match unmounted.recv_timeout(UNMOUNT_MAX) {
                // A removal that was under way has done it.
                Ok(Ok(()) | Err(Errno::INVAL)) => {}
                Ok(Err(error)) => warnings.push(format!("cannot unmount {path:?}: {error}")),
                Err(_) => warnings.push(format!("cannot unmount {path:?}: its daemon does not answer")),
            }
        }
        warnings
    }

    /// Mounts a share that was plugged in, or unmounts one and switches its device off.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing has changed. The device of a share that cannot be mounted is off then.
    fn change(&self, change: &ShareChange) -> io::Result<()> {
        match change {
            ShareChange::Mount { mount, port } => {
                let mounted = mount_share(mount, true).and_then(|share| match self.check_visible() {
                    Ok(()) => Ok(share),
                    Err(error) => unmount(&share.path, UnmountFlags::empty()).map_err(io::Error::from).and(Err(error)),
                });
                match mounted {
                    Ok(share) => self.lock().push(share),
                    Err(error) => {
                        switch_off(*port);
                        return Err(error);
                    }
                }
            }
            ShareChange::Unmount { tag, port, is_forced } => {
                let gone = || io::Error::other("the share is not mounted any more");
                match is_forced {
                    // It is off the list before it is asked for anything: nothing waits for a daemon that hangs.
                    true => self.take(tag).ok_or_else(gone)?.detach(),
                    false => {
                        let listed = || self.lock().iter().find(|share| share.tag == *tag).cloned();
                        listed().ok_or_else(gone)?.unmount(|| listed().is_some())?;
                        // By force, it was removed meanwhile, and its port may have another one.
                        self.take(tag).ok_or_else(gone)?;
                    }
                }
                switch_off(*port);
            }
        }
        Ok(())
    }

    /// Checks that no share is hidden by another one: symbolic links of the root can lead two paths to one place.
    fn check_visible(&self) -> io::Result<()> {
        let shares = self.lock().clone();
        for share in &shares {
            if Device::at(&share.path)? != share.device {
                return Err(io::Error::other(format!("the share at {:?} is hidden by another one", share.path)));
            }
        }
        Ok(())
    }

    /// Takes a share off the list.
    fn take(&self, tag: &str) -> Option<MountedShare> {
        let mut shares = self.lock();
        let at = shares.iter().position(|share| share.tag == tag)?;
        Some(shares.remove(at))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<MountedShare>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MountedShare {
    /// Writes everything back and unmounts, unless somebody else holds the share. `stays` says whether nobody has
    /// removed it by force meanwhile.
    ///
    /// # Errors
    ///
    /// Names those who hold the share, which stays mounted.
    fn unmount(&self, stays: impl Fn() -> bool) -> io::Result<()> {
        let Self { path, device, .. } = self;
        let in_use = |holders: &[String]| {
            let who = if holders.is_empty() { "something that no process shows".into() } else { holders.join("; ") };
            io::Error::other(format!("the share at {path:?} is in use: {who}"))
        };
        let others = holders::other_mounts(*device, path);
        if !others.is_empty() {
            return Err(in_use(&others));
        }
        // Somebody in the guest may have unmounted it already.
        let is_there = || Device::at(path).is_ok_and(|there| there == *device);
        if is_there() {
            write_back(path).map_err(while_doing(format!("cannot write back {path:?}")))?;
        }
        // That may take long: by force, it was removed meanwhile, and another one may be there.
        if is_there() {
            match unmount(path, UnmountFlags::empty()) {
                Ok(()) => {}
                Err(Errno::BUSY) => return Err(in_use(&holders::users(*device))),
                Err(errno) => return Err(while_doing(format!("cannot unmount {path:?}"))(errno)),
            }
        }
        match device.is_held() {
            Ok(false) => Ok(()),
            // Mounts that processes show are all that can be seen there.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            // The caller finds that it is gone.
            _ if !stays() => Ok(()),
            held => {
                // It has the superblock that is still there, and what its holders have written.
                mount_tag(&self.tag, path, self.flags, "", false)?;
                held.map_err(while_doing("cannot see whether the share is still held"))?;
                Err(in_use(&[holders::other_mounts(*device, path), holders::users(*device)].concat()))
            }
        }
    }

    /// Takes the share from all who hold it, and writes back what has been written so far: the device goes next. Its
    /// path is free at once, whether the daemon answers or not.
    fn detach(&self) {
        // Asks no daemon, and what it keeps is not torn down by the unmount.
        let root = open(&self.path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        // Somebody in the guest may have unmounted it already.
        if Device::at(&self.path).is_ok_and(|there| there == self.device) {
            let _ = unmount(&self.path, UnmountFlags::DETACH);
            // What cannot be written back is lost, and the caller wants that.
            let _ = root.map(|root| write_back(Path::new(&format!("/proc/self/fd/{}", root.as_raw_fd()))));
        }
    }
}

/// Returns what `work` will return, from a thread of its own.
fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    // Whoever waits may have given up.
    thread::spawn(move || drop(sender.send(work())));
    receiver
}

fn write_back(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|folder| Ok(syncfs(folder)?))
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

fn mount_share(share: &Mount, is_late: bool) -> io::Result<MountedShare> {
    let path = PathBuf::from(&share.path);
    let flags = if share.is_read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let before = Device::at(&path).ok();
    match &share.layer_tag {
        None => mount_tag(&share.tag, &path, flags, &share.options, is_late)?,
        Some(layer) => mount_layered(&share.tag, layer, &path, is_late)?,
    }
    let device = Device::at(&path)?;
    // A mount over the root of a process is invisible to it.
    if Some(device) == before {
        return Err(io::Error::other(format!("the share mounted at {path:?} is not visible there")));
    }
    Ok(MountedShare { tag: share.tag.clone(), path, flags, device })
}

/// Mounts the share `lower`, read-only, under the layer in the share `layer`. Only the two together stay mounted.
///
/// The kernel keeps its notes in attributes of users, as it does on the host: an ordinary user's daemon can set no
/// others, and whoever reads the layer later finds the same.
fn mount_layered(lower: &str, layer: &str, path: &Path, is_late: bool) -> io::Result<()> {
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
