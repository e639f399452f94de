//! FALLOCATE.

use transom_wire::{Handle, NodeId, Opcode, ops::fallocate::FallocateIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
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
        let mut head = Head::<PLAIN>::new(Opcode::Fallocate, node, caller);
        head.arg(&arg);
        self.if_known(Opcode::Fallocate, || self.tell(caller, &mut head))?.ok_or(Errno::OPNOTSUPP)
    }
}
