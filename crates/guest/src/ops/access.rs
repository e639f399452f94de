//! ACCESS.

use transom_wire::{NodeId, operation::Access, ops::access::AccessIn};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Checks whether the caller may access `node` as `mask` says, as in access(2). Allows everything if the server
    /// does not know the operation.
    pub fn access(&self, caller: &Caller<'_>, node: NodeId, mask: u32) -> Result<(), Errno> {
        let arg = AccessIn { mask: mask.into(), padding: 0.into() };
        self.ask_if_known(caller, &mut Plain::<Access>::new(node, caller, &arg)).map(|_| ())
    }
}
