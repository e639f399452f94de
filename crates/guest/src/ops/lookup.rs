//! LOOKUP.

use transom_wire::{Name, NodeId, attr::EntryOut, operation::Lookup};

use crate::{
    Errno, Platform,
    session::{Caller, Named, Session},
};

impl<P: Platform> Session<P> {
    /// Looks up `name` in `parent`.
    ///
    /// A nodeid of 0 means that the name is absent, for as long as the entry is valid. Any other nodeid counts one
    /// reference, to be given back with [`Session::forget`].
    pub fn lookup(&self, caller: &Caller<'_>, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        self.found_entry(self.ask(caller, Named::<Lookup>::new(parent, caller, &()).name(name))?)
    }
}
