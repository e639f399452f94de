//! Mounts a share on this machine: the kernel's FUSE client is the guest of a virtio-fs daemon.
//!
//! Messages go from `/dev/fuse` over virtqueues to the daemon and back. Each thread is a [`worker`] with its own
//! descriptor of `/dev/fuse`, request queue, and [`slots`] in memory shared with the daemon. FORGET and INTERRUPT of
//! all threads go through the high-priority queue ([`hiprio`]). [`startup`] puts a mount together, [`connection`] is
//! how it ends.
//!
//! ```no_run
//! use transom_mount::{Mount, Options};
//! use transom_user::share::Share;
//!
//! let share = Share::builder().shared_dir("/srv/share");
//! let mut mount = Mount::start(share, "/mnt", Options::default())?;
//! println!("{}", std::fs::read_dir("/mnt")?.count());
//! mount.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backlog;
mod coherence;
mod connection;
mod daemon_client;
mod error;
mod event_waiter;
mod forgets;
mod fuse_device;
mod fuse_devices;
mod hiprio;
mod init;
mod lone_caller;
mod mount_point;
mod mount_state;
mod negotiate;
mod notification;
mod notify;
mod options;
mod passthrough;
mod queues;
mod reconnect;
mod reply_body;
mod reply_out;
mod reply_room;
mod request;
mod request_in;
mod request_queue;
mod slots;
mod startup;
#[cfg(test)]
mod testing;
mod worker;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use parking_lot::Mutex;
use transom_user::share::Builder;

use mount_point::{MountPoint, UnmountMode};
use mount_state::MountState;
use startup::PendingConnection;

pub use error::{MountEnd, MountError};
pub use negotiate::InitError;
pub use notification::Stale;
pub use notify::Notifier;
pub use options::{OptionError, Options};
pub use passthrough::{PassthroughCounts, PassthroughObstacle};
pub use reconnect::IncompatibleDaemon;

/// A mounted share.
///
/// Dropping it detaches the mount at once and ends it: whoever still uses it gets ENOTCONN.
pub struct Mount {
    stopper: Stopper,
    path: PathBuf,
    /// The number of workers.
    workers: usize,
    threads: Vec<JoinHandle<()>>,
}

/// Ends a mount from another thread than the one that waits for it.
#[derive(Clone)]
pub struct Stopper {
    state: Arc<MountState>,
    /// `None` once it is unmounted or left mounted. Locked while it is unmounted, which needs the mount's threads: they
    /// never take this lock.
    mount_point: Arc<Mutex<Option<MountPoint>>>,
}

impl Mount {
    /// Mounts the share of `source` at `mountpoint`, and returns once it can be used.
    ///
    /// Of the builder, the share, the daemon and the number of queues are used; the mount has its own memory. Root
    /// mounts with mount(2), everybody else with `fusermount3`. Blocks while daemon and kernel negotiate, with a bound.
    /// With [`Options::reconnect`], relative paths are resolved now.
    ///
    /// # Errors
    /// As [`MountError`] says. Nothing stays mounted.
    pub fn start(source: Builder, mountpoint: impl AsRef<Path>, options: Options) -> Result<Self, MountError> {
        if options.passthrough && options.reconnect.is_some() {
            return Err(MountError::PassthroughWithReconnect);
        }
        if options.coherent && options.passthrough {
            return Err(MountError::CoherentWithPassthrough);
        }
        if options.coherent && options.reconnect.is_some() {
            return Err(MountError::CoherentWithReconnect);
        }
        check_kinds(&source, mountpoint.as_ref())?;
        let source = match options.reconnect {
            Some(_) => reconnect::ensure_reachable(source, mountpoint.as_ref())?,
            None => source,
        };
        let connection = PendingConnection::connect(&source, &options)?;
        let name = mount_point::source_name(source.source_path());
        let (mount_point, device) = MountPoint::mount(mountpoint.as_ref(), &name, &options)?;
        // From here on, an error unmounts it.
        connection.start(mount_point, device, source, options)
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a handle that invalidates what the kernel has cached.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::downgrade(self.state()))
    }

    /// Returns the number of threads that carry requests. Each has a request queue.
    pub fn threads(&self) -> usize {
        self.workers
    }

    /// Returns the process id of the daemon that was started for the mount, if there is one.
    pub fn daemon_id(&self) -> Option<u32> {
        self.state().connection()?.device.daemon_id()
    }

    /// Returns why the mount has ended, if it has.
    pub fn cause(&self) -> Option<MountEnd> {
        self.state().cause()
    }

    /// Returns how files were opened so far, with [`Options::passthrough`].
    ///
    /// # Errors
    /// Why no file is passed through. All are then served by requests.
    pub fn passthrough(&self) -> Result<PassthroughCounts, PassthroughObstacle> {
        let Some(connection) = self.state().connection() else { return Ok(PassthroughCounts::default()) };
        let passthrough = &connection.passthrough;
        passthrough.obstacle().map_or_else(|| Ok(passthrough.counts()), Err)
    }

    fn state(&self) -> &Arc<MountState> {
        &self.stopper.state
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(MountError::Threads)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Blocks until the mount ends, and returns why.
    pub fn wait(&mut self) -> MountEnd {
        self.threads.drain(..).for_each(|thread| {
            // A thread that panicked has ended the mount too.
            let _ = thread.join();
        });
        let end = self.state().cause().unwrap_or(MountEnd::Stopped);
        self.state().end(end);
        if end != MountEnd::Unmounted {
            return end;
        }
        // Waits for a concurrent unmount of this process. `umount -f` ends the connection as an unmount does, even if
        // it then fails to unmount.
        let mut mount_point = self.stopper.mount_point.lock();
        if mount_point.as_ref().is_some_and(MountPoint::is_mounted) {
            return MountEnd::Aborted;
        }
        *mount_point = None;
        end
    }

    /// Unmounts it, and returns once all threads have ended.
    ///
    /// # Errors
    /// EBUSY while somebody uses it, and the errors of umount(2) and `fusermount3`. It then stays mounted.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.stopper.unmount()?;
        self.wait();
        Ok(())
    }

    /// Returns a handle for threads that do not have the mount.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Keeps the mount point mounted when this is dropped.
    ///
    /// A share that has ended then answers ENOTCONN, and nobody mistakes the directory underneath for it.
    pub fn stay(&mut self) {
        *self.stopper.mount_point.lock() = None;
    }
}

impl Stopper {
    /// Unmounts it.
    ///
    /// # Errors
    /// EBUSY while somebody uses it, and the errors of umount(2) and `fusermount3`. It then stays mounted.
    pub fn unmount(&self) -> io::Result<()> {
        self.leave(UnmountMode::Normal)
    }

    /// Detaches the mount point at once. The mount ends when nobody uses it any more; [`Mount::wait`] waits for that.
    ///
    /// # Errors
    /// Those of umount(2) and `fusermount3`. It then stays mounted.
    pub fn detach(&self) -> io::Result<()> {
        self.leave(UnmountMode::Lazy)
    }

    /// Ends the mount and keeps the mount point: all requests fail until somebody unmounts it.
    pub fn abort(&self) {
        self.state.end(MountEnd::Stopped);
    }

    fn leave(&self, mode: UnmountMode) -> io::Result<()> {
        let mut mount_point = self.mount_point.lock();
        if let Some(mounted) = &*mount_point {
            mounted.unmount(mode)?;
            *mount_point = None;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.state().cause() != Some(MountEnd::Unmounted)
            && let Err(error) = self.stopper.detach()
        {
            tracing::warn!(path = ?self.path, %error, "cannot unmount: the share stays mounted and answers ENOTCONN");
        }
        self.stopper.abort();
        self.wait();
    }
}

/// Checks that a directory is mounted on a directory and a file on a file. A path that cannot be examined is not an
/// error here.
fn check_kinds(source: &Builder, mountpoint: &Path) -> Result<(), MountError> {
    let Some(shared) = source.source_path().filter(|_| source.starts_daemon()) else { return Ok(()) };
    let (Ok(shared_stat), Ok(mountpoint_stat)) = (fs::metadata(shared), fs::metadata(mountpoint)) else {
        return Ok(());
    };
    let is_dir = shared_stat.is_dir();
    if is_dir == mountpoint_stat.is_dir() {
        return Ok(());
    }
    Err(MountError::Kind { shared: shared.to_owned(), mountpoint: mountpoint.to_owned(), is_dir })
}
