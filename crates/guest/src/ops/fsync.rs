//! FSYNC and FSYNCDIR.

use transom_wire::{
    Handle, NodeId,
    operation::{Fsync, Fsyncdir, Operation},
    ops::fsync::FsyncIn,
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Makes the data written to the open file `fh` durable; `fsync_flags` is 0 or
    /// [`FSYNC_FDATASYNC`](transom_wire::ops::fsync::FSYNC_FDATASYNC).
    ///
    /// Does nothing if the server does not know the operation, as in Linux.
    pub fn fsync(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, fsync_flags: u32) -> Result<(), Errno> {
        self.send_fsync::<Fsync>(caller, node, fh, fsync_flags)
    }

    /// Makes the names in the open directory `fh` durable. See [`Self::fsync`].
    pub fn fsyncdir(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, fsync_flags: u32) -> Result<(), Errno> {
        self.send_fsync::<Fsyncdir>(caller, node, fh, fsync_flags)
    }

    fn send_fsync<O>(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, fsync_flags: u32) -> Result<(), Errno>
    where
        O: Operation<Args = FsyncIn, Reply = ()>,
    {
        let arg = FsyncIn { fh: fh.into(), fsync_flags: fsync_flags.into(), padding: 0.into() };
        self.ask_if_known(caller, &mut Plain::<O>::new(node, caller, &arg)).map(|_| ())
    }
}
