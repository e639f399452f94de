//! What one queue's worker and the threads that serve its deferred requests share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use transom_host::{
    journal::QueueSlots,
    migration::TAKEN_BACK_MAX,
    server::{FileSystem, Server},
};
use vm_memory::GuestMemoryLoadGuard;

use super::{
    GuestRam, Memory,
    attempt::Attempts,
    chain::Chain,
    dirty_log::DirtyLog,
    in_flight::{InFlight, Waiting},
    memory::CurrentMemory,
    monitor::Monitor,
    pool::Pool,
    rate::Rate,
    spares::Spares,
    vring::Vring,
};

/// How often locks are tried that somebody else has while the session goes on here.
pub(super) const TAKE_BACK_EVERY: Duration = Duration::from_millis(5);

/// The state that a queue's worker shares with the threads that it hands requests to.
pub(super) struct Queue<F> {
    pub(super) server: Arc<Server<F>>,
    pub(super) memory: Memory,
    pub(super) current: Arc<CurrentMemory>,
    pub(super) pool: Arc<Pool<Deferred<F>>>,
    pub(super) spares: Spares,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) monitor: Arc<Monitor>,
    pub(super) log: Arc<DirtyLog>,
    /// Transfers of the session's state, which end if the queue is served again.
    pub(super) attempts: Arc<Attempts>,
    /// Limits how fast requests are taken from the ring.
    pub(super) rate: Option<Arc<Rate>>,
    /// The driver broke the ring, the device is being reset, or the front end has disconnected. Until the ring is set
    /// up again, nothing more is taken from it, and requests that have not begun are dropped.
    pub(super) is_given_up: AtomicBool,
    /// Where requests in flight are recorded, if others may have to serve them again.
    pub(super) slots: Option<QueueSlots>,
    /// A process that has died may have left some.
    pub(super) has_left: AtomicBool,
}

/// A request with everything needed to serve it, in one piece so that handing it over allocates nothing.
pub(super) struct Deferred<F> {
    pub(super) queue: Arc<Queue<F>>,
    pub(super) vring: Vring,
    /// The memory in which the chain was taken, even if the front end has replaced it since.
    pub(super) memory: GuestMemoryLoadGuard<GuestRam>,
    pub(super) chain: Chain,
    /// Lets a stop interrupt the request while it waits for a lock.
    pub(super) waiting: Option<Waiting>,
}

impl<F> Queue<F> {
    /// Takes nothing more from the ring and drops requests that have not begun or are set aside, so that even a worker
    /// that never finds the ring empty ends.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.in_flight.abandon();
    }

    /// Reverts [`Queue::give_up`] or a broken ring: the ring is set up again, and nothing is in flight.
    pub(super) fn begin_anew(&self) {
        self.is_given_up.store(false, Ordering::Release);
    }

    /// Returns whether the ring was given up or broken.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }
}

impl<F: FileSystem> Queue<F> {
    /// Returns whether nothing has prepared for the session to go on elsewhere, so that [`Queue::goes_on_here`] has
    /// nothing to do.
    pub(super) fn is_undisturbed(&self) -> bool {
        !self.attempts.is_under_way() && !self.server.file_system().has_let_go()
    }

    /// The session goes on here: a transfer of its state that is under way is given up, and locks that were let go for
    /// another daemon are taken back. Must be called before a request is served, until it returns true.
    ///
    /// What somebody else has locked is tried until `until`, which the first call that needs it sets. Each call takes
    /// little time; without a transfer it reads no clock.
    pub(super) fn goes_on_here(&self, until: &mut Option<Instant>) -> bool {
        self.attempts.give_up();
        let file_system = self.server.file_system();
        !file_system.has_let_go()
            || file_system.take_back(*until.get_or_insert_with(|| Instant::now() + TAKEN_BACK_MAX))
    }
}
