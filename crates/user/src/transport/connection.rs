//! The connection to the back end, and the thread that monitors it.
//!
//! The back end sends nothing unsolicited on this socket. The thread sleeps until the other side hangs up or an answer
//! is late; in the latter case it shuts the socket down, which is the only way to interrupt a blocked reader. Either
//! way, the waiters of every queue wake up and find [`Connection::is_gone`] set.

use std::{
    io,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

use super::wake::Wake;
use crate::{
    platform::{now_ns, timespec, until},
    window::Window,
};

/// How long an answer may take. Back ends answer within milliseconds, except when they stop a queue with requests in
/// flight.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Stands for no deadline.
const NEVER: u64 = u64::MAX;

/// The connection, for its users.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    is_gone: AtomicBool,
    /// Whether it ended because an answer was late.
    was_late: AtomicBool,
    /// Deadline of the pending answer, on the monotonic clock.
    deadline_ns: AtomicU64,
    /// Makes the monitoring thread check the deadline again.
    wake: Wake,
    is_over: AtomicBool,
    /// Events of the queues' waiters.
    waits: Mutex<Vec<Arc<Wake>>>,
    /// The window that the connection maps.
    window: OnceLock<Window>,
}

/// The connection, for its owner. Dropping this closes it.
#[derive(Debug)]
pub(super) struct OwnedConnection {
    connection: Arc<Connection>,
    thread: Option<JoinHandle<()>>,
}

impl OwnedConnection {
    /// Starts to monitor `stream`.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let connection = Arc::new(Connection {
            stream,
            is_gone: AtomicBool::new(false),
            was_late: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(NEVER),
            wake: Wake::new()?,
            is_over: AtomicBool::new(false),
            waits: Mutex::default(),
            window: OnceLock::new(),
        });
        let watching = Arc::clone(&connection);
        let thread = std::thread::Builder::new().name("transom-connection".into()).spawn(move || watching.watch())?;
        Ok(Self { connection, thread: Some(thread) })
    }
}

impl std::ops::Deref for OwnedConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for OwnedConnection {
    fn drop(&mut self) {
        self.connection.hang_up();
        self.connection.is_over.store(true, Ordering::Release);
        self.connection.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported, and there is no one left to inform.
            let _ = thread.join();
        }
    }
}

impl Connection {
    /// Returns whether either side has hung up.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Returns whether we hung up because an answer was late.
    pub(super) fn was_late(&self) -> bool {
        self.was_late.load(Ordering::Acquire)
    }

    /// Wakes `wait` when the connection ends.
    pub(super) fn add_wait(&self, wait: Arc<Wake>) {
        self.waits.lock().push(Arc::clone(&wait));
        if self.is_gone() {
            wait.wake();
        }
    }

    /// Closes `window` when the connection ends. There is at most one.
    pub(super) fn add_window(&self, window: &Window) {
        // Cannot fail, because it is the only one.
        let _ = self.window.set(window.clone());
        if self.is_gone() {
            window.close();
        }
    }

    /// Runs `ask`, which waits for an answer, and hangs up if that takes longer than [`ANSWER_MAX`].
    pub(super) fn in_time<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.set_deadline(now_ns() + ANSWER_MAX.as_nanos() as u64);
        let answer = ask();
        self.deadline_ns.store(NEVER, Ordering::Release);
        answer
    }

    /// Sets an earlier deadline. A later one needs no wake: the thread checks again when the old one passes.
    fn set_deadline(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Ordering::Release);
        self.wake.wake();
    }

    /// Ends the connection for both sides.
    pub(super) fn hang_up(&self) {
        self.is_gone.store(true, Ordering::Release);
        // Fails if the other side has already closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(window) = self.window.get() {
            window.close();
        }
        self.waits.lock().iter().for_each(|wait| wait.wake());
    }

    fn watch(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            let deadline_ns = self.deadline_ns.load(Ordering::Acquire);
            let timeout = (deadline_ns != NEVER).then(|| timespec(until(deadline_ns)));
            // Answers are read by the callers that wait for them; POLLHUP and POLLERR are always reported.
            let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP), PollFd::new(&self.wake, PollFlags::IN)];
            if poll(&mut fds, timeout.as_ref()).is_err() {
                continue;
            }
            if !fds[0].revents().is_empty() {
                return self.hang_up();
            }
            if !fds[1].revents().is_empty() {
                self.wake.wait(None);
            }
            if self.deadline_ns.load(Ordering::Acquire) <= now_ns() {
                self.was_late.store(true, Ordering::Release);
                return self.hang_up();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_peer_that_hangs_up_wakes_every_waiter() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection = OwnedConnection::new(ours).unwrap();
        let waits = [(); 3].map(|()| Arc::new(Wake::new().unwrap()));
        waits.iter().for_each(|wait| connection.add_wait(Arc::clone(wait)));
        drop(theirs);
        waits.iter().for_each(|wait| wait.wait(None));
        assert!(connection.is_gone());
    }

    #[test]
    fn a_waiter_that_comes_after_the_end_is_woken_too() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection = OwnedConnection::new(ours).unwrap();
        drop(theirs);
        let first = Arc::new(Wake::new().unwrap());
        connection.add_wait(Arc::clone(&first));
        first.wait(None);
        let late = Arc::new(Wake::new().unwrap());
        connection.add_wait(Arc::clone(&late));
        late.wait(None);
    }

    #[test]
    fn an_answer_that_does_not_come_ends_the_connection() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let connection = OwnedConnection::new(ours.try_clone().unwrap()).unwrap();
        connection.set_deadline(now_ns());
        assert_eq!((&ours).read(&mut [0; 1]).unwrap(), 0);
        assert!(connection.is_gone());
    }

    #[test]
    fn an_answer_in_time_leaves_the_connection_alone() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let connection = OwnedConnection::new(ours).unwrap();
        assert_eq!(connection.in_time(|| 7), 7);
        assert!(!connection.is_gone());
    }

    #[test]
    fn the_other_side_sees_the_end_when_the_owner_drops_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        drop(OwnedConnection::new(ours).unwrap());
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    }
}
