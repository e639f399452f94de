//! MKDIR.

use transom_wire::{Name, NodeId, attr::EntryOut, linux::S_IFDIR, operation::Mkdir, ops::mkdir::MkdirIn};

use crate::{
    Errno, Platform,
    session::{Caller, Named, Session},
};

impl<P: Platform> Session<P> {
    /// Creates the directory `name` in `parent` with permissions `mode`. The entry counts one reference.
    pub fn mkdir(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>, mode: u32) -> Result<EntryOut, Errno> {
        let arg = MkdirIn { mode: self.masked(caller, mode & 0o7777).into(), umask: caller.umask.into() };
        let mut head = Named::<Mkdir>::new(parent, caller, &arg);
        head.name(name).extension(self.group_extension(caller));
        self.new_entry(self.ask(caller, &mut head)?, Some(S_IFDIR))
    }
}
