//! The thread that watches the other members.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::fs::fstat;

use super::{Inner, heat, members};

/// How often the records are looked at. After a death, guests may use what they have cached for this long, and a bit
/// for the look itself: within 200 ms on a machine that is not overloaded.
const EVERY: Duration = Duration::from_millis(50);

/// The thread, until this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(inner: &Arc<Inner>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let inner = Arc::clone(inner);
        let thread = thread::Builder::new().name("group".into()).spawn(move || {
            let mut is_retired = false;
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                members::bury_dead(&inner.file, &inner.table, &inner.area, &inner.record);
                inner.host_watch.settle(&inner);
                if !is_retired && is_replaced(&inner) {
                    is_retired = true;
                    tracing::error!(
                        "the version table or this daemon's mirror was removed or replaced while in use: guests of \
                         the group cache nothing under it until all daemons of the group have ended"
                    );
                    heat::retire(&inner.table, &inner.area);
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// Returns whether the table or the mirror has no name any more, so that whoever joins now writes another file.
fn is_replaced(inner: &Inner) -> bool {
    let files = [Some(&inner.file), inner.mirror.get().map(|mirror| &mirror.fd)];
    files.into_iter().flatten().any(|file| fstat(file).is_ok_and(|stat| stat.st_nlink == 0))
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
