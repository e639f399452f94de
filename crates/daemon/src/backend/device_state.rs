//! The transfer of the session's state, through a pipe that the front end provides (vhost-user, "Migrating back-end
//! state").
//!
//! SET_DEVICE_STATE_FD starts a thread that saves and writes, or reads and loads; CHECK_DEVICE_STATE waits for it and
//! reports the outcome. While the thread waits for its peer, it ends if the peer makes no progress, or when its
//! [`attempt`](super::attempt) is given up. Lock: its own, held briefly.

use std::{
    fs::File,
    io,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, ioctl_fionread},
};
use transom_host::{
    migration::{self, WaitingRequest},
    server::{FileSystem, Server},
};
use vhost::vhost_user::message::{VhostTransferStateDirection as Direction, VhostTransferStatePhase as Phase};

use super::{
    attempt::{Attempt, Attempts},
    in_flight::REQUESTS_MAX,
    queue::Queue,
};

/// The longest state. An inode takes about its path and 16 bytes, so this is enough for some millions.
const STATE_LEN_MAX: usize = 256 << 20;
/// Bytes that are read at once: a pipe's usual capacity.
const CHUNK_LEN: usize = 64 << 10;
/// How long a request may be in flight when the transfer begins. A front end that only disables the rings does not wait
/// for requests, and the guest has its reply a moment before the request ends.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// How often a pipe is looked at until it is empty. The guest stands meanwhile.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

/// Why the state was not transferred.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("this share cannot be migrated: the log says why where the daemon starts")]
    NotOffered,
    #[error("the front end transfers the state of a running device, which only works while the guest is stopped")]
    Running,
    #[error("a transfer of the state is in progress: the front end must wait for its end before it starts another")]
    InProgress,
    #[error("the front end asks for the outcome of a transfer that was not started")]
    NotStarted,
    #[error("{0} requests are in flight, whose answers would be lost: the front end must stop the rings first")]
    InFlight(u32),
    #[error("the peer has made no progress for {} s: is the other side still there?", .0.as_secs())]
    Idle(Duration),
    #[error("the state has more than {STATE_LEN_MAX} bytes: let the guest forget inodes (drop its caches) first")]
    TooLong,
    #[error("it was given up: the guest goes on here, its device was reset, or the front end has left")]
    GivenUp,
    #[error("the transfer has ended without an outcome")]
    Lost,
    #[error("cannot transfer the state: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    State(#[from] migration::Error),
}

/// Logs an error whose cause the vhost-user crate drops, and returns what that crate takes.
pub(super) fn refused(error: &Error, direction: Direction) -> io::Error {
    tracing::error!(%error, ?direction, "migration refused");
    io::ErrorKind::Other.into()
}

/// The transfer of the state, if there is one.
#[derive(Debug, Default)]
pub(super) struct DeviceState {
    thread: Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

/// The other end of the transfer.
struct Peer {
    pipe: File,
    attempt: Arc<Attempt>,
    idle_max: Duration,
}

impl DeviceState {
    /// Starts a transfer, which ends if its attempt is given up.
    pub(super) fn start<F: FileSystem + 'static>(
        &self,
        server: &Arc<Server<F>>,
        queues: &[Arc<Queue<F>>],
        (direction, phase): (Direction, Phase),
        (pipe, attempts): (File, &Attempts),
        idle_max: Duration,
    ) -> Result<(), Error> {
        if phase != Phase::STOPPED {
            return Err(Error::Running);
        }
        let in_flight = queues.iter().map(|queue| queue.in_flight.settle(SETTLED_AFTER)).sum();
        if in_flight > 0 {
            return Err(Error::InFlight(in_flight));
        }
        let mut thread = self.lock();
        if let Some(earlier) = thread.take_if(|thread| !thread.is_finished()) {
            if attempts.is_under_way() {
                *thread = Some(earlier);
                return Err(Error::InProgress);
            }
            // It was given up, and is about to end.
            let _ = earlier.join();
        }
        let peer = Peer { pipe, attempt: attempts.begin()?, idle_max };
        let flags = fcntl_getfl(&peer.pipe).map_err(io::Error::from)?;
        fcntl_setfl(&peer.pipe, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
        let (server, queues) = (server.clone(), queues.to_vec());
        let run = move || match direction {
            Direction::SAVE => {
                let state = server.save_state(waiting(&queues))?;
                // The destination would refuse it, after it has received most of it.
                if state.len() > STATE_LEN_MAX {
                    return Err(Error::TooLong);
                }
                peer.write(&state)?;
                tracing::info!(len_bytes = state.len(), "state saved");
                peer.wait_until_read()?;
                // The destination goes on once it sees the end, which is when `peer` is dropped.
                peer.attempt.unless_given_up(|| server.file_system().let_go()).ok_or(Error::GivenUp)
            }
            Direction::LOAD => {
                let state = peer.read()?;
                let load = || server.load_state(&state).map(|requests| arrive(&queues, &requests));
                Ok(peer.attempt.unless_given_up(load).ok_or(Error::GivenUp)??)
            }
        };
        *thread = Some(thread::Builder::new().name("device-state".into()).spawn(run)?);
        Ok(())
    }

    /// Waits for the end of the transfer and returns its outcome, once.
    pub(super) fn check(&self) -> Result<(), Error> {
        let thread = self.lock().take().ok_or(Error::NotStarted)?;
        thread.join().map_err(|_| Error::Lost)?
    }

    /// Waits for the end of a transfer whose outcome nobody wants. The caller has let it end.
    pub(super) fn abandon(&self) {
        if let Err(error) = self.check()
            && !matches!(error, Error::NotStarted)
        {
            tracing::warn!(%error, "the transfer of the state has failed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<Result<(), Error>>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the requests that wait for a lock. The rings are stopped.
fn waiting<F: FileSystem>(queues: &[Arc<Queue<F>>]) -> Vec<WaitingRequest> {
    let of_queue = |(queue, of): (u16, &Arc<Queue<F>>)| {
        of.in_flight.waiting_heads().into_iter().map(move |head| WaitingRequest { queue, head }).collect::<Vec<_>>()
    };
    (0..).zip(queues).flat_map(of_queue).collect()
}

/// Has each ring serve the requests that came with a state, once it runs.
fn arrive<F: FileSystem>(queues: &[Arc<Queue<F>>], requests: &[WaitingRequest]) {
    for (number, queue) in (0..).zip(queues) {
        let heads = requests.iter().filter(|request| request.queue == number).map(|request| request.head);
        // A guest has fewer; the rest is of a source without sense.
        queue.in_flight.arrive(heads.take(REQUESTS_MAX as usize).collect());
    }
}

impl Peer {
    fn write(&self, mut state: &[u8]) -> Result<(), Error> {
        while !state.is_empty() {
            match rustix::io::write(&self.pipe, state) {
                Ok(written) => state = &state[written..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Ok(())
    }

    /// Waits until the pipe is empty: a front end that closes it before does not have the state.
    fn wait_until_read(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.idle_max;
        // What is not a pipe does not tell.
        while ioctl_fionread(&self.pipe).is_ok_and(|unread| unread > 0) {
            if Instant::now() > deadline {
                return Err(Error::Idle(self.idle_max));
            }
            // Nobody is told that a pipe is empty, but that it has no reader any more.
            let mut fds = [
                PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::empty()),
                PollFd::from_borrowed_fd(self.attempt.end(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if !fds[1].revents().is_empty() => return Err(Error::GivenUp),
                Ok(_) => return Err(io::Error::from(Errno::PIPE).into()),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Ok(())
    }

    /// Reads up to the end of the stream.
    fn read(&self) -> Result<Vec<u8>, Error> {
        let mut state = Vec::new();
        let mut chunk = vec![0; CHUNK_LEN];
        loop {
            match rustix::io::read(&self.pipe, &mut chunk) {
                Ok(0) => return Ok(state),
                Ok(len) if state.len() + len > STATE_LEN_MAX => return Err(Error::TooLong),
                Ok(len) => state.extend_from_slice(&chunk[..len]),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }

    /// Waits until the peer has made progress.
    fn wait(&self, event: PollFlags) -> Result<(), Error> {
        let timeout = Timespec::try_from(self.idle_max).map_err(|_| Error::Idle(self.idle_max))?;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.pipe.as_fd(), event),
                PollFd::from_borrowed_fd(self.attempt.end(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(Error::Idle(self.idle_max)),
                Ok(_) if !fds[1].revents().is_empty() => return Err(Error::GivenUp),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}
