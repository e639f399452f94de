//! FALLOCATE.

use rustix::fs::FallocateFlags;
use transom_wire::{
    Handle,
    ops::{fallocate::FallocateIn, init::InitFlags},
};

use crate::{Errno, passthrough::Passthrough};

impl Passthrough {
    /// Errors: EOPNOTSUPP for a mode that the host does not have.
    pub(in crate::passthrough) fn do_fallocate(&self, arg: &FallocateIn) -> Result<(), Errno> {
        let file = self.handles.file(Handle::from(arg.fh))?;
        let mode = FallocateFlags::from_bits_retain(arg.mode.get());
        let _guard = self.kill_set_id_guard()?;
        rustix::fs::fallocate(&file.fd, mode, arg.offset.get(), arg.length.get())?;
        self.drop_capabilities(&file);
        Ok(())
    }

    /// For operations that change data and do not say whether set-id bits go: a guest that leaves these to the host says
    /// so with HANDLE_KILLPRIV_V2.
    pub(in crate::passthrough) fn kill_set_id_guard(&self) -> Result<Option<crate::credentials::NoFsetid<'_>>, Errno> {
        self.has(InitFlags::HANDLE_KILLPRIV_V2).then(|| self.credentials.without_fsetid()).transpose()
    }
}
