//! SETATTR.

use transom_wire::{NodeId, Opcode, attr::AttrOut, ops::setattr::SetattrIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Changes the attributes of `node` that `arg.valid` selects.
    pub fn setattr(&self, caller: &Caller<'_>, node: NodeId, arg: &SetattrIn) -> Result<AttrOut, Errno> {
        self.attributes(self.ask(caller, Head::<PLAIN>::new(Opcode::Setattr, node, caller).arg(arg))?)
    }
}
