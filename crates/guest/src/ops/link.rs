//! LINK.

use transom_wire::{Name, NodeId, attr::EntryOut, operation::Link, ops::link::LinkIn};

use crate::{
    Errno, Platform,
    session::{Caller, Named, Session},
};

impl<P: Platform> Session<P> {
    /// Creates the hard link `name` in `parent` to `node`. The entry counts one reference, to `node`.
    ///
    /// Errors: EPERM if the server does not know the operation.
    pub fn link(&self, caller: &Caller<'_>, node: NodeId, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        let arg = LinkIn { oldnodeid: node.into() };
        let known = self.ask_if_known(caller, Named::<Link>::new(parent, caller, &arg).name(name))?;
        self.new_entry(known.ok_or(Errno::PERM)?, None)
    }
}
