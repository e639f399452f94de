//! The thread that has the kernel look up names again.

use rustix::io::Errno;

use super::{
    Coherence,
    names::{Batch, NameExpirer},
};
use crate::{connection::Connection, notification::expire_entry};

/// Works until `connection` has ended, or the queue of `expirer` was dropped.
pub(crate) fn expire_until_end(expirer: NameExpirer, coherence: &Coherence, connection: &Connection) {
    expirer.work(|batch| expire(connection, batch), |names| coherence.drop_names(names.len()));
}

/// Has the kernel look up the names of a batch at their next use. Errors: the mount has ended.
fn expire(connection: &Connection, batch: &Batch) -> Result<(), Errno> {
    let device = connection.devices.get(0).ok_or(Errno::NODEV)?;
    for name in &batch.names {
        match expire_entry(&device, batch.directory, name) {
            // The kernel has dropped it.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno @ (Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN)) => return Err(errno),
            Err(errno) => tracing::warn!(%errno, directory = %batch.directory, "the kernel may use an old name"),
        }
    }
    Ok(())
}
