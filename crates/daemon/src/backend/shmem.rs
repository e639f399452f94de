//! Requests of the back end over the vhost-user channel: mappings in the window.

use transom_wire::window::WINDOW_ID;

use std::{
    io,
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering},
};

use transom_host::window::{Channel, ChannelError, Mapping};
use vhost::vhost_user::{
    Backend, Error as ProtocolError, VhostUserFrontendReqHandler,
    message::{VhostUserMMap, VhostUserMMapFlags, VhostUserSharedMsg},
};

/// The channel. Each of its requests asks for a reply.
pub(super) struct Requests {
    backend: Backend,
    /// Whether the missing barrier was reported.
    has_warned: AtomicBool,
}

impl Requests {
    pub(super) fn new(backend: Backend) -> Self {
        Self { backend, has_warned: AtomicBool::new(false) }
    }
}

impl Channel for Requests {
    fn map(&self, mapping: &Mapping<'_>) -> Result<(), ChannelError> {
        let flags = if mapping.is_writable { VhostUserMMapFlags::WRITABLE } else { VhostUserMMapFlags::default() };
        let request = VhostUserMMap {
            shmid: WINDOW_ID,
            padding: [0; 7],
            fd_offset: mapping.file_offset,
            shm_offset: mapping.window_offset,
            len: mapping.len,
            flags: flags.bits(),
        };
        self.backend.shmem_map(&request, &mapping.file.as_raw_fd()).map(drop).map_err(channel_error)
    }

    fn unmap(&self, window_offset: u64, len: u64) -> Result<(), ChannelError> {
        let request = VhostUserMMap { shmid: WINDOW_ID, shm_offset: window_offset, len, ..VhostUserMMap::default() };
        self.backend.shmem_unmap(&request).map(drop).map_err(channel_error)
    }

    /// Sends a request about a shared object that does not exist. A front end serves its requests in order, so the
    /// expected error reply shows that the earlier ones are finished.
    fn barrier(&self) -> Result<(), ChannelError> {
        match self.backend.shared_object_remove(&VhostUserSharedMsg::default()).map_err(channel_error) {
            Ok(_) => Ok(()),
            Err(lost @ ChannelError::Lost(_)) => Err(lost),
            Err(ChannelError::Refused(reason)) => {
                if reason.contains("not negotiated") && !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the front end supports no request that would confirm that a mapping is complete");
                }
                Ok(())
            }
        }
    }
}

/// Converts an error of a request. A refusal, or a request that was never sent, leaves the channel usable.
fn channel_error(error: io::Error) -> ChannelError {
    let protocol = error.get_ref().and_then(|error| error.downcast_ref::<ProtocolError>());
    match protocol {
        None | Some(ProtocolError::FrontendInternalError) => ChannelError::Refused(error.to_string()),
        Some(_) => ChannelError::Lost(error.to_string()),
    }
}
