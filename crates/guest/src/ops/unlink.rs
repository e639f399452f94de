//! UNLINK and RMDIR.

use transom_wire::{
    Name, NodeId,
    operation::{Rmdir, Unlink},
};

use crate::{
    Errno, Platform,
    session::{Caller, Named, Session},
};

impl<P: Platform> Session<P> {
    /// Removes the name `name` of a file that is not a directory.
    pub fn unlink(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.ask(caller, Named::<Unlink>::new(parent, caller, &()).name(name))
    }

    /// Removes the empty directory `name`.
    pub fn rmdir(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.ask(caller, Named::<Rmdir>::new(parent, caller, &()).name(name))
    }
}
