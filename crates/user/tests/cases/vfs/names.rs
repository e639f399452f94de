//! What gives, takes and changes names.

use std::sync::Arc;

use transom_conformance::client::{Errno, FileType, Handle, RenameFlags};
use transom_wire::{attr::Attr, device_number};

use super::{
    errno::{Result, from_guest},
    node::Node,
    process::Process,
    rights::{self, EXECUTE, WRITE},
    walk::{DirPath, Last, name_of},
};

/// A name that is there.
struct Named {
    place: DirPath,
    name: Vec<u8>,
    _node: Arc<Node>,
    attr: Attr,
    has_slash: bool,
}

impl Process<'_> {
    pub(crate) fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        let (place, name, directory) = self.for_new(path, true)?;
        let (caller, mode) = (self.creator(&directory), self.new_mode(mode & 0o1777));
        let entry = self.vfs.session.mkdir(&caller, place.node().id, name_of(&name)?, mode).map_err(from_guest)?;
        drop(Node::of(&self.vfs.session, &entry));
        Ok(())
    }

    pub(crate) fn make_node(&self, path: &[u8], kind: FileType, mode: u32, device: (u32, u32)) -> Result<()> {
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let (place, name, directory) = self.for_new(path, false)?;
        // What overlays mark a removed name with is no device.
        let is_whiteout = kind == FileType::CharacterDevice && device == (0, 0);
        if is_device && !is_whiteout && !rights::is_privileged(&self.who) {
            return Err(Errno::PERM);
        }
        let mode = kind.as_raw_mode() | self.new_mode(mode & 0o7777);
        let device = if is_device { device_number::encode(device.0, device.1) } else { 0 };
        let caller = self.creator(&directory);
        let entry = self.vfs.session.mknod(&caller, place.node().id, name_of(&name)?, mode, device);
        drop(Node::of(&self.vfs.session, &entry.map_err(from_guest)?));
        Ok(())
    }

    pub(crate) fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        if target.len() >= 4096 {
            return Err(Errno::NAMETOOLONG);
        }
        let (place, name, directory) = self.for_new(path, false)?;
        let caller = self.creator(&directory);
        let entry = self.vfs.session.symlink(&caller, place.node().id, name_of(&name)?, target).map_err(from_guest)?;
        drop(Node::of(&self.vfs.session, &entry));
        Ok(())
    }

    pub(crate) fn read_symlink(&self, path: &[u8], buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Err(Errno::INVAL);
        }
        let found = self.find(path, false)?;
        if !rights::is_symlink(&found.attr) {
            return Err(Errno::INVAL);
        }
        let target = self.vfs.session.readlink(&self.caller(), found.node.id).map_err(from_guest)?;
        let len = target.len().min(buf.len());
        buf[..len].copy_from_slice(&target[..len]);
        Ok(len)
    }

    pub(crate) fn link_path(&self, old: &[u8], new: &[u8], follow: bool) -> Result<()> {
        let found = self.find(old, follow)?;
        self.link_node(&found.node, &found.attr, new)
    }

    pub(crate) fn link_open(&self, handle: Handle, new: &[u8]) -> Result<()> {
        let file = self.file(handle)?;
        self.link_node(&file.node, &file.node.attr()?, new)
    }

    fn link_node(&self, node: &Node, attr: &Attr, new: &[u8]) -> Result<()> {
        let (place, name, _) = self.for_new(new, false)?;
        if rights::is_directory(attr) {
            return Err(Errno::PERM);
        }
        let entry = self.vfs.session.link(&self.caller(), node.id, place.node().id, name_of(&name)?);
        drop(Node::of(&self.vfs.session, &entry.map_err(from_guest)?));
        Ok(())
    }

    pub(crate) fn remove_file(&self, path: &[u8]) -> Result<()> {
        let named = self.named(path, Errno::ISDIR, Errno::ISDIR, Errno::ISDIR)?;
        if named.has_slash {
            return Err(if rights::is_directory(&named.attr) { Errno::ISDIR } else { Errno::NOTDIR });
        }
        rights::check_removal(&self.who, &named.place.node().attr()?, &named.attr)?;
        if rights::is_directory(&named.attr) {
            return Err(Errno::ISDIR);
        }
        let removed = self.vfs.session.unlink(&self.caller(), named.place.node().id, name_of(&named.name)?);
        removed.map_err(from_guest)
    }

    pub(crate) fn remove_directory(&self, path: &[u8]) -> Result<()> {
        let named = self.named(path, Errno::INVAL, Errno::NOTEMPTY, Errno::BUSY)?;
        rights::check_removal(&self.who, &named.place.node().attr()?, &named.attr)?;
        if !rights::is_directory(&named.attr) {
            return Err(Errno::NOTDIR);
        }
        let removed = self.vfs.session.rmdir(&self.caller(), named.place.node().id, name_of(&named.name)?);
        removed.map_err(from_guest)
    }

    pub(crate) fn rename_path(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> Result<()> {
        let is_exchange = flags.contains(RenameFlags::EXCHANGE);
        let keeps_new = flags.contains(RenameFlags::NOREPLACE);
        let makes_whiteout = flags.contains(RenameFlags::WHITEOUT);
        let known = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if is_exchange && (keeps_new || makes_whiteout) || flags.bits() & !known.bits() != 0 {
            return Err(Errno::INVAL);
        }
        let (new_place, new_last) = self.find_parent(new)?;
        let old = self.named(old, Errno::BUSY, Errno::BUSY, Errno::BUSY)?;
        let Last::Name(new_name, new_slash) = new_last else {
            return Err(if keeps_new { Errno::EXIST } else { Errno::BUSY });
        };
        let target = self.lookup(&new_place, &new_name)?;
        match &target {
            Some(_) if keeps_new => return Err(Errno::EXIST),
            None if is_exchange => return Err(Errno::NOENT),
            _ => {}
        }
        let is_directory = rights::is_directory(&old.attr);
        let new_is_directory = target.as_ref().is_some_and(|(_, attr)| rights::is_directory(attr));
        if !is_directory && (old.has_slash || new_slash && !is_exchange)
            || is_exchange && new_slash && !new_is_directory
        {
            return Err(Errno::NOTDIR);
        }
        let (old_directory, new_directory) = (old.place.node().attr()?, new_place.node().attr()?);
        rights::check_removal(&self.who, &old_directory, &old.attr)?;
        match &target {
            Some((_, attr)) => rights::check_removal(&self.who, &new_directory, attr)?,
            None => self.check(&new_directory, WRITE | EXECUTE)?,
        }
        let is_moved = old_directory.ino != new_directory.ino;
        // The moved directory's `..` changes.
        if is_directory && is_moved {
            self.check(&old.attr, WRITE)?;
        }
        if let (Some((_, attr)), true, true) = (&target, is_exchange && is_moved, new_is_directory) {
            self.check(attr, WRITE)?;
        }
        if let (Some(_), false) = (&target, is_exchange) {
            match (is_directory, new_is_directory) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ => {}
            }
        }
        let (from, to) = (old.place.node().id, new_place.node().id);
        let renamed = self.vfs.session.rename(
            &self.caller(),
            (from, name_of(&old.name)?),
            (to, name_of(&new_name)?),
            flags.bits(),
        );
        renamed.map_err(from_guest)
    }

    /// What is at `path`, which must end in a name: the three errors are for `.`, `..` and the root.
    fn named(&self, path: &[u8], dot: Errno, dot_dot: Errno, root: Errno) -> Result<Named> {
        let (place, last) = self.find_parent(path)?;
        let (name, has_slash) = match last {
            Last::Name(name, has_slash) => (name, has_slash),
            Last::Dot => return Err(dot),
            Last::DotDot => return Err(dot_dot),
            Last::Root => return Err(root),
        };
        let (node, attr) = self.lookup(&place, &name)?.ok_or(Errno::NOENT)?;
        Ok(Named { place, name, _node: node, attr, has_slash })
    }
}
