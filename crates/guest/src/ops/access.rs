//! ACCESS.

use transom_wire::{NodeId, Opcode, ops::access::AccessIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Whether the caller may do with `node` what `mask` says, as in access(2). Everything where the server does not
    /// know it.
    pub fn access(&self, caller: &Caller<'_>, node: NodeId, mask: u32) -> Result<(), Errno> {
        let arg = AccessIn { mask: mask.into(), padding: 0.into() };
        let mut head = Head::<PLAIN>::new(Opcode::Access, node, caller);
        head.arg(&arg);
        self.if_known(Opcode::Access, || self.tell(caller, &mut head)).map(|_| ())
    }
}
