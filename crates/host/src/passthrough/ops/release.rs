//! RELEASE and RELEASEDIR.

use transom_wire::{
    Handle,
    ids::LockOwner,
    operation::{Release, Releasedir},
    ops::release::{RELEASE_FLUSH, ReleaseIn},
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Release> for Passthrough {
    fn serve(&self, call: Call<'_, Release>) -> Result<(), Errno> {
        self.close(&call.arg);
        Ok(())
    }
}

impl Serve<Releasedir> for Passthrough {
    fn serve(&self, call: Call<'_, Releasedir>) -> Result<(), Errno> {
        if let Some(replays) = &self.replays {
            replays.closed(Handle::from(call.arg.fh));
        }
        self.close(&call.arg);
        Ok(())
    }
}

impl Passthrough {
    /// Closes a handle. A flock ends with the open file. A POSIX lock ends if FLUSH has not ended it before and its
    /// owner has locked through no other open file since.
    fn close(&self, arg: &ReleaseIn) {
        if let Some(locks) = &self.locks
            && let Ok(file) = self.handles.file(Handle::from(arg.fh))
        {
            if arg.release_flags.get() & RELEASE_FLUSH != 0 {
                locks.release_owner(file.nodeid, LockOwner(arg.lock_owner));
            }
            locks.release_file(file.nodeid, &file.locking);
        }
        let key = self.quota_key(Handle::from(arg.fh));
        self.handles.remove(Handle::from(arg.fh));
        self.note_quota_closed(key);
        self.note_released(Handle::from(arg.fh));
    }
}
