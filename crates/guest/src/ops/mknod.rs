//! MKNOD.

use transom_wire::{Name, NodeId, Opcode, attr::EntryOut, ops::mknod::MknodIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, NAMED, S_IFMT, Session},
};

impl<P: Platform> Session<P> {
    /// Makes the file `name` in `parent`, `mode` being its type and permissions, `rdev` its device in the 32-bit form of the
    /// kernel. The entry counts one reference.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        name: Name<'_>,
        mode: u32,
        rdev: u32,
    ) -> Result<EntryOut, Errno> {
        let arg = MknodIn {
            mode: self.masked(caller, mode).into(),
            rdev: rdev.into(),
            umask: caller.umask.into(),
            padding: 0.into(),
        };
        let head = Head::<NAMED>::new(Opcode::Mknod, parent, caller)
            .arg(&arg)
            .name(name)
            .extension(self.group_extension(caller));
        self.new_entry(self.ask(caller, head)?, Some(mode & S_IFMT))
    }
}
