//! What is done with an open file or directory: open it, close it, lock it, read its entries.

use transom_host::Errno;
use transom_wire::ops::open::OpenOut;

use super::{
    State,
    handles::Opened,
    locks::{self, Wanted},
};

impl State {
    pub(super) fn open(&mut self, nodeid: u64, is_directory: bool, flags: u32) -> Result<OpenOut, Errno> {
        self.tree.inode_mut(nodeid)?.opens += 1;
        let fh = self.handles.add(Opened { nodeid, is_directory, flags });
        Ok(OpenOut { fh: fh.into(), ..OpenOut::default() })
    }

    pub(super) fn close(&mut self, fh: u64, is_directory: bool) -> Result<(), Errno> {
        let opened = self.handles.remove(fh, is_directory)?;
        self.tree.inode_mut(opened.nodeid)?.opens -= 1;
        self.tree.drop_unused(opened.nodeid);
        Ok(())
    }

    /// The handle is looked at anew for each try: it may have been closed while a request waited.
    pub(super) fn set_lock(&mut self, fh: u64, wanted: &Wanted) -> Result<(), Errno> {
        let nodeid = self.handles.get(fh, false)?.nodeid;
        locks::apply(&mut self.tree.inode_mut(nodeid)?.locks, wanted)
    }

    /// The entry of a directory's stream behind `offset`: its place, nodeid and name.
    pub(super) fn next_entry(&self, nodeid: u64, offset: u64) -> Result<Option<(u64, u64, Vec<u8>)>, Errno> {
        let directory = self.tree.directory(nodeid)?;
        let named = || {
            let after = offset.checked_add(1)?;
            let (&place, name) = directory.order.range(after..).next()?;
            Some((place, directory.names.get(name)?.nodeid, name.clone()))
        };
        Ok(match offset {
            0 => Some((1, nodeid, b".".to_vec())),
            // A removed directory's parent may be gone.
            1 => Some((
                2,
                if self.tree.inode(directory.parent).is_ok() { directory.parent } else { nodeid },
                b"..".to_vec(),
            )),
            _ => named(),
        })
    }
}
