//! The connection to the back end, and the thread that watches it.
//!
//! The back end says nothing of its own accord on this socket, so the thread sleeps until the other side hangs up, or
//! until an answer has taken too long: then it hangs up itself, for whoever reads from the socket cannot be told
//! otherwise. Either way every waiter of every queue wakes and finds [`Line::is_gone`].

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

/// How long an answer may take. Back ends answer within milliseconds, but for the one that waits for requests in
/// flight.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The deadline where there is none.
const NEVER: u64 = u64::MAX;

/// The connection, for those that use it.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    is_gone: AtomicBool,
    /// An answer took too long, and that is why.
    was_late: AtomicBool,
    /// When the answer that somebody waits for is late, on the monotonic clock.
    deadline_ns: AtomicU64,
    /// Makes the watching thread look again.
    look: Wake,
    is_over: AtomicBool,
    /// What the queues' waiters wait on.
    waits: Mutex<Vec<Arc<Wake>>>,
    /// What is mapped by way of the connection.
    window: OnceLock<Window>,
}

/// The connection, for the one that owns it: it is closed with this.
#[derive(Debug)]
pub(super) struct Watched {
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    /// Watches `stream`.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let line = Arc::new(Line {
            stream,
            is_gone: AtomicBool::new(false),
            was_late: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(NEVER),
            look: Wake::new()?,
            is_over: AtomicBool::new(false),
            waits: Mutex::default(),
            window: OnceLock::new(),
        });
        let watching = Arc::clone(&line);
        let thread = std::thread::Builder::new().name("transom-line".into()).spawn(move || watching.watch())?;
        Ok(Self { line, thread: Some(thread) })
    }
}

impl std::ops::Deref for Watched {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.line.hang_up();
        self.line.is_over.store(true, Ordering::Release);
        self.line.look.wake();
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Line {
    /// Whether the other side has hung up, or we have.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether we hung up because an answer took too long.
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

    /// Closes `window` when the connection ends; there is one at most.
    pub(super) fn add_window(&self, window: &Window) {
        // It is the only one.
        let _ = self.window.set(window.clone());
        if self.is_gone() {
            window.close();
        }
    }

    /// Runs `ask`, which waits for an answer, and hangs up when that takes more than [`ANSWER_MAX`].
    pub(super) fn in_time<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.set_deadline(now_ns() + ANSWER_MAX.as_nanos() as u64);
        let answer = ask();
        self.deadline_ns.store(NEVER, Ordering::Release);
        answer
    }

    /// The thread needs no call when a deadline moves away: it looks when the old one passes.
    fn set_deadline(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Ordering::Release);
        self.look.wake();
    }

    /// Ends the connection for both sides.
    pub(super) fn hang_up(&self) {
        self.is_gone.store(true, Ordering::Release);
        // It fails where the other side was faster.
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
            // Whatever there is to read is for those who asked; POLLHUP and POLLERR come unasked.
            let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP), PollFd::new(&self.look, PollFlags::IN)];
            if poll(&mut fds, timeout.as_ref()).is_err() {
                continue;
            }
            if !fds[0].revents().is_empty() {
                return self.hang_up();
            }
            if !fds[1].revents().is_empty() {
                self.look.wait(None);
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
        let line = Watched::new(ours).unwrap();
        let waits = [(); 3].map(|()| Arc::new(Wake::new().unwrap()));
        waits.iter().for_each(|wait| line.add_wait(Arc::clone(wait)));
        drop(theirs);
        waits.iter().for_each(|wait| wait.wait(None));
        assert!(line.is_gone());
    }

    #[test]
    fn a_waiter_that_comes_after_the_end_is_woken_too() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let line = Watched::new(ours).unwrap();
        drop(theirs);
        let first = Arc::new(Wake::new().unwrap());
        line.add_wait(Arc::clone(&first));
        first.wait(None);
        let late = Arc::new(Wake::new().unwrap());
        line.add_wait(Arc::clone(&late));
        late.wait(None);
    }

    #[test]
    fn an_answer_that_does_not_come_ends_the_connection() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let line = Watched::new(ours.try_clone().unwrap()).unwrap();
        line.set_deadline(now_ns());
        assert_eq!((&ours).read(&mut [0; 1]).unwrap(), 0);
        assert!(line.is_gone());
    }

    #[test]
    fn an_answer_in_time_leaves_the_connection_alone() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let line = Watched::new(ours).unwrap();
        assert_eq!(line.in_time(|| 7), 7);
        assert!(!line.is_gone());
    }

    #[test]
    fn the_other_side_sees_the_end_when_the_owner_drops_it() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        drop(Watched::new(ours).unwrap());
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    }
}
