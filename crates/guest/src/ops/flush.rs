//! FLUSH.

use transom_wire::{Handle, NodeId, operation::Flush, ops::flush::FlushIn};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Reports that a descriptor of the open file `fh` was closed; the POSIX locks of `lock_owner` on the file end.
    ///
    /// Does nothing if the server does not know the operation. Cannot be interrupted.
    pub fn flush(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, lock_owner: u64) -> Result<(), Errno> {
        let caller = Caller { interrupt: None, ..*caller };
        let arg = FlushIn { fh: fh.into(), unused: 0.into(), padding: 0.into(), lock_owner: lock_owner.into() };
        self.ask_if_known(&caller, &mut Plain::<Flush>::new(node, &caller, &arg)).map(|_| ())
    }
}
