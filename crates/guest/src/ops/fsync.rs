//! FSYNC and FSYNCDIR.

use transom_wire::{Handle, NodeId, Opcode, ops::fsync::FsyncIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Makes the data written to the open file `fh` durable; `fsync_flags` is 0 or
    /// [`FSYNC_FDATASYNC`](transom_wire::ops::fsync::FSYNC_FDATASYNC).
    ///
    /// Does nothing if the server does not know the operation, as in Linux.
    pub fn fsync(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, fsync_flags: u32) -> Result<(), Errno> {
        self.send_fsync(caller, Opcode::Fsync, node, fh, fsync_flags)
    }

    /// Makes the names in the open directory `fh` durable. See [`Self::fsync`].
    pub fn fsyncdir(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, fsync_flags: u32) -> Result<(), Errno> {
        self.send_fsync(caller, Opcode::Fsyncdir, node, fh, fsync_flags)
    }

    fn send_fsync(
        &self,
        caller: &Caller<'_>,
        opcode: Opcode,
        node: NodeId,
        fh: Handle,
        fsync_flags: u32,
    ) -> Result<(), Errno> {
        let arg = FsyncIn { fh: fh.into(), fsync_flags: fsync_flags.into(), padding: 0.into() };
        let mut head = Head::<PLAIN>::new(opcode, node, caller);
        head.arg(&arg);
        self.if_known(opcode, || self.tell(caller, &mut head)).map(|_| ())
    }
}
