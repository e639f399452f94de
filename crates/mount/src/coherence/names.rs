//! The queue of names that the kernel is to look up again, and when [`expirer`](super::expirer) tells it.
//!
//! FUSE_NOTIFY_INVAL_ENTRY takes the lock of the directory, which a request that looks up or makes a name there holds
//! until it is answered. Nothing else waits for this thread: neither workers nor notifications about inodes.
//!
//! The kernel may also refresh a name without that lock: it asks the daemon, and stores the time for which the answer
//! is valid only after this thread has told it that the name has expired. So each name expires once more a moment
//! later; a process that needs longer than that to store an answer may use it for [`FOLLOWED_VALID_S`](super::stage).

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use rustix::io::Errno;
use transom_wire::NodeId;

use super::known::NameSet;

/// The name of the thread that works the queue off.
pub(crate) const NAMES_THREAD_NAME: &str = "transom-names";

/// How long after the first time a name expires again. A process needs some microseconds, or the time slices of others,
/// to store an answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Names of one directory that the kernel is to look up again.
pub(super) struct Batch {
    pub(super) directory: NodeId,
    pub(super) names: NameSet,
}

/// Takes names for [`NameExpirer`].
pub(crate) struct NameQueue(Sender<Batch>);

impl NameQueue {
    /// Appends `names` of `directory`.
    pub(super) fn push(&self, directory: NodeId, names: NameSet) {
        if !names.is_empty() {
            // The thread has ended with the mount.
            let _ = self.0.send(Batch { directory, names });
        }
    }
}

/// Has the kernel look up again what is put into its queue.
pub(crate) struct NameExpirer {
    queue: Receiver<Batch>,
    /// What has expired once, with the time of the second, in order.
    again: VecDeque<(Instant, Batch)>,
}

impl NameExpirer {
    /// Returns an empty queue and what works it off.
    pub(crate) fn new() -> (NameQueue, Self) {
        let (sender, queue) = channel();
        (NameQueue(sender), Self { queue, again: VecDeque::new() })
    }

    /// Has `expire` called twice for each batch, and then `done`, until it fails or the queue was dropped.
    pub(super) fn work(mut self, expire: impl Fn(&Batch) -> Result<(), Errno>, done: impl Fn(NameSet)) {
        loop {
            let now = Instant::now();
            let is_due = self.again.front().is_some_and(|(due, _)| *due <= now);
            if is_due && let Some((_, batch)) = self.again.pop_front() {
                if expire(&batch).is_err() {
                    return;
                }
                done(batch.names);
                continue;
            }
            let pause = self.again.front().map_or(Duration::MAX, |(due, _)| *due - now);
            match self.queue.recv_timeout(pause) {
                Ok(batch) if expire(&batch).is_ok() => {
                    self.again.push_back((Instant::now() + AGAIN_AFTER, batch));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    fn names(names: &[&str]) -> NameSet {
        names.iter().map(|name| name.as_bytes().into()).collect()
    }

    #[test]
    fn each_name_expires_twice_and_is_dropped_then() {
        let (queue, expirer) = NameExpirer::new();
        let (sender, calls) = mpsc::channel();
        let worker = thread::spawn(move || {
            let expired =
                |batch: &Batch| sender.send((Some(batch.directory), batch.names.clone())).map_err(|_| Errno::IO);
            expirer.work(expired, |names| _ = sender.send((None, names)));
        });
        let first = (NodeId(7), names(&["a", "b"]));
        let second = (NodeId(8), names(&["c"]));
        queue.push(NodeId(9), NameSet::new());
        queue.push(first.0, first.1.clone());
        queue.push(second.0, second.1.clone());
        let mut seen = Vec::new();
        while seen.len() < 6 {
            seen.push(calls.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        let of = |(directory, names): &(NodeId, NameSet)| {
            let count = |wanted| seen.iter().filter(|(to, seen)| *to == wanted && seen == names).count();
            (count(Some(*directory)), count(None), seen.iter().rposition(|(_, seen)| seen == names))
        };
        let (first, second) = (of(&first), of(&second));
        assert_eq!((first.0, first.1, second.0, second.1), (2, 1, 2, 1));
        // Dropped last.
        assert!(seen[first.2.unwrap()].0.is_none() && seen[second.2.unwrap()].0.is_none());
        drop(queue);
        worker.join().unwrap();
    }
}
