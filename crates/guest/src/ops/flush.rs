//! FLUSH.

use transom_wire::{Handle, NodeId, Opcode, ops::flush::FlushIn};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

impl<P: Platform> Session<P> {
    /// Reports that a descriptor of the open file `fh` was closed; the POSIX locks of `lock_owner` on the file end.
    ///
    /// Does nothing if the server does not know the operation. Cannot be interrupted.
    pub fn flush(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, lock_owner: u64) -> Result<(), Errno> {
        let caller = Caller { interrupt: None, ..*caller };
        let arg = FlushIn { fh: fh.into(), unused: 0.into(), padding: 0.into(), lock_owner: lock_owner.into() };
        let mut head = Head::<PLAIN>::new(Opcode::Flush, node, &caller);
        head.arg(&arg);
        self.if_known(Opcode::Flush, || self.tell(&caller, &mut head)).map(|_| ())
    }
}
