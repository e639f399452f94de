//! GETATTR.

use transom_wire::{
    Handle, NodeId,
    attr::AttrOut,
    operation::Getattr,
    ops::getattr::{GETATTR_FH, GetattrIn},
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Returns the attributes of `node`, through the open file `fh` if there is one.
    pub fn getattr(&self, caller: &Caller<'_>, node: NodeId, fh: Option<Handle>) -> Result<AttrOut, Errno> {
        let flags = if fh.is_some() { GETATTR_FH } else { 0 };
        let arg = GetattrIn { getattr_flags: flags.into(), dummy: 0.into(), fh: fh.unwrap_or_default().into() };
        self.attributes(self.ask(caller, &mut Plain::<Getattr>::new(node, caller, &arg))?)
    }
}
