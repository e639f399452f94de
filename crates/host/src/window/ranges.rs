//! The ranges of the window, the jobs that change them, and the waits for both.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use transom_metrics::WindowUsage;
use transom_wire::NodeId;

use super::{FrontEnd, MappedFile, RANGE_LEN};
use crate::Errno;

/// Number of interrupts that a wait ignores before it ends. A reply that the front end has already sent, but the
/// worker has not read yet, must not be missed, since a reset that may follow ends its mapping.
const INTERRUPTS_BORNE: u64 = 4;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) len_bytes: u64,
    pub(super) front_end: FrontEnd,
    pub(super) state: Mutex<State>,
    /// Signalled when a range is no longer being changed, a wait is interrupted, or the connection changes.
    pub(super) changed: Condvar,
    /// Signalled when there is a job, or the connection changes.
    pub(super) has_job: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ranges: Vec<Range>,
    pub(super) jobs: VecDeque<Job>,
    /// Incremented by every connection and disconnection. Results of an earlier connection are ignored.
    pub(super) connection: u64,
    pub(super) link: Link,
    /// Files with mapped ranges, while a range or a request refers to them.
    pub(super) files: HashMap<NodeId, Weak<MappedFile>>,
    /// Number of interrupts of waits.
    pub(super) interrupts: u64,
    /// Number of times that the device was stopped.
    pub(super) stops: u64,
    /// Number of device resets that we were told of.
    pub(super) resets: u64,
    pub(super) usage: WindowUsage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// No front end, or one without a window.
    None,
    Up,
    /// The front end closed the channel: nothing can be mapped or unmapped any more.
    Lost,
}

#[derive(Debug)]
pub(super) enum Range {
    Free,
    /// A job is changing it.
    Changing,
    Mapped(Mapped),
}

/// A range of a file that is mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) file: Arc<MappedFile>,
    pub(super) file_offset: u64,
    /// [`State::stops`] when the front end had mapped it.
    pub(super) stops: u64,
}

/// A change of one range to request from the front end.
#[derive(Debug)]
pub(super) struct Job {
    index: usize,
    /// The existing mapping, which is removed first.
    old: Option<Mapped>,
    /// The existing mapping may no longer be there: the front end has removed or replaced it, or refused to remove it.
    is_old_gone: bool,
    new: Option<(Arc<MappedFile>, u64)>,
    outcome: JobOutcome,
}

/// Receives the result of a job.
pub(super) type JobOutcome = Arc<OnceLock<Result<(), Errno>>>;

/// When the front end reported that it had mapped a range.
pub(super) struct MapTime {
    /// Duration of the mapping, with its share of the barrier.
    pub(super) took: Duration,
    /// [`State::stops`] at the front end's reply.
    pub(super) stops: u64,
    /// [`State::resets`] at the front end's reply.
    pub(super) resets: u64,
}

/// The result of a job.
pub(super) enum JobVerdict {
    Done(Option<MapTime>),
    /// The front end refused to map; the previous mapping is removed.
    Refused,
    /// The channel is gone.
    Lost,
}

impl State {
    /// Marks a range that is not being changed, and adds the job. Errors: ENOTCONN without a channel.
    pub(super) fn begin(&mut self, index: usize, new: Option<(Arc<MappedFile>, u64)>) -> Result<JobOutcome, Errno> {
        if self.link != Link::Up {
            return Err(Errno::NOTCONN);
        }
        let old = match std::mem::replace(&mut self.ranges[index], Range::Changing) {
            Range::Mapped(mapped) => Some(mapped),
            Range::Free | Range::Changing => None,
        };
        let outcome = Arc::new(OnceLock::new());
        self.jobs.push_back(Job { index, old, is_old_gone: false, new, outcome: outcome.clone() });
        Ok(outcome)
    }

    pub(super) fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }
}

impl Shared {
    pub(super) fn new(len_bytes: u64, front_end: FrontEnd) -> Self {
        let count = usize::try_from(len_bytes.min(front_end.window_len_max()) / RANGE_LEN).unwrap_or(0);
        let state = State {
            ranges: (0..count).map(|_| Range::Free).collect(),
            jobs: VecDeque::new(),
            connection: 0,
            link: Link::None,
            files: HashMap::new(),
            interrupts: 0,
            stops: 0,
            resets: 0,
            usage: WindowUsage { len_bytes, ..WindowUsage::default() },
        };
        Self { len_bytes, front_end, state: Mutex::new(state), changed: Condvar::new(), has_job: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new front end, or its absence: nothing is mapped, and pending jobs fail. Returns the connection's
    /// number.
    pub(super) fn begin_connection(&self, link: Link) -> u64 {
        let mut state = self.lock();
        state.connection += 1;
        state.link = link;
        let count = state.ranges.len();
        let ended = std::mem::replace(&mut state.ranges, (0..count).map(|_| Range::Free).collect());
        let jobs = std::mem::take(&mut state.jobs);
        for job in &jobs {
            let _ = job.outcome.set(Err(Errno::NOTCONN));
        }
        self.changed.notify_all();
        self.has_job.notify_all();
        let connection = state.connection;
        // Close files after unlocking.
        drop(state);
        drop((ended, jobs));
        connection
    }

    /// Waits until the range is not being changed. Errors: EAGAIN after too many interrupts.
    pub(super) fn wait_for(&self, index: usize) -> Result<MutexGuard<'_, State>, Errno> {
        self.wait(|state| matches!(state.ranges[index], Range::Changing))
    }

    /// Waits while `is_waiting` returns true. Errors: EAGAIN after too many interrupts.
    fn wait(&self, is_waiting: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, Errno> {
        let mut state = self.lock();
        let since = state.interrupts;
        // The wait may be for a job of our own.
        self.has_job.notify_all();
        while is_waiting(&state) {
            if state.interrupts > since + INTERRUPTS_BORNE {
                return Err(Errno::AGAIN);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }

    /// Wakes the SHMEM worker and waits for its results. If interrupted, withdraws the jobs that were not started.
    pub(super) fn finish(&self, outcomes: &[JobOutcome]) -> Result<(), Errno> {
        if outcomes.is_empty() {
            return Ok(());
        }
        if let Err(errno) = self.wait(|_| outcomes.iter().any(|outcome| outcome.get().is_none())).map(drop) {
            self.take_back(outcomes);
            return Err(errno);
        }
        outcomes.iter().try_for_each(|outcome| outcome.get().copied().unwrap_or(Err(Errno::IO)))
    }

    pub(super) fn take_back(&self, outcomes: &[JobOutcome]) {
        let mut state = self.lock();
        let is_ours = |job: &Job| outcomes.iter().any(|outcome| Arc::ptr_eq(outcome, &job.outcome));
        let (ours, others) = std::mem::take(&mut state.jobs).into_iter().partition(is_ours);
        state.jobs = others;
        let ours: VecDeque<Job> = ours;
        for job in ours {
            state.ranges[job.index] = job.old.map_or(Range::Free, Range::Mapped);
        }
        self.changed.notify_all();
    }

    pub(super) fn stops_and_resets(&self) -> (u64, u64) {
        let state = self.lock();
        (state.stops, state.resets)
    }

    /// Records the result of `job`, unless the connection has changed.
    ///
    /// Releases a file that is no longer mapped before anybody is notified: from then on it is an ordinary file again.
    pub(super) fn settle(&self, mut job: Job, connection: u64, verdict: &JobVerdict) {
        let was_mapped = job.old.is_some();
        match verdict {
            JobVerdict::Done(_) => drop(job.old.take()),
            JobVerdict::Refused => drop((job.old.take(), job.new.take())),
            JobVerdict::Lost if job.is_old_gone => drop(job.old.take()),
            JobVerdict::Lost => {}
        }
        let mut state = self.lock();
        let outcome = match verdict {
            _ if state.connection != connection => Err(Errno::NOTCONN),
            JobVerdict::Done(time) => {
                state.usage.unmaps += u64::from(was_mapped);
                state.ranges[job.index] = Range::Free;
                if let (Some(time), Some((file, file_offset))) = (time, job.new) {
                    state.usage.maps += 1;
                    state.usage.map_ns += time.took.as_nanos() as u64;
                    // A reset after the reply has already ended the mapping.
                    if !self.front_end.unmaps_at_reset || time.resets == state.resets {
                        state.ranges[job.index] = Range::Mapped(Mapped { file, file_offset, stops: time.stops });
                    }
                }
                Ok(())
            }
            JobVerdict::Refused => {
                state.ranges[job.index] = Range::Free;
                Err(Errno::IO)
            }
            JobVerdict::Lost => {
                state.link = Link::Lost;
                state.ranges[job.index] = job.old.map_or(Range::Free, Range::Mapped);
                for waiting in std::mem::take(&mut state.jobs) {
                    let _ = waiting.outcome.set(Err(Errno::NOTCONN));
                    state.ranges[waiting.index] = waiting.old.map_or(Range::Free, Range::Mapped);
                }
                Err(Errno::NOTCONN)
            }
        };
        let _ = job.outcome.set(outcome);
        self.changed.notify_all();
    }
}

impl Job {
    /// Returns the window offset of the mapping to remove.
    pub(super) fn to_unmap(&self) -> Option<u64> {
        self.old.as_ref().map(|_| self.window_offset())
    }

    /// Records that the existing mapping is not to be relied on any more.
    pub(super) fn forget_old(&mut self) {
        self.is_old_gone = true;
    }

    /// Returns the file to map, and the offset in it.
    pub(super) fn to_map(&self) -> Option<(&MappedFile, u64)> {
        self.new.as_ref().map(|(file, offset)| (&**file, *offset))
    }

    pub(super) fn window_offset(&self) -> u64 {
        self.index as u64 * RANGE_LEN
    }
}
