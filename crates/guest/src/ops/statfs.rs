//! STATFS.

use transom_wire::{NodeId, operation::Statfs, ops::statfs::StatfsOut};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Returns size and free space of the file system that `node` is in.
    pub fn statfs(&self, caller: &Caller<'_>, node: NodeId) -> Result<StatfsOut, Errno> {
        self.ask(caller, &mut Plain::<Statfs>::new(node, caller, &()))
    }
}
