//! ACCESS.

use transom_wire::{NodeId, Opcode, ops::access::AccessIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Checks whether the caller may access `node` as `mask` says, as in access(2). Allows everything if the server
    /// does not know the operation.
    pub fn access(&self, caller: &Caller<'_>, node: NodeId, mask: u32) -> Result<(), Errno> {
        let arg = AccessIn { mask: mask.into(), padding: 0.into() };
        let mut head = Head::<PLAIN>::new(Opcode::Access, node, caller);
        head.arg(&arg);
        self.if_known(Opcode::Access, || self.tell(caller, &mut head)).map(|_| ())
    }
}
