//! Whether the front end needs views of files instead of the files, and the process that makes them.

use std::os::fd::{BorrowedFd, OwnedFd};

use tracing::{debug, error, warn};
use transom_host::{Errno, window::PaddedFiles};
use transom_shim::{Shim, ShimError};

use crate::options::Options;

/// Makes views of files.
#[derive(Debug)]
pub struct Views(Shim);

/// Starts what makes views, where the front end maps nothing beyond the end of a file. To be called before the first
/// thread, and before the process is isolated.
///
/// Where it cannot be, the share is served without: that is told, and `None` returned.
pub fn start(options: &Options) -> Option<Views> {
    let window = options.window.as_ref()?;
    // Of a read-only share nothing is open for writing, of which alone there can be views.
    if window.front_end.maps_beyond_end || options.share.is_readonly {
        return None;
    }
    match Shim::start() {
        Ok(shim) => {
            debug!(pid = %shim.pid(), "a process makes views of files");
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
            // A file system on top of others has no room for one more.
            ShimError::Refused(Errno::LOOP) => Errno::OPNOTSUPP,
            error => errno(error),
        })
    }

    fn guard(&self, file: BorrowedFd<'_>) -> Result<Box<dyn Send + Sync>, Errno> {
        Ok(Box::new(self.0.guard(file).map_err(errno)?))
    }
}

fn errno(error: ShimError) -> Errno {
    match error {
        ShimError::Refused(errno) | ShimError::Unguarded(errno) => errno,
        ShimError::Gone => {
            error!("{error}: files can no longer be mapped");
            Errno::IO
        }
    }
}
