//! LOOKUP.

use transom_wire::{Name, NodeId, Opcode, attr::EntryOut};

use crate::{
    Errno, Platform,
    session::{Caller, Head, NAMED, Session},
};

impl<P: Platform> Session<P> {
    /// Looks up `name` in `parent`.
    ///
    /// A nodeid of 0 means that the name is absent, for as long as the entry is valid. Any other nodeid counts one
    /// reference, to be given back with [`Session::forget`].
    pub fn lookup(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        let mut head = Head::<NAMED>::new(Opcode::Lookup, parent, caller);
        head.name(name);
        self.found_entry(self.ask(caller, &mut head)?)
    }
}
