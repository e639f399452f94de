//! Finds where inodes that the guest knows are now, as paths below the shared directory.
//!
//! The kernel knows the path of an inode that is in its cache, and we the name by which it was found last. Neither is
//! certain, so each is tried out. What neither finds is searched for in the whole directory.

use std::{collections::HashMap, mem::MaybeUninit, time::Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use transom_wire::NodeId;

use crate::{
    Errno,
    passthrough::{Passthrough, dir_batch::BATCH_LEN, inodes::Identity},
    sysfd::{FileHandle, path, stat},
};

/// Refers to an inode of any type without opening it.
const REFER: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// Finds paths.
pub(super) struct Paths<'a> {
    fs: &'a Passthrough,
    /// The path of the shared directory, with a slash at its end.
    root: Vec<u8>,
}

/// Why an inode has no path.
pub(super) enum Missing {
    /// It has no name any more.
    Gone(Errno),
    /// It has a name that is not known.
    Elsewhere,
}

impl<'a> Paths<'a> {
    pub(super) fn new(fs: &'a Passthrough) -> Self {
        let mut root = fs.proc_fds.path(&fs.inodes.root().fd).unwrap_or_default();
        if root.last() != Some(&b'/') {
            root.push(b'/');
        }
        Self { fs, root }
    }

    /// Returns the path of a known inode.
    pub(super) fn of(&self, nodeid: NodeId) -> Result<Vec<u8>, Missing> {
        let inodes = &self.fs.inodes;
        let identity = inodes.identity(nodeid).ok_or(Missing::Gone(Errno::STALE))?;
        let handle = inodes.handle(nodeid);
        let leads_there = |path: &Vec<u8>| self.leads_to(path, &identity, handle.as_ref());
        match inodes.get(nodeid) {
            Ok(inode) => {
                if let Some(path) = self.of_descriptor(&inode.fd).filter(leads_there) {
                    return Ok(path);
                }
                let stat = stat::statx(&inode.fd, AtFlags::empty(), stat::IDENTITY).map_err(Missing::Gone)?;
                if stat.stx_nlink == 0 {
                    return Err(Missing::Gone(Errno::NOENT));
                }
            }
            // It would have been found by its handle, if it existed.
            Err(Errno::STALE) if handle.is_some() && !inodes.prefers_paths() => {
                return Err(Missing::Gone(Errno::STALE));
            }
            Err(_) => {}
        }
        self.of_names(nodeid).filter(leads_there).ok_or(Missing::Elsewhere)
    }

    /// Returns the path that the kernel knows, if it is below the shared directory.
    fn of_descriptor(&self, fd: impl std::os::fd::AsFd) -> Option<Vec<u8>> {
        let path = self.fs.proc_fds.path(fd).ok()?;
        let below = path.strip_prefix(self.root.as_slice())?;
        (!below.is_empty()).then(|| below.to_owned())
    }

    fn of_names(&self, nodeid: NodeId) -> Option<Vec<u8>> {
        let (from, names) = self.fs.inodes.last_names(nodeid).ok()?;
        if from == NodeId::ROOT {
            return Some(names);
        }
        let mut path = self.of_descriptor(&self.fs.inodes.get(from).ok()?.fd)?;
        if !names.is_empty() {
            path.push(b'/');
            path.extend(names);
        }
        Some(path)
    }

    fn leads_to(&self, path: &[u8], identity: &Identity, handle: Option<&FileHandle>) -> bool {
        let open = || path::open_beneath(&self.fs.inodes.root().fd, path, REFER, Mode::empty());
        let Ok(fd) = self.fs.inodes.with_room(open) else { return false };
        let Ok(stat) = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY) else { return false };
        self.fs.inodes.identify(&stat).as_ref() == Some(identity)
            && handle.is_none_or(|handle| FileHandle::of(&fd, handle.mount()).is_ok_and(|found| found == *handle))
    }

    /// Searches the shared directory for `wanted`, and returns the paths that it finds, or `None` at the deadline.
    pub(super) fn search(&self, wanted: &[NodeId], deadline: Instant) -> Option<HashMap<NodeId, Vec<u8>>> {
        let mut by_ino: HashMap<u64, Vec<NodeId>> = HashMap::new();
        for &nodeid in wanted {
            if let Some(ino) = self.fs.inodes.ino(nodeid) {
                by_ino.entry(ino).or_default().push(nodeid);
            }
        }
        let (mut found, mut directories) = (HashMap::new(), vec![Vec::new()]);
        while let Some(directory) = directories.pop() {
            if found.len() == wanted.len() {
                break;
            }
            if Instant::now() > deadline {
                return None;
            }
            // What cannot be read is not searched.
            let _ = self.list(&directory, |name, ino, file_type| {
                let path = [directory.as_slice(), name].concat();
                for &nodeid in by_ino.get(&ino).into_iter().flatten() {
                    let identity = self.fs.inodes.identity(nodeid);
                    let handle = self.fs.inodes.handle(nodeid);
                    if identity.is_some_and(|identity| self.leads_to(&path, &identity, handle.as_ref())) {
                        found.insert(nodeid, path.clone());
                    }
                }
                if file_type == FileType::Directory && path.len() < crate::migration::PATH_LEN_MAX {
                    directories.push([path.as_slice(), b"/"].concat());
                }
            });
        }
        Some(found)
    }

    /// Calls `each` with the entries of a directory, whose path is empty or ends with a slash: name, number and type.
    fn list(&self, path: &[u8], mut each: impl FnMut(&[u8], u64, FileType)) -> Result<(), Errno> {
        let name = if path.is_empty() { b".".as_slice() } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let open = || path::open_beneath(&self.fs.inodes.root().fd, name, flags, Mode::empty());
        let fd = self.fs.inodes.with_room(open)?;
        let mut buffer = vec![MaybeUninit::uninit(); BATCH_LEN];
        let mut entries = RawDir::new(&fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let (mut ino, mut file_type) = (entry.ino(), entry.file_type());
            // Something else may be mounted on a directory.
            if matches!(file_type, FileType::Directory | FileType::Unknown) {
                let Ok(stat) = stat::statx_at(&fd, name, stat::IDENTITY) else { continue };
                (ino, file_type) = (stat.stx_ino, crate::passthrough::inodes::file_type(&stat));
            }
            each(name, ino, file_type);
        }
        Ok(())
    }
}
