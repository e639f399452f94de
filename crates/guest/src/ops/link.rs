//! LINK.

use transom_wire::{Name, NodeId, Opcode, attr::EntryOut, ops::link::LinkIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, NAMED, Session},
};

impl<P: Platform> Session<P> {
    /// Creates the hard link `name` in `parent` to `node`. The entry counts one reference, to `node`.
    ///
    /// Errors: EPERM if the server does not know the operation.
    pub fn link(&self, caller: &Caller<'_>, node: NodeId, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        let arg = LinkIn { oldnodeid: node.into() };
        let mut head = Head::<NAMED>::new(Opcode::Link, parent, caller);
        head.arg(&arg).name(name);
        let known = self.if_known(Opcode::Link, || self.ask(caller, &mut head))?;
        self.new_entry(known.ok_or(Errno::PERM)?, None)
    }
}
