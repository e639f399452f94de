//! SYNCFS.

use transom_wire::{NodeId, operation::Syncfs, ops::syncfs::SyncfsIn};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Makes all of the file system that `node` is in durable. Does nothing if the server does not know the operation,
    /// as in Linux.
    pub fn syncfs(&self, caller: &Caller<'_>, node: NodeId) -> Result<(), Errno> {
        let arg = SyncfsIn { padding: 0.into() };
        self.ask_if_known(caller, &mut Plain::<Syncfs>::new(node, caller, &arg)).map(|_| ())
    }
}
