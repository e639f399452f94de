//! SETUPMAPPING.

use rustix::fs::{OFlags, fcntl_getfl};
use transom_wire::{
    Handle, NodeId,
    operation::Setupmapping,
    ops::{
        init::InitFlags,
        setupmapping::{SETUPMAPPING_READ, SETUPMAPPING_WRITE},
    },
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
    window::RANGE_LEN,
};

impl Serve<Setupmapping> for Passthrough {
    /// Maps each range separately, so that each can be removed separately.
    ///
    /// # Errors
    ///
    /// ENOSYS without a window, EINVAL for a range that is not aligned or lies outside of the window, and those of
    /// [`Window::map`](crate::window::Window::map).
    fn serve(&self, call: Call<'_, Setupmapping>) -> Result<(), Errno> {
        let (nodeid, arg) = (call.nodeid, &call.arg);
        let dax = self.dax.as_ref().filter(|_| self.has(InitFlags::MAP_ALIGNMENT)).ok_or(Errno::NOSYS)?;
        let (file_offset, window_offset, len) = (arg.foffset.get(), arg.moffset.get(), arg.len.get());
        let wants_write = arg.flags.get() & SETUPMAPPING_WRITE != 0;
        let is_aligned = [file_offset, window_offset, len].iter().all(|number| number.is_multiple_of(RANGE_LEN));
        let is_inside = window_offset.checked_add(len).is_some_and(|end| end <= dax.window.len_bytes());
        let is_in_file = file_offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok());
        let has_flags = arg.flags.get() != 0 && arg.flags.get() & !(SETUPMAPPING_READ | SETUPMAPPING_WRITE) == 0;
        if len == 0 || !is_aligned || !is_inside || !is_in_file || !has_flags {
            return Err(Errno::INVAL);
        }
        // The window may still hold a file that the guest has forgotten.
        self.inode(nodeid)?;
        self.check_handle(nodeid, arg.fh.get(), wants_write)?;
        if wants_write {
            self.check_writable()?;
        }
        for offset in (0..len).step_by(RANGE_LEN as usize) {
            let open = || self.open_to_map(dax, nodeid, wants_write);
            let mapped = dax.window.map(nodeid, file_offset + offset, window_offset + offset, wants_write, open);
            if let Err(error) = mapped {
                tracing::debug!(nodeid = nodeid.0, file_offset, window_offset, len, %error, "a mapping is refused");
                if offset > 0 {
                    // Undo what this failed request has mapped. What cannot be undone now is undone at the end of the
                    // session.
                    let _ = dax.window.unmap(&[(window_offset, offset)]);
                }
                self.note_mapped(nodeid);
                return Err(error);
            }
        }
        self.note_mapped(nodeid);
        Ok(())
    }
}

impl Passthrough {
    /// Checks a handle, if there is one: it has to belong to the inode and be open for the wanted access. Linux names
    /// the inode and no handle.
    fn check_handle(&self, nodeid: NodeId, fh: u64, wants_write: bool) -> Result<(), Errno> {
        if fh == u64::MAX {
            return Ok(());
        }
        let file = self.handles.file(Handle(fh))?;
        if file.nodeid != nodeid {
            return Err(Errno::BADF);
        }
        let mode = fcntl_getfl(&file.fd)? & OFlags::RWMODE;
        if wants_write && mode == OFlags::RDONLY { Err(Errno::ACCESS) } else { Ok(()) }
    }
}
