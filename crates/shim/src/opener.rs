//! Answers the user's requests for views and guards.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, fcntl_getfl, fstat, openat, statx},
    io::Errno,
};

use crate::{
    Step, backing,
    channel::{self, Message, Received},
    guards::{GuardId, Guards},
    listener::User,
    nodes::{HostFile, Nodes},
};

/// Makes views. The file system's server must run in another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener<'a> {
    /// `/dev/fuse`.
    pub(crate) device: &'a OwnedFd,
    /// The root directory of the file system.
    pub(crate) root: &'a OwnedFd,
    pub(crate) nodes: &'a Nodes,
}

impl Opener<'_> {
    /// Answers requests until the other end of `socket` is closed, and records their sender in `user`. Blocks.
    pub(crate) fn serve(&self, socket: &OwnedFd, guards: &mut Guards, user: &User) -> Result<(), Errno> {
        while let Some(Received { message, fd, sender }) = channel::receive(socket)? {
            if let Some(sender) = sender {
                user.set(sender);
            }
            let answer = match (message, fd) {
                // From here on, the kernel keeps the file open.
                (Message::View, Some(file)) => self.view(file.as_fd()).map(|view| (Message::Ready, Some(view))),
                (Message::Guard, Some(file)) => guard(guards, file).map(|id| (Message::Guarded { id }, None)),
                (Message::Unguard { id }, None) => guards.remove(id).map(|()| (Message::Ready, None)),
                // A descriptor was sent, but this process has too many open.
                (Message::View | Message::Guard, None) => Err(Errno::MFILE),
                _ => return Err(Errno::BADMSG),
            };
            match answer {
                Ok((message, fd)) => channel::send(socket, message, fd.as_ref().map(AsFd::as_fd))?,
                Err(errno) => channel::send(socket, Message::Failed { step: Step::Probe, errno }, None)?,
            }
        }
        Ok(())
    }

    /// Makes a view of `file`.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if it is not a regular file, and EACCES if it is not open for reading and for writing at any
    /// offset.
    pub(crate) fn view(&self, file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let file_id = check(file)?;
        let nodeid = match self.nodes.hold_file(file_id) {
            Some(nodeid) => nodeid,
            None => self.nodes.insert(file_id, backing::open(self.device, file)?),
        };
        let view =
            openat(self.root, nodeid.to_string(), OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
        self.nodes.release(nodeid);
        view
    }
}

/// Guards `file`.
///
/// # Errors
///
/// Returns EINVAL if it is not a regular file, and the errors of fanotify_mark(2).
fn guard(guards: &mut Guards, file: OwnedFd) -> Result<GuardId, Errno> {
    let Stat { st_dev, st_ino, st_mode, .. } = fstat(&file)?;
    if FileType::from_raw_mode(st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    guards.insert(HostFile { dev: st_dev, ino: st_ino }, file)
}

/// Checks that the sender's descriptor permits what a view permits, because the kernel opens the file again for reading
/// and writing without checking permissions.
fn check(file: BorrowedFd<'_>) -> Result<HostFile, Errno> {
    let Stat { st_dev, st_ino, st_mode, .. } = fstat(file)?;
    if FileType::from_raw_mode(st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let flags = fcntl_getfl(file)?;
    if flags & OFlags::RWMODE != OFlags::RDWR || flags.intersects(OFlags::PATH | OFlags::APPEND) {
        return Err(Errno::ACCESS);
    }
    let attributes = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?.stx_attributes;
    if attributes.intersects(StatxAttributes::APPEND | StatxAttributes::IMMUTABLE) {
        return Err(Errno::ACCESS);
    }
    Ok(HostFile { dev: st_dev, ino: st_ino })
}
