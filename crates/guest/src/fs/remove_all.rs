//! Recursive removal of a directory.
//!
//! Descends by inode, not by path: a name that is replaced with a symbolic link in the meantime does not lead
//! elsewhere.

use alloc::{sync::Arc, vec, vec::Vec};

use super::{
    Fs,
    names::dir_name,
    path,
    permission::{EXECUTE, READ},
};
use crate::{
    Errno, Platform,
    session::Caller,
    volume::{DirectoryStream, Inode},
};

/// Maximum depth: that of the longest path. The server could report any depth.
const DEPTH_MAX: usize = 2048;

/// A directory that is being emptied.
struct Level<P: Platform> {
    parent: Arc<Inode<P>>,
    name: Vec<u8>,
    directory: Arc<Inode<P>>,
    stream: DirectoryStream<P>,
}

impl<P: Platform> Fs<P> {
    /// Removes a directory and its contents; does not follow symbolic links. What was removed before an error stays
    /// removed.
    ///
    /// Errors: ENOTDIR, EINVAL for `.`, ENOTEMPTY for `..`, EBUSY for the root, ENAMETOOLONG if it is deeper than any
    /// path.
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        let top = self.walking(|walk| {
            let name = dir_name(walk.follow_to_parent(path.as_ref())?)?;
            let directory = walk.look(name)?;
            self.enter(&walk.caller, walk.here(), name.as_bytes(), directory)
        })?;
        let caller = self.caller();
        let mut levels = vec![top];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { return Ok(()) };
            match self.volume.readdir(&caller, &mut level.stream)? {
                Some(entry) if matches!(&*entry.name, b"." | b"..") => {}
                Some(entry) => {
                    let name = path::name(&entry.name)?;
                    let inode = self.volume.lookup(&caller, &level.directory, name)?;
                    if !inode.is_directory() {
                        self.check_removing(&caller, &level.directory, &inode)?;
                        self.volume.unlink(&caller, &level.directory, name)?;
                    } else if depth < DEPTH_MAX {
                        let inner = self.enter(&caller, &level.directory, &entry.name, inode)?;
                        levels.push(inner);
                    } else {
                        return Err(Errno::NAMETOOLONG);
                    }
                }
                None => {
                    let Some(Level { parent, name, directory, stream }) = levels.pop() else { return Ok(()) };
                    drop(stream);
                    self.check_removing(&caller, &parent, &directory)?;
                    self.volume.rmdir(&caller, &parent, path::name(&name)?)?;
                }
            }
        }
    }

    fn enter(
        &self,
        caller: &Caller<'_>,
        parent: &Arc<Inode<P>>,
        name: &[u8],
        directory: Arc<Inode<P>>,
    ) -> Result<Level<P>, Errno> {
        if !directory.is_directory() {
            return Err(Errno::NOTDIR);
        }
        self.check(caller, &directory, READ | EXECUTE)?;
        let stream = self.volume.opendir(caller, &directory, 0)?;
        Ok(Level { parent: Arc::clone(parent), name: name.to_vec(), directory, stream })
    }
}
