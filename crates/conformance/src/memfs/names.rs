//! Names: adding an inode to a directory, removing it, moving it.

use transom_host::Errno;

use super::tree::{Content, Directory, Name, Tree};

/// Names of one file.
const LINK_MAX: u32 = 1000;
/// What a name counts beside its bytes.
pub(super) const NAME_BYTES: u64 = 64;
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

impl Tree {
    /// The inode that `name` in `parent` leads to. Errors: ENOENT, ENOTDIR.
    pub(super) fn find(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        self.directory(parent)?.names.get(name).map(|name| name.nodeid).ok_or(Errno::NOENT)
    }

    /// Whether `name` could be made in `parent`. Errors: ENOENT, ENOTDIR, EEXIST.
    pub(super) fn check_absent(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        if self.directory(parent)?.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if self.inode(parent)?.nlink == 0 { Err(Errno::NOENT) } else { Ok(()) }
    }

    /// A new inode under a new name.
    pub(super) fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        mode: u32,
        owner: (u32, u32),
        content: Content,
    ) -> Result<u64, Errno> {
        self.check_absent(parent, name)?;
        let nodeid = self.add(mode, owner, content)?;
        let inserted = self.insert(parent, name, nodeid);
        if inserted.is_err() {
            self.drop_unused(nodeid);
        }
        inserted.map(|()| nodeid)
    }

    /// A new directory under a new name.
    pub(super) fn make_directory(
        &mut self,
        parent: u64,
        name: &[u8],
        mode: u32,
        owner: (u32, u32),
    ) -> Result<u64, Errno> {
        self.make(parent, name, mode, owner, Content::Directory(Directory::new(parent)))
    }

    /// A further name of a file.
    pub(super) fn link(&mut self, nodeid: u64, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let inode = self.inode(nodeid)?;
        if inode.is_directory() {
            return Err(Errno::PERM);
        }
        if inode.nlink == 0 && !inode.is_nameless {
            return Err(Errno::NOENT);
        }
        if inode.nlink >= LINK_MAX {
            return Err(Errno::MLINK);
        }
        self.check_absent(parent, name)?;
        self.insert(parent, name, nodeid)
    }

    /// UNLINK. Errors: ENOENT, ENOTDIR, EISDIR.
    pub(super) fn unlink(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let nodeid = self.find(parent, name)?;
        if self.inode(nodeid)?.is_directory() {
            return Err(Errno::ISDIR);
        }
        self.remove(parent, name)
    }

    /// RMDIR. Errors: ENOENT, ENOTDIR, ENOTEMPTY.
    pub(super) fn rmdir(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let nodeid = self.find(parent, name)?;
        if !self.directory(nodeid)?.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(parent, name)
    }

    /// RENAME2. Errors: those of renameat2(2) as root.
    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<(), Errno> {
        if !matches!(flags, 0 | NOREPLACE | EXCHANGE) {
            return Err(Errno::INVAL);
        }
        let moved = self.find(from.0, from.1)?;
        let target = match self.find(to.0, to.1) {
            Ok(target) => Some(target),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if self.is_within(to.0, moved) {
            return Err(Errno::INVAL);
        }
        match (target, flags) {
            (Some(_), NOREPLACE) => Err(Errno::EXIST),
            (None, EXCHANGE) => Err(Errno::NOENT),
            (Some(target), _) if target == moved => Ok(()),
            (Some(target), EXCHANGE) if self.is_within(from.0, target) => Err(Errno::INVAL),
            (Some(target), EXCHANGE) => self.exchange(from, moved, to, target),
            (target, _) => self.replace(from, moved, to, target),
        }
    }

    fn exchange(&mut self, from: (u64, &[u8]), moved: u64, to: (u64, &[u8]), target: u64) -> Result<(), Errno> {
        for (place, nodeid) in [(from, moved), (to, target)] {
            self.detach(place.0, place.1, nodeid)?;
        }
        self.attach(to.0, to.1, moved)?;
        self.attach(from.0, from.1, target)?;
        self.touch(&[from.0, to.0, moved, target])
    }

    fn replace(&mut self, from: (u64, &[u8]), moved: u64, to: (u64, &[u8]), target: Option<u64>) -> Result<(), Errno> {
        if self.inode(to.0)?.nlink == 0 {
            return Err(Errno::NOENT);
        }
        if let Some(target) = target {
            match (self.inode(moved)?.is_directory(), self.inode(target)?.is_directory()) {
                // An ancestor of the moved one is never empty.
                (_, true) if !self.directory(target)?.names.is_empty() && self.inode(moved)?.is_directory() => {
                    return Err(Errno::NOTEMPTY);
                }
                (false, true) => return Err(Errno::ISDIR),
                (true, false) => return Err(Errno::NOTDIR),
                _ => self.remove(to.0, to.1)?,
            }
        } else {
            // The new name may be longer than the old one, and may not fit.
            let grown = to.1.len().saturating_sub(from.1.len()) as u64;
            self.charge(grown)?;
            self.discharge(grown);
        }
        self.detach(from.0, from.1, moved)?;
        self.attach(to.0, to.1, moved)?;
        self.touch(&[from.0, to.0, moved])
    }

    fn insert(&mut self, parent: u64, name: &[u8], nodeid: u64) -> Result<(), Errno> {
        self.attach(parent, name, nodeid)?;
        self.inode_mut(nodeid)?.is_nameless = false;
        self.touch(&[parent, nodeid])
    }

    fn remove(&mut self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let nodeid = self.find(parent, name)?;
        self.detach(parent, name, nodeid)?;
        let inode = self.inode_mut(nodeid)?;
        if inode.is_directory() {
            inode.nlink = 0;
        }
        self.touch(&[parent, nodeid])?;
        self.drop_unused(nodeid);
        Ok(())
    }

    /// Enters a name and counts it. Errors: ENOSPC, before anything is changed.
    fn attach(&mut self, parent: u64, name: &[u8], nodeid: u64) -> Result<(), Errno> {
        self.charge(NAME_BYTES + name.len() as u64)?;
        let directory = self.directory_mut(parent)?;
        let place = directory.next_place;
        directory.next_place += 1;
        directory.order.insert(place, name.to_vec());
        directory.names.insert(name.to_vec(), Name { nodeid, place });
        let inode = self.inode_mut(nodeid)?;
        match &mut inode.content {
            Content::Directory(directory) => {
                directory.parent = parent;
                inode.nlink = inode.nlink.max(2);
                self.inode_mut(parent)?.nlink += 1;
            }
            _ => inode.nlink += 1,
        }
        Ok(())
    }

    fn detach(&mut self, parent: u64, name: &[u8], nodeid: u64) -> Result<(), Errno> {
        let directory = self.directory_mut(parent)?;
        let removed = directory.names.remove(name).ok_or(Errno::NOENT)?;
        directory.order.remove(&removed.place);
        self.discharge(NAME_BYTES + name.len() as u64);
        match self.inode(nodeid)?.is_directory() {
            true => self.inode_mut(parent)?.nlink -= 1,
            false => self.inode_mut(nodeid)?.nlink -= 1,
        }
        Ok(())
    }

    fn touch(&mut self, nodeids: &[u64]) -> Result<(), Errno> {
        let now = self.now();
        for &nodeid in nodeids {
            let inode = self.inode_mut(nodeid)?;
            inode.ctime = now;
            if inode.is_directory() {
                inode.mtime = now;
            }
        }
        Ok(())
    }

    /// Whether `directory` is `ancestor` or lies somewhere below it.
    fn is_within(&self, mut directory: u64, ancestor: u64) -> bool {
        loop {
            if directory == ancestor {
                return true;
            }
            match self.directory(directory) {
                Ok(above) if above.parent != directory => directory = above.parent,
                _ => return false,
            }
        }
    }
}
