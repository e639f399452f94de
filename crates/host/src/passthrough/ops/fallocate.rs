//! FALLOCATE.

use rustix::fs::FallocateFlags;
use transom_wire::{Handle, operation::Fallocate, ops::init::InitFlags};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Fallocate> for Passthrough {
    /// Clears set-id bits if the guest has left that to the host with HANDLE_KILLPRIV_V2, since the request has no
    /// flag for it. Errors: EOPNOTSUPP for a mode that the host does not support.
    fn serve(&self, call: Call<'_, Fallocate>) -> Result<(), Errno> {
        let arg = &call.arg;
        let file = self.handles.file(Handle::from(arg.fh))?;
        let mode = FallocateFlags::from_bits_retain(arg.mode.get());
        let _guard = if self.has(InitFlags::HANDLE_KILLPRIV_V2) { self.kill_set_id(&file.fd)? } else { None };
        self.drop_capabilities(&file.fd)?;
        rustix::fs::fallocate(&file.fd, mode, arg.offset.get(), arg.length.get())
    }
}
