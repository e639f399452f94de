//! SETATTR.

use transom_wire::{NodeId, attr::AttrOut, operation::Setattr, ops::setattr::SetattrIn};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Changes the attributes of `node` that `arg.valid` selects.
    pub fn setattr(&self, caller: &Caller<'_>, node: NodeId, arg: &SetattrIn) -> Result<AttrOut, Errno> {
        self.attributes(self.ask(caller, &mut Plain::<Setattr>::new(node, caller, arg))?)
    }
}
