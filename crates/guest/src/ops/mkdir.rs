//! MKDIR.

use transom_wire::{Name, NodeId, Opcode, attr::EntryOut, linux::S_IFDIR, ops::mkdir::MkdirIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, NAMED, Session},
};

impl<P: Platform> Session<P> {
    /// Creates the directory `name` in `parent` with permissions `mode`. The entry counts one reference.
    pub fn mkdir(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>, mode: u32) -> Result<EntryOut, Errno> {
        let arg = MkdirIn { mode: self.masked(caller, mode & 0o7777).into(), umask: caller.umask.into() };
        let mut head = Head::<NAMED>::new(Opcode::Mkdir, parent, caller);
        head.arg(&arg).name(name).extension(self.group_extension(caller));
        self.new_entry(self.ask(caller, &mut head)?, Some(S_IFDIR))
    }
}
