//! A share mounted on this machine: the kernel's own FUSE client is the guest of a virtio-fs daemon.
//!
//! Messages go from `/dev/fuse` over real virtqueues to the daemon and back as they are. Each thread is a [`lane`] with a
//! clone of `/dev/fuse`, a request queue and [`slots`] in the memory shared with the daemon; FORGET and INTERRUPT go by
//! the high-priority queue of all ([`priority`]). [`shared`] is how a mount ends, [`attach`] how it comes into the tree.
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

mod answers;
mod attach;
mod backlog;
mod company;
mod forgets;
mod init;
mod kernel;
mod lane;
mod negotiate;
mod notify;
mod options;
mod parts;
mod passthrough;
mod priority;
mod queues;
mod reconnect;
mod reply_room;
mod served;
mod shared;
mod single;
mod sleep;
mod slots;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use parking_lot::Mutex;
use thiserror::Error;
use transom_guest::device::DeviceError;

use attach::{Force, Place};
use parts::Parts;
use served::Served;
use transom_user::share::{Builder, ShareError};

pub use negotiate::InitError;
pub use notify::{Notifier, Stale};
pub use options::{OptionError, Options};
pub use passthrough::{Obstacle, PassthroughCounts};
pub use reconnect::Unfit;

/// A share in the tree of directories, until this is dropped.
///
/// Dropping it takes it out of the tree at once and ends it: whoever still uses it gets ENOTCONN.
pub struct Mount {
    stopper: Stopper,
    path: PathBuf,
    /// Threads that carry requests.
    lanes: usize,
    threads: Vec<JoinHandle<()>>,
}

/// Ends a mount that somebody else waits for.
#[derive(Clone)]
pub struct Stopper {
    served: Arc<Served>,
    /// Absent once it is unmounted or left alone. Held while it is unmounted, which takes answers of the mount's threads: they
    /// do not use it.
    place: Arc<Mutex<Option<Place>>>,
}

/// Why a mount has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum End {
    /// Somebody has unmounted it.
    #[error("it was unmounted")]
    Unmounted,
    /// Somebody has ended the connection, and left the place in the tree.
    #[error("the connection was aborted from outside, by /sys/fs/fuse/connections or `umount -f`")]
    Aborted,
    /// This process ended it.
    #[error("it was stopped")]
    Stopped,
    /// The daemon has closed the connection, or died.
    #[error("the daemon is gone")]
    Gone,
    /// The daemon does what no device may, and is not talked to any more.
    #[error("the daemon broke the protocol: {0}")]
    Broken(&'static str),
    /// A system call of this side has failed.
    #[error("the kernel refuses: {0}")]
    Kernel(rustix::io::Errno),
}

impl End {
    /// What the failure of reading a request says.
    fn of_reading(errno: rustix::io::Errno) -> Self {
        match errno {
            rustix::io::Errno::NODEV => Self::Unmounted,
            rustix::io::Errno::CONNABORTED => Self::Aborted,
            errno => Self::Kernel(errno),
        }
    }
}

/// Why a share is not mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// There is no share.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The daemon's device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no memory for requests.
    #[error("cannot make memory to share with the daemon")]
    Memory(#[source] io::Error),
    /// It cannot be mounted there.
    #[error("cannot mount at {path:?}")]
    Place {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Kernel and daemon do not come together.
    #[error(transparent)]
    Init(#[from] InitError),
    /// This system's fault.
    #[error("cannot start the mount's threads")]
    Threads(#[source] io::Error),
    /// A daemon that is to take the place of another one cannot.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// What a later daemon needs would be hidden by the mount itself.
    #[error(
        "{path:?} cannot be reached once {mountpoint:?} is mounted on: with reconnect, mount elsewhere than at or above it"
    )]
    Hidden {
        /// The shared directory, the socket or the daemon's program.
        path: PathBuf,
        /// Where it was to be mounted.
        mountpoint: PathBuf,
    },
    /// A directory is mounted on directories, a file on files.
    #[error("{shared:?} is {}, and {mountpoint:?} is not", if *.is_dir { "a directory" } else { "a file" })]
    Kind {
        /// What is shared.
        shared: PathBuf,
        /// Where it was to be mounted.
        mountpoint: PathBuf,
        /// Whether a directory is shared.
        is_dir: bool,
    },
    /// Both were asked for.
    #[error(
        "passthrough and reconnect do not go together: a file that is passed through stays the one that was opened, \
         whatever a new daemon finds at its name"
    )]
    Apart,
}

impl Mount {
    /// Mounts the share of `source` at `mountpoint`, and returns once it can be used.
    ///
    /// Of the builder, the share, the daemon and the number of queues count; the memory is this module's own. With root it
    /// mounts by itself, else through `fusermount3`. Blocks while daemon and kernel negotiate, with a bound.
    /// With [`Options::reconnect`] relative paths stay what they are now, wherever this process goes later.
    pub fn start(source: Builder, mountpoint: impl AsRef<Path>, options: Options) -> Result<Self, MountError> {
        if options.passthrough && options.reconnect.is_some() {
            return Err(MountError::Apart);
        }
        check_kinds(&source, mountpoint.as_ref())?;
        let source = match options.reconnect {
            Some(_) => reconnect::reachable(source, mountpoint.as_ref())?,
            None => source,
        };
        let parts = Parts::connect(&source, &options)?;
        let name = attach::source_name(source.source_path());
        let (place, kernel) = Place::mount(mountpoint.as_ref(), &name, &options)?;
        // From here on `Mount` takes it out of the tree again.
        parts.run(place, kernel, source, options)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the kernel what it must not believe any more.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::downgrade(self.served()))
    }

    /// Requests queues, and threads, that it has.
    pub fn threads(&self) -> usize {
        self.lanes
    }

    /// The process id of the daemon that was started for it, while there is one.
    pub fn daemon_id(&self) -> Option<u32> {
        self.served().shared()?.device.daemon_id()
    }

    /// Why it has ended, if it has.
    pub fn cause(&self) -> Option<End> {
        self.served().cause()
    }

    /// Opens so far of a mount with [`Options::passthrough`].
    ///
    /// Errors: why nothing is passed through, and all is served by requests.
    pub fn passthrough(&self) -> Result<PassthroughCounts, Obstacle> {
        let Some(shared) = self.served().shared() else { return Ok(PassthroughCounts::default()) };
        shared.passthrough.obstacle().map_or_else(|| Ok(shared.passthrough.counts()), Err)
    }

    fn served(&self) -> &Arc<Served> {
        &self.stopper.served
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(MountError::Threads)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Blocks until it ends, and returns why.
    pub fn wait(&mut self) -> End {
        self.threads.drain(..).for_each(|thread| {
            // A thread that has panicked has ended the mount as well as any other way.
            let _ = thread.join();
        });
        let end = self.served().cause().unwrap_or(End::Stopped);
        self.served().end(end);
        if end != End::Unmounted {
            return end;
        }
        // Waits for whoever unmounts it here. `umount -f` ends the connection as if it was unmounted, also where it then fails.
        let mut place = self.stopper.place.lock();
        if place.as_ref().is_some_and(Place::is_in_tree) {
            return End::Aborted;
        }
        *place = None;
        end
    }

    /// Unmounts it, and returns when all is over.
    ///
    /// Errors: EBUSY while somebody uses it, and what umount(2) or `fusermount3` say; it then goes on.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.stopper.unmount()?;
        self.wait();
        Ok(())
    }

    /// For threads that do not have the mount.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Leaves the place in the tree as it is when this is dropped; a share that has ended stays there and answers ENOTCONN,
    /// rather than let what lies beneath be taken for it.
    pub fn stay(&mut self) {
        *self.stopper.place.lock() = None;
    }
}

impl Stopper {
    /// Unmounts it. Errors: EBUSY while somebody uses it, and what umount(2) or `fusermount3` say; it then goes on.
    pub fn unmount(&self) -> io::Result<()> {
        self.leave(Force::None)
    }

    /// Takes it out of the tree at once; it ends when nobody uses it any more, which [`Mount::wait`] waits for.
    pub fn detach(&self) -> io::Result<()> {
        self.leave(Force::Lazy)
    }

    /// Ends it where it is: every request that waits and every later one fails, until somebody unmounts it.
    pub fn abort(&self) {
        self.served.end(End::Stopped);
    }

    fn leave(&self, force: Force) -> io::Result<()> {
        let mut place = self.place.lock();
        if let Some(there) = &*place {
            there.unmount(force)?;
            *place = None;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.served().cause() != Some(End::Unmounted)
            && let Err(error) = self.stopper.detach()
        {
            tracing::warn!(path = ?self.path, %error, "the share stays in the tree, and is not served any more");
        }
        self.stopper.abort();
        self.wait();
    }
}

/// Errors: what is shared is a directory and `mountpoint` is a file, or the other way round. What cannot be looked at is left to
/// those that use it.
fn check_kinds(source: &Builder, mountpoint: &Path) -> Result<(), MountError> {
    let Some(shared) = source.source_path().filter(|_| source.starts_daemon()) else { return Ok(()) };
    let (Ok(of_shared), Ok(of_place)) = (fs::metadata(shared), fs::metadata(mountpoint)) else { return Ok(()) };
    let is_dir = of_shared.is_dir();
    if is_dir == of_place.is_dir() {
        return Ok(());
    }
    Err(MountError::Kind { shared: shared.to_owned(), mountpoint: mountpoint.to_owned(), is_dir })
}
