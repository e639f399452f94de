//! UNLINK and RMDIR.

use transom_wire::{Name, NodeId, Opcode};

use crate::{
    Errno, Platform,
    session::{Caller, Head, NAMED, Session},
};

impl<P: Platform> Session<P> {
    /// Removes the name `name` of a file that is not a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.tell(caller, Head::<NAMED>::new(Opcode::Unlink, parent, caller).name(name))
    }

    /// Removes the empty directory `name`.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.tell(caller, Head::<NAMED>::new(Opcode::Rmdir, parent, caller).name(name))
    }
}
