//! SYNCFS.

use transom_wire::{NodeId, Opcode, ops::syncfs::SyncfsIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Makes all of the file system that `node` is in durable. Does nothing if the server does not know the operation,
    /// as in Linux.
    pub fn syncfs(&self, caller: &Caller<'_>, node: NodeId) -> Result<(), Errno> {
        let mut head = Head::<PLAIN>::new(Opcode::Syncfs, node, caller);
        head.arg(&SyncfsIn { padding: 0.into() });
        self.if_known(Opcode::Syncfs, || self.tell(caller, &mut head)).map(|_| ())
    }
}
