//! STATFS.

use transom_wire::{NodeId, Opcode, ops::statfs::StatfsOut};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Returns size and free space of the file system that `node` is in.
    pub fn statfs(&self, caller: &Caller<'_>, node: NodeId) -> Result<StatfsOut, Errno> {
        self.ask(caller, &mut Head::<PLAIN>::new(Opcode::Statfs, node, caller))
    }
}
