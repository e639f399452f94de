//! A share as a program sees it: paths, open files, a current directory, an identity.
//!
//! [`Fs`] is a handle: clones share the volume and its caches, and each has a current directory and [`Credentials`] of
//! its own. A server serves whoever the guest let through, so permissions are checked here: by mode bits, and by access
//! control lists where the session has settled POSIX_ACL. Paths are bytes. A name that turns out to be stale is looked
//! up once more, without what was kept, before anybody is told ESTALE.

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

/// So often something is read that is longer each time than it just was.
const SIZED_TRIES: u32 = 16;

/// A share, a current directory in it, and who asks.
pub struct Fs<P: Platform> {
    volume: Arc<Volume<P>>,
    /// The root, then each directory on the way to the current one, which is the last.
    current: Arc<[Arc<Inode<P>>]>,
    /// Their names, of which the root has none.
    current_names: Arc<[Vec<u8>]>,
    credentials: Arc<Credentials>,
    interrupt: Option<Arc<Interrupt>>,
    queue: u16,
}

impl<P: Platform> Fs<P> {
    /// Takes a session into use, as root and with the shared directory as the current one. Sends nothing.
    pub fn mount(session: Session<P>, options: CacheOptions) -> Self {
        Self::new(Arc::new(Volume::new(session, options)))
    }

    /// A handle to a volume, as root and with the shared directory as the current one.
    pub fn new(volume: Arc<Volume<P>>) -> Self {
        let current = Arc::from([Arc::clone(volume.root())]);
        Self { volume, current, current_names: Arc::default(), credentials: Arc::default(), interrupt: None, queue: 0 }
    }

    /// The volume underneath.
    pub fn volume(&self) -> &Arc<Volume<P>> {
        &self.volume
    }

    /// The same for somebody else.
    #[must_use]
    pub fn with_credentials(&self, credentials: Credentials) -> Self {
        Self { credentials: Arc::new(credentials), ..self.clone() }
    }

    /// Who asks.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The same by another request queue, taken modulo the number that there are: one for each thread spreads the load.
    #[must_use]
    pub fn with_queue(&self, queue: u16) -> Self {
        Self { queue, ..self.clone() }
    }

    /// The same with requests that `interrupt` ends early; it follows one request at a time.
    #[must_use]
    pub fn with_interrupt(&self, interrupt: Arc<Interrupt>) -> Self {
        Self { interrupt: Some(interrupt), ..self.clone() }
    }

    /// Makes the directory `path` the one that relative paths begin at. Errors: ENOTDIR, EACCES.
    ///
    /// `..` leads back along the way that was taken to it, also after one of these directories was moved.
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

    /// Size and free space of the file system that `path` is in.
    pub fn statfs(&self, path: impl AsRef<[u8]>) -> Result<StatfsOut, Errno> {
        let inode = self.find(path.as_ref(), true)?;
        self.volume.statfs(&self.caller(), &inode)
    }

    /// Makes all of the share durable.
    pub fn sync(&self) -> Result<(), Errno> {
        self.volume.syncfs(&self.caller())
    }

    /// Writes back and ends the session, for every handle. What is still open fails from then on. Errors: those of the
    /// channel.
    pub fn unmount(self) -> Result<(), Errno> {
        self.volume.unmount()
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        let Credentials { uid, gid, pid, umask, .. } = *self.credentials;
        Caller { uid, gid, pid, group: None, umask, queue: self.queue, interrupt: self.interrupt.as_deref() }
    }

    /// What `path` leads to, through a symbolic link at its end too where `is_following`.
    fn find(&self, path: &[u8], is_following: bool) -> Result<Arc<Inode<P>>, Errno> {
        self.walking(|walk| {
            walk.follow(path, is_following)?;
            Ok(Arc::clone(walk.here()))
        })
    }

    /// Runs `act`, and once more without kept names where one was stale.
    fn walking<T>(&self, act: impl Fn(&mut Walk<'_, P>) -> Result<T, Errno>) -> Result<T, Errno> {
        match act(&mut Walk::new(self, false)) {
            Err(Errno::STALE) => act(&mut Walk::new(self, true)),
            result => result,
        }
    }

    /// The bytes of a list or value of unknown length, which `read` puts into a room or, without one, measures.
    fn read_sized(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
        for _ in 0..SIZED_TRIES {
            let mut bytes = alloc::vec![0; read(&mut [])?];
            if bytes.is_empty() {
                return Ok(bytes);
            }
            match read(&mut bytes) {
                // It has grown meanwhile.
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
