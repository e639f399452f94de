//! Changes of the host, announced to an agent in the guest that replays them there.
//!
//! The agent makes the system call that would have caused a change. The guest's kernel then corrects its caches and
//! raises the right event, and sends a request, which the file system answers as done without doing it. [`Replays`]
//! decides which requests these are: those of the registered agent that match an announced change, each once.
//! [`change`] is one, [`queue`] holds what waits to be announced, [`batch`] what is announced, [`names`] which inode
//! the guest found under a name. [`budget`] bounds the work of the guest, [`pace`] knows whether its agent keeps up. A
//! request of the agent that changes something and matches nothing is refused, so nothing that it does can harm a file
//! of the host.
//!
//! Locks: one for the agent's state, and within it one for the names.

mod batch;
mod budget;
mod change;
mod names;
mod pace;
mod queue;

#[cfg(test)]
mod replay_test;

pub(crate) use batch::{Batch, Role};
pub(crate) use names::Names;

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use transom_metrics::ReplayGauges;
use transom_wire::{
    Handle, NodeId,
    agent::{self, Announcement, Hello, Writer},
};
use zerocopy::FromBytes;

pub use change::Change;
pub use transom_wire::agent::Kind;

use crate::{Errno, server::BlockingMode};
use budget::Budget;
use pace::Pace;
use queue::{BACKLOG_MAX, Queue};

/// How long an exchange waits for a change. A process in a guest cannot be killed while it waits for a reply, so this
/// is how long the end of the agent may take.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// How long an exchange waits if the budget is spent.
const BUDGET_WAIT: Duration = Duration::from_millis(50);

/// For how long after an overflow the files that the guest uses are refreshed, if they are too many at first. Validity
/// is seldom longer.
const REFRESH_WITHIN: Duration = Duration::from_secs(60);

/// What became of changes, for the metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Changes that the agent replayed.
    pub replayed: AtomicU64,
    /// Changes that the agent skipped.
    pub skipped: AtomicU64,
    /// How often changes were lost because too many waited.
    pub overflows: AtomicU64,
    /// Nanoseconds from queueing a change to its acknowledgement, summed over those replayed or skipped.
    pub delay_ns: AtomicU64,
}

/// The agent of a guest and the changes that it replays. There is at most one agent at a time.
#[derive(Debug, Default)]
pub struct Replays {
    state: Mutex<State>,
    /// Signalled when a change is queued, and by [`Replays::interrupt`].
    changed: Condvar,
    /// What became of changes.
    pub counters: Counters,
    /// Which inode the guest found under a name.
    pub(crate) names: Names,
    pace: Pace,
}

#[derive(Debug, Default)]
struct State {
    agent: Option<Agent>,
    /// Whether an exchange waits for a change.
    is_waiting: bool,
    /// Nothing is observed any more.
    is_blind: bool,
    /// When the agent was told that changes were lost, until what the guest still uses is refreshed.
    refresh_due: Option<Instant>,
    /// Set with `agent`.
    budget: Option<Budget>,
    queue: Queue,
    batch: Batch,
}

/// Who may replay: the thread that opened the root directory and registered itself with that handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Agent {
    pid: u32,
    handle: Handle,
}

impl Replays {
    /// Queues a change for the agent, if there is one.
    pub fn push(&self, change: Change) {
        let mut state = self.lock();
        if state.agent.is_none() {
            return;
        }
        if !state.queue.push(change, Instant::now()) {
            self.note_overflow(&state, "too many wait for the guest's agent");
        } else if state.queue.len() > BACKLOG_MAX {
            self.pace.lost();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Counts a change by somebody else, announced or not.
    pub(crate) fn count_change(&self) {
        self.pace.count_change();
    }

    /// Returns the number of changes by others so far.
    pub(crate) fn changes_seen(&self) -> u64 {
        self.pace.seen()
    }

    /// Returns whether an agent is registered that has acknowledged what happened until a moment ago.
    pub fn keeps_up(&self) -> bool {
        self.pace.keeps_up(Instant::now())
    }

    /// Queues the message that changes were lost.
    pub fn overflow(&self) {
        let mut state = self.lock();
        if state.agent.is_some() {
            state.queue.overflow();
            self.note_overflow(&state, "the kernel's queue was full");
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends all announcements, because nothing is observed any more: agents are refused from now on.
    pub fn end(&self) {
        let mut state = self.lock();
        *state = State { is_blind: true, ..State::default() };
        self.pace.lost();
        drop(state);
        self.changed.notify_all();
    }

    fn note_overflow(&self, state: &State, why: &str) {
        self.pace.lost();
        self.counters.overflows.fetch_add(1, Relaxed);
        tracing::info!(agent = state.agent.map(|agent| agent.pid), "changes of the host were lost: {why}");
    }

    /// Returns whether an agent is registered.
    pub fn has_agent(&self) -> bool {
        self.lock().agent.is_some()
    }

    /// Returns what became of changes, and of the agent.
    pub fn gauges(&self) -> ReplayGauges {
        let (has_agent, waiting) = {
            let state = self.lock();
            (state.agent.is_some(), state.queue.len())
        };
        let Counters { replayed, skipped, overflows, delay_ns } = &self.counters;
        ReplayGauges {
            agents: has_agent.into(),
            keeps_up: self.keeps_up().into(),
            replayed: replayed.load(Relaxed),
            skipped: skipped.load(Relaxed),
            overflows: overflows.load(Relaxed),
            waiting: waiting as u64,
            delay_ns: delay_ns.load(Relaxed),
        }
    }

    /// Acknowledges the changes announced before and returns the next ones; waits for them for up to 250 ms. The
    /// first exchange registers the agent, and returns at once. [`agent::WAKE`] ends the wait of another exchange.
    ///
    /// # Errors
    ///
    /// EINVAL for an argument of another length, EPROTO for another version, EBUSY if there is another agent or another
    /// exchange of it is waiting, ENOTTY if nothing is observed any more, EBADF if the registration ended meanwhile,
    /// EAGAIN instead of waiting under [`BlockingMode::MustNotBlock`].
    pub(crate) fn exchange(
        &self,
        pid: u32,
        handle: Handle,
        argument: &[u8],
        blocking: BlockingMode,
    ) -> Result<Box<[u8; agent::EXCHANGE_LEN]>, Errno> {
        let agent = Agent { pid, handle };
        let (hello, _) = Hello::read_from_prefix(argument).map_err(|_| Errno::INVAL)?;
        if argument.len() != agent::EXCHANGE_LEN {
            return Err(Errno::INVAL);
        }
        if hello.version.get() != agent::VERSION {
            return Err(Errno::PROTO);
        }
        let mut state = self.lock();
        if hello.flags.get() & agent::WAKE != 0 {
            drop(state);
            self.changed.notify_all();
            let mut reply = Box::new([0; agent::EXCHANGE_LEN]);
            Writer::new(&mut reply).finish(false);
            return Ok(reply);
        }
        match state.agent {
            _ if state.is_blind => return Err(Errno::NOTTY),
            Some(known) if known != agent || state.is_waiting => return Err(Errno::BUSY),
            Some(_) => {
                self.acknowledge(&mut state, &hello);
                state = self.wait(state, agent, blocking)?;
            }
            None => {
                tracing::debug!(pid, "an agent of the guest is told of changes");
                state.agent = Some(agent);
            }
        }
        let mut reply = Box::new([0; agent::EXCHANGE_LEN]);
        state.announce(&self.names, &mut reply);
        Ok(reply)
    }

    /// Returns whether the agent has dropped what the guest does not use, after changes were lost, and the rest has to
    /// be refreshed.
    pub(crate) fn is_refresh_due(&self, pid: u32, handle: Handle) -> bool {
        let state = self.lock();
        state.agent == Some(Agent { pid, handle }) && state.refresh_due.is_some()
    }

    /// Announces what the guest still uses, after changes were lost.
    pub(crate) fn refresh(&self, in_use: impl Iterator<Item = Change>) {
        self.lock().refresh_due = None;
        in_use.for_each(|change| self.push(change));
    }

    /// Takes note of what became of the changes announced last.
    fn acknowledge(&self, state: &mut State, hello: &Hello) {
        let now = Instant::now();
        // The agent is not trusted: it cannot have had more than it was told.
        let announced = state.batch.take_unacknowledged();
        let replayed = (hello.replayed.get() as usize).min(announced.len());
        let skipped = (hello.skipped.get() as usize).min(announced.len() - replayed);
        let delay: Duration = announced.iter().map(|&queued| now.saturating_duration_since(queued)).sum();
        self.counters.replayed.fetch_add(replayed as u64, Relaxed);
        self.counters.skipped.fetch_add(skipped as u64, Relaxed);
        self.counters.delay_ns.fetch_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        state.refresh_due = state.refresh_due.filter(|&since| now.saturating_duration_since(since) < REFRESH_WITHIN);
        if !state.queue.has_overflowed() && state.queue.len() <= BACKLOG_MAX && state.refresh_due.is_none() {
            self.pace.acknowledged(now);
        }
    }

    /// Waits until there is something to announce within the budget, or some time has passed.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        agent: Agent,
        blocking: BlockingMode,
    ) -> Result<MutexGuard<'a, State>, Errno> {
        let is_idle = state.queue.is_empty();
        if !is_idle && (state.queue.has_overflowed() || state.allowance() > 0) {
            return Ok(state);
        }
        if blocking == BlockingMode::MustNotBlock {
            return Err(Errno::AGAIN);
        }
        state.is_waiting = true;
        let waited = match is_idle {
            true => self.changed.wait_timeout(state, WAIT_MAX),
            // More changes make no difference.
            false => self.changed.wait_timeout_while(state, BUDGET_WAIT, |state| state.agent == Some(agent)),
        };
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.agent != Some(agent) {
            return Err(Errno::BADF);
        }
        state.is_waiting = false;
        Ok(state)
    }

    /// Ends the agent's registration if `handle` is its.
    pub(crate) fn closed(&self, handle: Handle) {
        let mut state = self.lock();
        if state.agent.is_some_and(|agent| agent.handle == handle) {
            *state = State::default();
            self.pace.lost();
            tracing::debug!("the agent of the guest is gone");
            drop(state);
            // Its exchange, if one waits, would keep a thread from others.
            self.changed.notify_all();
        }
    }

    /// Forgets the agent and all changes, because the session ends.
    pub(crate) fn end_session(&self) {
        let mut state = self.lock();
        *state = State { is_blind: state.is_blind, ..State::default() };
        self.pace.lost();
        drop(state);
        self.names.clear();
    }

    /// Wakes an exchange that waits.
    pub(crate) fn interrupt(&self) {
        self.changed.notify_all();
    }

    /// Calls `with` with what is announced to the agent `pid`; returns `None` if that is not the agent.
    pub(crate) fn announced<T>(&self, pid: u32, with: impl FnOnce(&mut Batch) -> T) -> Option<T> {
        let mut state = self.lock();
        (state.agent?.pid == pid).then(|| with(&mut state.batch))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns how many changes may be announced now.
    fn allowance(&mut self) -> u32 {
        let now = Instant::now();
        self.budget.get_or_insert_with(|| Budget::new(now)).available(now)
    }

    /// Replaces the batch by changes from the queue, as many as fit and do not touch the same names.
    fn announce(&mut self, names: &Names, to: &mut [u8; agent::EXCHANGE_LEN]) {
        self.batch = Batch::default();
        let allowed = self.allowance() as usize;
        let is_overflow = self.queue.take_overflow();
        let mut writer = Writer::new(to);
        if is_overflow {
            self.refresh_due = Some(Instant::now());
            // Watchers are told by an event on the root.
            let root = Change::of_directory(NodeId::ROOT);
            writer.push(&root.as_wire());
            self.batch.add(root, None, Instant::now());
        }
        while let Some(change) = self.queue.front().filter(|_| self.batch.len() < allowed) {
            if self.batch.conflicts(change) || !writer.push(&change.as_wire()) {
                break;
            }
            let seen = names.get(change.parent, &change.name);
            let (change, queued) = self.queue.pop().expect("the queue has a front");
            self.batch.add(change, seen, queued);
        }
        if let Some(budget) = &mut self.budget {
            budget.spend(self.batch.len() as u32);
        }
        let count = writer.finish(is_overflow);
        debug_assert_eq!(count as usize, self.batch.len());
        debug_assert!(size_of::<Announcement>() <= to.len());
    }
}
