//! Starts the process that makes padded views of files, if the front end needs views instead of the files themselves.

use std::os::fd::{BorrowedFd, OwnedFd};

use tracing::{debug, error, warn};
use transom_host::{Errno, window::PaddedFiles};
use transom_shim::{Shim, ShimError};

use crate::options::Options;

/// Makes views of files.
#[derive(Debug)]
pub struct Views(Shim);

/// Starts the process that makes views, if the front end maps nothing past the end of a file. Must be called before the
/// first thread starts, and before the process is isolated.
///
/// If it cannot be started, logs a warning and returns `None`; the share is served without views.
pub fn start(options: &Options) -> Option<Views> {
    let window = options.window.as_ref()?;
    // Views are only needed for files open for writing, of which a read-only share has none.
    if window.front_end.maps_beyond_end || options.share.is_readonly {
        return None;
    }
    match Shim::start() {
        Ok(shim) => {
            debug!(pid = %shim.pid(), "started the process that makes views of files");
            Some(Views(shim))
        }
        Err(error) => {
            warn!("only whole ranges of 2 MiB of a file can be mapped, and DAX is for files of such sizes: {error}");
            None
        }
    }
}

impl PaddedFiles for Views {
    fn view(&self, file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        self.0.view(file).map_err(|error| match error {
            // A file system stacked on top of others has no room for one more layer.
            ShimError::Refused(Errno::LOOP) => Errno::OPNOTSUPP,
            error => errno_of_shim_error(error),
        })
    }

    fn guard(&self, file: BorrowedFd<'_>) -> Result<Box<dyn Send + Sync>, Errno> {
        Ok(Box::new(self.0.guard(file).map_err(errno_of_shim_error)?))
    }
}

fn errno_of_shim_error(error: ShimError) -> Errno {
    match error {
        ShimError::Refused(errno) | ShimError::Unguarded(errno) => errno,
        ShimError::Gone => {
            error!("{error}: files can no longer be mapped");
            Errno::IO
        }
    }
}
