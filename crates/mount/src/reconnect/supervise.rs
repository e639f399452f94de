//! The life of a mount that outlives its daemons: one connection after the other.

use std::{os::fd::AsFd as _, sync::Arc, time::Duration};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
};
use transom_guest::transport::TransportError;
use transom_wire::Opcode;

use super::{Reconnect, limit::Limit, request::Request, waiting::Waiting};
use crate::{
    End, MountError, Options, Parts,
    backlog::{Backlog, Parked},
    kernel::Kernel,
    lane::Lane,
    served::Served,
};
use transom_user::{
    platform::{now_ns, timespec},
    share::Builder,
};

/// Holds what outlives a connection, and the kernel's descriptors: while they are open the kernel keeps what it has asked for.
pub(crate) struct Supervisor {
    pub(crate) served: Arc<Served>,
    pub(crate) reconnect: Arc<Reconnect>,
    pub(crate) kernels: Vec<Arc<Kernel>>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) source: Builder,
    pub(crate) options: Options,
}

impl Supervisor {
    /// Serves until the mount ends.
    pub(crate) fn run(self, mut lanes: Vec<Lane>) {
        let wait_max = self.options.reconnect.unwrap_or_default();
        let mut limit = Limit::new(wait_max, self.source.starts_daemon(), now_ns());
        let end = loop {
            let (left, end) = self.carry(lanes);
            if !matches!(end, End::Gone | End::Broken(_)) || self.reconnect.cause().is_some() {
                break end;
            }
            self.settle(left);
            match self.again(&mut limit, end) {
                Ok(next) => {
                    limit.served(now_ns());
                    lanes = next;
                }
                Err(end) => break end,
            }
        };
        self.served.end(end);
    }

    /// Carries messages until the connection ends; gives what is left, and why it has ended.
    fn carry(&self, lanes: Vec<Lane>) -> (Vec<Lane>, End) {
        let shared = Arc::clone(&lanes[0].shared);
        let threads: Vec<_> = lanes
            .into_iter()
            .filter_map(|lane| {
                let thread = std::thread::Builder::new().name(lane.name()).spawn(move || lane.run());
                thread
                    .inspect_err(|error| shared.end(End::Kernel(Errno::from_io_error(error).unwrap_or(Errno::AGAIN))))
                    .ok()
            })
            .collect();
        // A thread that has panicked leaves nothing.
        let left = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        (left, shared.cause().unwrap_or(End::Gone))
    }

    /// The connection is over: what the daemon has still answered goes to the kernel; of the rest, what may be asked twice is put
    /// aside, and what may not fails.
    fn settle(&self, mut lanes: Vec<Lane>) {
        lanes.iter_mut().for_each(Lane::drain);
        let unanswered: Vec<_> = lanes.iter().flat_map(Lane::unanswered).collect();
        let interrupted = self.reconnect.disconnected();
        // With these, and with the last reference to the connection, goes the daemon.
        drop(lanes);
        self.served.replace(None);
        for parked in unanswered {
            let was_interrupted = interrupted.contains(&parked.header.unique.get());
            self.settle_one(parked, was_interrupted);
        }
    }

    fn settle_one(&self, parked: Parked, was_interrupted: bool) {
        let Some(request) = Request::new(&parked.message) else { return };
        let (kernel, unique) = (&self.kernels[parked.lane], parked.header.unique.get());
        // Nobody waits any more where an answer fails.
        let _ = match (request.is_repeatable(), was_interrupted) {
            _ if request.opcode == Some(Opcode::Flush) => kernel.done(unique),
            (true, false) => return self.backlog.put(parked),
            // The interrupt went with the daemon, and does not come again.
            (true, true) => kernel.fail(unique, Errno::INTR),
            (false, _) => {
                if let Some((from, to)) = request.rename() {
                    self.reconnect.tables.lock().inodes.maybe_renamed(&from, &to);
                }
                kernel.fail(unique, Errno::IO)
            }
        };
    }

    /// Gets another daemon, while the kernel's requests wait. Errors: the mount has ended, or is to end.
    fn again(&self, limit: &mut Limit, why: End) -> Result<Vec<Lane>, End> {
        let begun_ns = now_ns();
        limit.lost(begun_ns);
        tracing::warn!("{why}: requests wait for another one");
        let done = eventfd(0, EventfdFlags::CLOEXEC).map_err(End::Kernel)?;
        let lanes = std::thread::scope(|scope| {
            let waiting = Waiting {
                kernels: &self.kernels,
                backlog: &self.backlog,
                reconnect: &self.reconnect,
                served: &self.served,
            };
            let done = done.as_fd();
            let thread = std::thread::Builder::new().name("transom-waiting".into());
            let thread = thread.spawn_scoped(scope, move || waiting.run(done));
            thread.map_err(|error| End::Kernel(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))?;
            let lanes = self.attempts(limit, why);
            // It fails for a bad number or buffer only.
            let _ = rustix::io::write(done, &1u64.to_ne_bytes());
            lanes
        })?;
        let (files, inodes, lost_files, lost_inodes) = {
            let tables = self.reconnect.tables.lock();
            let (handles, inodes) = (&tables.handles, &tables.inodes);
            (handles.count(), inodes.count(), handles.lost_count(), inodes.lost_count())
        };
        let seconds = (now_ns() - begun_ns) as f64 / 1e9;
        tracing::warn!(seconds, inodes, lost_inodes, files, lost_files, "another daemon serves the mount");
        self.begin(lanes)
    }

    /// Sends what has waited.
    fn begin(&self, mut lanes: Vec<Lane>) -> Result<Vec<Lane>, End> {
        let owed = std::mem::take(&mut self.reconnect.tables.lock().owed);
        let sent = lanes[0].send_forgets(&owed).and_then(|()| lanes.iter_mut().try_for_each(Lane::submit_parked));
        match sent {
            // The threads will find the same.
            Ok(()) | Err(End::Gone | End::Broken(_)) => Ok(lanes),
            Err(end) => Err(end),
        }
    }

    fn attempts(&self, limit: &mut Limit, why: End) -> Result<Vec<Lane>, End> {
        let mut last = None;
        loop {
            let Some(pause) = limit.next(now_ns()) else {
                let error: Option<String> = last;
                tracing::warn!(error, "no other daemon has come in time: the mount ends");
                return Err(why);
            };
            self.pause(pause)?;
            match self.attempt() {
                Ok(lanes) => return Ok(lanes),
                Err(error) => {
                    // What the daemon before it has made of the tables is of no use to the next one.
                    self.reconnect.disconnected();
                    self.served.replace(None);
                    if let Some(end) = self.reconnect.cause() {
                        return Err(end);
                    }
                    let error = told(&error);
                    if last.as_ref() != Some(&error) {
                        tracing::warn!(error, "not served yet");
                    }
                    last = Some(error);
                }
            }
        }
    }

    /// Blocks for so long; errors: the mount has ended.
    fn pause(&self, pause: Duration) -> Result<(), End> {
        let over = self.reconnect.over();
        // A signal that ends the poll early only makes this try sooner.
        let _ = poll(&mut [PollFd::new(&over, PollFlags::IN)], Some(&timespec(pause)));
        self.reconnect.cause().map_or(Ok(()), Err)
    }

    fn attempt(&self) -> Result<Vec<Lane>, MountError> {
        let parts = Parts::connect(&self.source, &self.options)?;
        if parts.rings.len() < self.kernels.len() {
            return Err(MountError::Device(TransportError::Lacks("as many request queues as the first daemon").into()));
        }
        let shared = parts.share(&self.options, Arc::clone(&self.backlog), Some(Arc::clone(&self.reconnect)));
        let (shared, mut lane) = shared.map_err(MountError::Threads)?;
        shared.serve(self.kernels.clone());
        self.served.replace(Some(shared));
        let mut lanes: Vec<_> = self.kernels.iter().filter_map(|kernel| lane(Arc::clone(kernel))).collect();
        lanes[0].restore(&self.reconnect)?;
        Ok(lanes)
    }
}

/// An error with its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Lane {
    /// Hands over what the daemon had answered before it went.
    fn drain(&mut self) {
        while let Ok(Some(used)) = self.ring.pop() {
            // The kernel's end shows elsewhere too.
            let _ = self.reply(used);
            self.in_flight[usize::from(used.cookie)].is_under_way = false;
        }
    }
}
