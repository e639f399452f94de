//! [`Supervisor`]: runs a mount that outlives its daemons, one connection after the other.

use std::{os::fd::AsFd as _, sync::Arc, time::Duration};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
};
use transom_guest::transport::TransportError;
use transom_wire::Opcode;

use super::{Reconnect, restore::restore, retry::RetryPolicy, stage::batch_forget, waiting::Waiting};
use crate::{
    InitError, MountEnd, MountError, Options, PendingConnection,
    backlog::{Backlog, ParkedRequest},
    fuse_device::FuseDevice,
    mount_state::MountState,
    request::Request,
    worker::QueueWorker,
};
use transom_user::{
    platform::{now_ns, timespec},
    share::Builder,
};

/// Holds what outlives a connection. While the descriptors of `/dev/fuse` are open, the kernel keeps its requests.
pub(crate) struct Supervisor {
    pub(crate) state: Arc<MountState>,
    pub(crate) reconnect: Arc<Reconnect>,
    /// The descriptor of each worker.
    pub(crate) devices: Vec<Arc<FuseDevice>>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) source: Builder,
    pub(crate) options: Options,
}

impl Supervisor {
    /// Serves until the mount ends.
    pub(crate) fn run(self, mut workers: Vec<QueueWorker>) {
        let wait_max = self.options.reconnect.unwrap_or_default();
        let mut policy = RetryPolicy::new(wait_max, self.source.starts_daemon(), now_ns());
        let end = loop {
            let (left, end) = self.run_workers(workers);
            if !matches!(end, MountEnd::Gone | MountEnd::Broken(_)) || self.reconnect.cause().is_some() {
                break end;
            }
            self.settle(left);
            match self.reconnect(&mut policy, end) {
                Ok(next) => {
                    policy.served(now_ns());
                    workers = next;
                }
                Err(end) => break end,
            }
        };
        self.state.end(end);
    }

    /// Runs the workers until the connection ends. Returns them, and why it has ended.
    fn run_workers(&self, workers: Vec<QueueWorker>) -> (Vec<QueueWorker>, MountEnd) {
        let connection = Arc::clone(workers[0].connection());
        let threads: Vec<_> = workers
            .into_iter()
            .filter_map(|worker| {
                let thread = std::thread::Builder::new().name(worker.thread_name()).spawn(move || worker.run());
                thread
                    .inspect_err(|error| {
                        connection.end(MountEnd::Kernel(Errno::from_io_error(error).unwrap_or(Errno::AGAIN)))
                    })
                    .ok()
            })
            .collect();
        // A thread that panicked leaves nothing.
        let left = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        (left, connection.cause().unwrap_or(MountEnd::Gone))
    }

    /// Cleans up after a connection: passes on the replies that the daemon has written, puts requests into the backlog
    /// that can be repeated, and fails the others.
    fn settle(&self, mut workers: Vec<QueueWorker>) {
        workers.iter_mut().for_each(QueueWorker::drain);
        let unanswered: Vec<_> = workers.iter().flat_map(QueueWorker::unanswered).collect();
        let interrupted = self.reconnect.disconnected();
        // Dropping the last reference to the connection ends a daemon that was started for it.
        drop(workers);
        self.state.replace(None);
        for parked in unanswered {
            let was_interrupted = interrupted.contains(&parked.header.unique.get());
            self.settle_one(parked, was_interrupted);
        }
    }

    fn settle_one(&self, parked: ParkedRequest, was_interrupted: bool) {
        let Some(request) = Request::new(&parked.message) else { return };
        let (device, unique) = (&self.devices[parked.worker], parked.header.unique.get());
        // If a reply fails, nobody waits for it.
        let _ = match (request.is_repeatable(), was_interrupted) {
            _ if request.opcode == Some(Opcode::Flush) => device.done(unique),
            (true, false) => return self.backlog.put(parked),
            // The old daemon had the interrupt, and the kernel does not repeat it.
            (true, true) => device.fail(unique, Errno::INTR),
            (false, _) => {
                if let Some((from, to)) = request.rename() {
                    self.reconnect.tables.lock().inodes.maybe_renamed(&from, &to);
                }
                device.fail(unique, Errno::IO)
            }
        };
    }

    /// Gets another daemon, while the kernel's requests wait.
    ///
    /// # Errors
    /// The mount has ended, or is to end for `reason`.
    fn reconnect(&self, policy: &mut RetryPolicy, reason: MountEnd) -> Result<Vec<QueueWorker>, MountEnd> {
        let begin_ns = now_ns();
        policy.lost(begin_ns);
        tracing::warn!("{reason}: requests wait for another one");
        let done = eventfd(0, EventfdFlags::CLOEXEC).map_err(MountEnd::Kernel)?;
        let workers = std::thread::scope(|scope| {
            let waiting = Waiting {
                devices: &self.devices,
                backlog: &self.backlog,
                reconnect: &self.reconnect,
                state: &self.state,
            };
            let done = done.as_fd();
            let thread = std::thread::Builder::new().name("transom-waiting".into());
            let thread = thread.spawn_scoped(scope, move || waiting.run(done));
            thread.map_err(|error| MountEnd::Kernel(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))?;
            let workers = self.attempts(policy, reason);
            // Fails only for a bad descriptor or buffer.
            let _ = rustix::io::write(done, &1u64.to_ne_bytes());
            workers
        })?;
        let (files, inodes, lost_files, lost_inodes) = {
            let tables = self.reconnect.tables.lock();
            let (handles, inodes) = (&tables.handles, &tables.inodes);
            (handles.count(), inodes.count(), handles.lost_count(), inodes.lost_count())
        };
        let seconds = (now_ns() - begin_ns) as f64 / 1e9;
        tracing::warn!(seconds, inodes, lost_inodes, files, lost_files, "another daemon serves the mount");
        self.resume(workers)
    }

    /// Sends the requests that have waited.
    fn resume(&self, mut workers: Vec<QueueWorker>) -> Result<Vec<QueueWorker>, MountEnd> {
        let owed = std::mem::take(&mut self.reconnect.tables.lock().owed);
        let forgets = batch_forget(&owed);
        let sent = forgets.map_or(Ok(()), |message| workers[0].connection().send_hiprio(&message));
        let sent = sent.and_then(|()| workers.iter_mut().try_for_each(QueueWorker::submit_parked));
        match sent {
            // The workers will find the same.
            Ok(()) | Err(MountEnd::Gone | MountEnd::Broken(_)) => Ok(workers),
            Err(end) => Err(end),
        }
    }

    fn attempts(&self, policy: &mut RetryPolicy, reason: MountEnd) -> Result<Vec<QueueWorker>, MountEnd> {
        let mut last = None;
        loop {
            let Some(pause) = policy.next(now_ns()) else {
                let error: Option<String> = last;
                tracing::warn!(error, "no other daemon was found in time: the mount ends");
                return Err(reason);
            };
            self.pause(pause)?;
            match self.attempt() {
                Ok(workers) => return Ok(workers),
                Err(error) => {
                    // The tables have numbers of the daemon that failed. They are of no use to the next one.
                    self.reconnect.disconnected();
                    self.state.replace(None);
                    if let Some(end) = self.reconnect.cause() {
                        return Err(end);
                    }
                    let error = with_causes(&error);
                    if last.as_ref() != Some(&error) {
                        tracing::warn!(error, "cannot use a new daemon yet");
                    }
                    last = Some(error);
                }
            }
        }
    }

    /// Blocks for `pause`.
    ///
    /// # Errors
    /// The mount has ended.
    fn pause(&self, pause: Duration) -> Result<(), MountEnd> {
        let over = self.reconnect.over();
        // A signal that ends the pause early does no harm.
        let _ = poll(&mut [PollFd::new(&over, PollFlags::IN)], Some(&timespec(pause)));
        self.reconnect.cause().map_or(Ok(()), Err)
    }

    fn attempt(&self) -> Result<Vec<QueueWorker>, MountError> {
        let pending = PendingConnection::connect(&self.source, &self.options)?;
        if pending.queue_count() < self.devices.len() {
            return Err(MountError::Device(TransportError::Lacks("as many request queues as the first daemon").into()));
        }
        let backlog = Arc::clone(&self.backlog);
        let split = pending.into_workers(&self.options, backlog, Some(Arc::clone(&self.reconnect)));
        let (connection, mut new_worker) = split.map_err(MountError::Threads)?;
        connection.devices.set(self.devices.clone());
        self.state.replace(Some(connection));
        let mut workers: Vec<_> = self.devices.iter().filter_map(|device| new_worker(Arc::clone(device))).collect();
        restore(&mut workers[0].daemon_client().map_err(InitError::End)?, &self.reconnect)?;
        Ok(workers)
    }
}

/// Returns an error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
