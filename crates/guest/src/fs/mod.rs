//! A share as a program sees it: paths, open files, a current directory, an identity.
//!
//! [`Fs`] is a handle: clones share the volume and its caches, and each has its own current directory and
//! [`Credentials`]. The server trusts the guest to check permissions, so they are checked here: by mode bits, and by
//! access control lists if the session has negotiated POSIX_ACL. Paths are bytes. A name that turns out to be stale is
//! looked up once more, without cached names, before the caller sees ESTALE.

mod acl;
mod credentials;
mod file;
mod metadata;
mod names;
mod open;
mod path;
mod permission;
mod read_dir;
mod remove_all;
mod walk;
mod xattr;

use alloc::{sync::Arc, vec::Vec};

use transom_wire::ops::statfs::StatfsOut;

use crate::{
    Errno, Platform,
    cache::CacheOptions,
    session::{Caller, Interrupt, Session},
    volume::{Inode, Volume},
};
use walk::Walk;

pub use credentials::Credentials;
pub use file::{File, SeekFrom};
pub use metadata::{FileType, Metadata};
pub use open::OpenOptions;
pub use read_dir::{DirEntry, ReadDir};

/// Maximum number of attempts to read a value that keeps growing.
const SIZED_TRIES: u32 = 16;

/// A share with a current directory and credentials.
pub struct Fs<P: Platform> {
    volume: Arc<Volume<P>>,
    /// The root, then each directory on the way to the current one, which is the last.
    current: Arc<[Arc<Inode<P>>]>,
    /// The names of these directories, except the root's.
    current_names: Arc<[Vec<u8>]>,
    credentials: Arc<Credentials>,
    interrupt: Option<Arc<Interrupt>>,
    queue: u16,
}

impl<P: Platform> Fs<P> {
    /// Creates a volume over a session, as root and with the shared directory as the current one. Sends nothing.
    pub fn mount(session: Session<P>, options: CacheOptions) -> Self {
        Self::new(Arc::new(Volume::new(session, options)))
    }

    /// Creates a handle to a volume, as root and with the shared directory as the current one.
    pub fn new(volume: Arc<Volume<P>>) -> Self {
        let current = Arc::from([Arc::clone(volume.root())]);
        Self { volume, current, current_names: Arc::default(), credentials: Arc::default(), interrupt: None, queue: 0 }
    }

    /// Returns the volume.
    pub fn volume(&self) -> &Arc<Volume<P>> {
        &self.volume
    }

    /// Returns a handle that differs in its credentials.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Self {
        Self { credentials: Arc::new(credentials), ..self.clone() }
    }

    /// Returns the credentials.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns a handle that uses another request queue, taken modulo the number of queues: one for each thread spreads
    /// the load.
    #[must_use]
    pub fn with_queue(&self, queue: u16) -> Self {
        Self { queue, ..self.clone() }
    }

    /// Returns a handle whose requests `interrupt` can end early; it follows one request at a time.
    #[must_use]
    pub fn with_interrupt(&self, interrupt: Arc<Interrupt>) -> Self {
        Self { interrupt: Some(interrupt), ..self.clone() }
    }

    /// Changes the current directory to `path`. Errors: ENOTDIR, EACCES.
    ///
    /// `..` leads back along the way that was taken, even after one of these directories was moved.
    pub fn set_current_dir(&mut self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        let (current, names) = self.walking(|walk| {
            walk.record();
            walk.follow(path.as_ref(), true)?;
            walk.check_directory()?;
            walk.check_searchable()?;
            Ok((walk.chain(), walk.names()))
        })?;
        (self.current, self.current_names) = (current, names.into());
        Ok(())
    }

    /// Returns size and free space of the file system that `path` is in.
    pub fn statfs(&self, path: impl AsRef<[u8]>) -> Result<StatfsOut, Errno> {
        let inode = self.find(path.as_ref(), true)?;
        self.volume.statfs(&self.caller(), &inode)
    }

    /// Makes all of the share durable.
    pub fn sync(&self) -> Result<(), Errno> {
        self.volume.syncfs(&self.caller())
    }

    /// Writes back dirty data and ends the session, for every handle. Later operations on open files fail. Errors:
    /// those of the channel.
    pub fn unmount(self) -> Result<(), Errno> {
        self.volume.unmount()
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        let Credentials { uid, gid, pid, umask, .. } = *self.credentials;
        let (queue, interrupt) = (self.queue, self.interrupt.as_deref());
        Caller { uid, gid, pid, group: None, umask, queue, interrupt, raised: None }
    }

    /// Resolves `path`. Follows a symbolic link at its end if `is_following`.
    fn find(&self, path: &[u8], is_following: bool) -> Result<Arc<Inode<P>>, Errno> {
        self.walking(|walk| {
            walk.follow(path, is_following)?;
            Ok(Arc::clone(walk.here()))
        })
    }

    /// Runs `act`, and once more without cached names if one was stale.
    fn walking<T>(&self, act: impl Fn(&mut Walk<'_, P>) -> Result<T, Errno>) -> Result<T, Errno> {
        match act(&mut Walk::new(self, false)) {
            Err(Errno::STALE) => act(&mut Walk::new(self, true)),
            result => result,
        }
    }

    /// Returns a list or value of unknown length. `read` fills the buffer that it is given, or measures if that is
    /// empty.
    fn read_sized(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
        for _ in 0..SIZED_TRIES {
            let mut bytes = alloc::vec![0; read(&mut [])?];
            if bytes.is_empty() {
                return Ok(bytes);
            }
            match read(&mut bytes) {
                // It has grown in the meantime.
                Err(Errno::RANGE) => continue,
                Err(error) => return Err(error),
                Ok(len) => {
                    bytes.truncate(len);
                    return Ok(bytes);
                }
            }
        }
        Err(Errno::RANGE)
    }
}

impl<P: Platform> Clone for Fs<P> {
    fn clone(&self) -> Self {
        Self {
            volume: Arc::clone(&self.volume),
            current: Arc::clone(&self.current),
            current_names: Arc::clone(&self.current_names),
            credentials: Arc::clone(&self.credentials),
            interrupt: self.interrupt.clone(),
            queue: self.queue,
        }
    }
}
