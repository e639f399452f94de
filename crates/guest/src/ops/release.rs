//! RELEASE and RELEASEDIR.

use transom_wire::{
    Handle, NodeId, Opcode,
    operation::{Operation, Release, Releasedir},
    ops::release::ReleaseIn,
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Closes the open file `fh`, which was opened with `flags`.
    ///
    /// `release_flags` are those of [`ReleaseIn`]; `lock_owner` is used if they are not 0. Cannot be interrupted. The
    /// handle is invalid afterwards, even after an error.
    pub fn release(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    ) -> Result<(), Errno> {
        if self.is_without_handle(Opcode::Open, fh) {
            return Ok(());
        }
        let arg = ReleaseIn {
            fh: fh.into(),
            flags: flags.into(),
            release_flags: release_flags.into(),
            lock_owner: lock_owner.into(),
        };
        self.send_release::<Release>(caller, node, &arg)
    }

    /// Closes the open directory `fh`. See [`Self::release`].
    pub fn releasedir(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, flags: u32) -> Result<(), Errno> {
        if self.is_without_handle(Opcode::Opendir, fh) {
            return Ok(());
        }
        let arg = ReleaseIn { fh: fh.into(), flags: flags.into(), release_flags: 0.into(), lock_owner: 0.into() };
        self.send_release::<Releasedir>(caller, node, &arg)
    }

    fn send_release<O>(&self, caller: &Caller<'_>, node: NodeId, arg: &ReleaseIn) -> Result<(), Errno>
    where
        O: Operation<Args = ReleaseIn, Reply = ()>,
    {
        let caller = Caller { interrupt: None, ..*caller };
        self.ask(&caller, &mut Plain::<O>::new(node, &caller, arg))
    }
}
