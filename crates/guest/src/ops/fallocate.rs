//! FALLOCATE.

use transom_wire::{Handle, NodeId, operation::Fallocate, ops::fallocate::FallocateIn};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Reserves, punches or zeroes a range, in bytes, of the open file `fh`; `mode` is that of fallocate(2).
    ///
    /// Errors: EOPNOTSUPP if the server does not know the operation.
    pub fn fallocate(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<(), Errno> {
        let arg = FallocateIn {
            fh: fh.into(),
            offset: offset.into(),
            length: length.into(),
            mode: mode.into(),
            padding: 0.into(),
        };
        self.ask_if_known(caller, &mut Plain::<Fallocate>::new(node, caller, &arg))?.ok_or(Errno::OPNOTSUPP)
    }
}
