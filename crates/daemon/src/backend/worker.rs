//! Serves one queue: takes chains off the ring, has them answered, puts them back.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use transom_host::{
    Errno,
    server::{Done, FileSystem, Lane, Outcome, Patience, Scratch, Server},
};
use vhost_user_backend::VringT;
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryMmap};

use super::{
    Memory,
    chain::{Buffers, Chain, Descriptors},
    deferred::Deferred,
    in_flight::{InFlight, OfferedTwice, REQUESTS_MAX, Ticket},
    monitor::Monitor,
    poll::Poller,
    pool::Pool,
    spares::Spares,
    vring::Vring,
};

/// What a queue's worker, and the threads that it hands requests to, share.
pub(super) struct Queue<F> {
    pub(super) server: Arc<Server<F>>,
    pub(super) memory: Memory,
    pub(super) pool: Arc<Pool<Deferred<F>>>,
    pub(super) spares: Spares,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) monitor: Arc<Monitor>,
    /// The driver broke the ring, the device is being reset, or the front end has left: until the ring is set up anew,
    /// nothing more is taken from it, and what was taken and has not begun is dropped.
    pub(super) is_given_up: AtomicBool,
}

/// A request that is done waits so long at most for those behind it, before the driver is told of all of them. Telling
/// costs a system call here and an interrupt there, as much as serving a small request; the next one then adds its own
/// time.
const UNTOLD_MAX: Duration = Duration::from_micros(20);

/// Behind whom nobody waits: a request with more bytes than this.
const LONG_BYTES: usize = 64 << 10;

/// What only the worker's own thread touches.
pub(super) struct WorkerState {
    poller: Poller,
    scratch: Scratch,
    /// Memory for the next chain.
    descriptors: Descriptors,
    /// The first chain that is back on the ring since the driver was told. None while the worker watches or sleeps.
    untold: Option<Untold>,
}

/// A chain that is back on the ring; in flight until the driver is told.
struct Untold {
    taken_at: Instant,
    _ticket: Ticket,
}

impl WorkerState {
    pub(super) fn new(poller: Poller) -> Self {
        Self { poller, scratch: Scratch::default(), descriptors: Descriptors::default(), untold: None }
    }

    /// Whether the driver is to be told before `next` is served.
    fn is_telling_due(&self, next: &Chain) -> bool {
        let is_late = |first: &Untold| next.taken_at.duration_since(first.taken_at) >= UNTOLD_MAX;
        self.untold.as_ref().is_some_and(|first| is_late(first) || next.len_bytes() > LONG_BYTES)
    }
}

/// A chain that the driver cannot offer.
#[derive(Debug, thiserror::Error)]
enum BadHead {
    #[error("chain {head} is offered on a ring of {size} descriptors")]
    OutOfRange { head: u16, size: u16 },
    #[error(transparent)]
    OfferedTwice(#[from] OfferedTwice),
}

/// What the ring has to offer.
enum Next {
    Chain(Chain),
    Empty,
    /// The queue is stopped, disabled or broken.
    Stopped,
}

impl<F: FileSystem + 'static> Queue<F> {
    /// Serves what is on the ring, watches it for a while, and returns when the next request will kick.
    pub(super) fn run(self: &Arc<Self>, vring: &Vring, state: &mut WorkerState) {
        state.poller.woken();
        loop {
            // Failing to suppress kicks costs kicks and nothing else.
            let _ = vring.disable_notification();
            loop {
                let next = self.next(vring, state);
                if !matches!(&next, Next::Chain(chain) if !state.is_telling_due(chain)) {
                    Self::tell_of_untold(vring, state);
                }
                match next {
                    Next::Chain(chain) => {
                        state.poller.took(chain.taken_at);
                        self.serve(vring, chain, state);
                    }
                    Next::Stopped => return,
                    Next::Empty if state.poller.watch(|| self.has_next(vring)) => {}
                    Next::Empty => break,
                }
            }
            match vring.enable_notification() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.break_ring(vring, &error),
            }
        }
    }

    /// Takes the next chain; it is in flight from then on, before anyone can see the queue stopped.
    fn next(&self, vring: &Vring, state: &mut WorkerState) -> Next {
        let memory = self.memory.memory();
        let mut ring = vring.get_mut();
        if !ring.is_enabled() || !ring.get_queue().ready() || self.is_given_up() {
            return Next::Stopped;
        }
        let descriptors = match ring.get_queue_mut().iter(&*memory) {
            Ok(mut chains) => chains.next(),
            Err(error) => {
                self.break_ring(vring, &error);
                return Next::Stopped;
            }
        };
        match descriptors {
            Some(descriptors) => match self.take(ring.get_queue(), descriptors.head_index()) {
                Ok(ticket) => Next::Chain(Chain::copy(descriptors, mem::take(&mut state.descriptors), ticket)),
                Err(error) => {
                    self.break_ring(vring, &error);
                    Next::Stopped
                }
            },
            // The index says that there is an entry, which cannot be read: without this the worker would spin.
            None if is_behind(ring.get_queue(), &memory) && !ring.get_queue().is_valid(&*memory) => {
                self.break_ring(vring, &"a part of the ring is not in the guest's memory");
                Next::Stopped
            }
            None => Next::Empty,
        }
    }

    /// Counts the chain as in flight. Errors: the driver offers a chain that is not on the ring, or that the device
    /// has.
    fn take(&self, queue: &virtio_queue::Queue, head: u16) -> Result<Ticket, BadHead> {
        let size = queue.size();
        if head >= size {
            return Err(BadHead::OutOfRange { head, size });
        }
        Ok(self.in_flight.begin(head)?)
    }

    /// True also where the queue is stopped, so that watching ends.
    fn has_next(&self, vring: &Vring) -> bool {
        let memory = self.memory.memory();
        let vring = vring.get_ref();
        let queue = vring.get_queue();
        if !queue.ready() || !vring.is_enabled() || self.is_given_up() {
            return true;
        }
        is_behind(queue, &memory)
    }

    /// Answers `chain` here, or hands it to a thread that may wait.
    fn serve(self: &Arc<Self>, vring: &Vring, chain: Chain, state: &mut WorkerState) {
        let memory = self.memory.memory();
        let lane = match self.answer(&memory, &chain, &mut state.scratch, Patience::Try) {
            Outcome::Done(done) => {
                self.put_back(vring, &chain, done);
                let taken_at = chain.taken_at;
                let (ticket, descriptors) = chain.into_parts();
                state.descriptors = descriptors;
                state.untold.get_or_insert(Untold { taken_at, _ticket: ticket });
                return;
            }
            Outcome::Defer(lane) => lane,
        };
        // The chain takes its memory along.
        state.descriptors = self.spares.take();
        self.monitor.deferred();
        let waiting = match lane {
            Lane::Pool => None,
            Lane::Waiter(unique) => Some(self.in_flight.waits(unique)),
        };
        let request = Deferred { queue: self.clone(), vring: vring.clone(), memory: memory.clone(), chain, waiting };
        let handed_on = match lane {
            Lane::Pool => self.pool.run(request),
            Lane::Waiter(_) => self.pool.wait(request),
        };
        match (handed_on, lane) {
            (Ok(()), _) => {
                if self.in_flight.count() >= REQUESTS_MAX {
                    Self::tell_of_untold(vring, state);
                    self.in_flight.wait_for_room();
                }
            }
            // Without a pool the disk is waited for here; another lock owner never is.
            (Err(request), Lane::Pool) => {
                Self::tell_of_untold(vring, state);
                self.serve_waiting(vring, &memory, &request.chain, &mut state.scratch);
            }
            (Err(request), Lane::Waiter(_)) => {
                let mut buffers = Buffers::default();
                request.chain.resolve(&memory, &mut buffers);
                let done = self.server.refuse(&buffers.readable, &buffers.writable, Errno::NOLCK);
                self.finish(vring, &request.chain, done);
            }
        }
    }

    /// Answers a request that may wait; drops it where the queue was given up before it began.
    pub(super) fn serve_waiting(
        &self,
        vring: &Vring,
        memory: &GuestMemoryMmap<()>,
        chain: &Chain,
        scratch: &mut Scratch,
    ) {
        if self.is_given_up() {
            return;
        }
        match self.answer(memory, chain, scratch, Patience::MayBlock) {
            Outcome::Done(done) => self.finish(vring, chain, done),
            Outcome::Defer(_) => unreachable!("a request that may block is not deferred"),
        }
    }

    fn answer(
        &self,
        memory: &GuestMemoryMmap<()>,
        chain: &Chain,
        scratch: &mut Scratch,
        patience: Patience,
    ) -> Outcome {
        let mut buffers = Buffers::default();
        chain.resolve(memory, &mut buffers);
        if buffers.is_bad {
            return Outcome::Done(self.server.refuse(&buffers.readable, &buffers.writable, Errno::FAULT));
        }
        // A bug that panics costs its request an answer of EIO, not the queue its thread.
        let served = catch_unwind(AssertUnwindSafe(|| {
            self.server.handle(&buffers.readable, &buffers.writable, scratch, patience)
        }));
        served.unwrap_or_else(|_| {
            tracing::error!("a request was given up: see the panic above");
            Outcome::Done(self.server.refuse(&buffers.readable, &buffers.writable, Errno::IO))
        })
    }

    fn finish(&self, vring: &Vring, chain: &Chain, done: Done) {
        self.put_back(vring, chain, done);
        tell(vring);
    }

    fn put_back(&self, vring: &Vring, chain: &Chain, done: Done) {
        self.monitor.finished(chain, &done);
        self.in_flight.give_back(chain.head);
        if let Err(error) = vring.add_used(chain.head, done.used_len_bytes) {
            self.break_ring(vring, &error);
        }
    }

    fn tell_of_untold(vring: &Vring, state: &mut WorkerState) {
        if let Some(_in_flight) = state.untold.take() {
            tell(vring);
        }
    }

    /// Takes nothing more from the ring, and drops what has not begun; a worker that never finds the ring empty ends
    /// all the same.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Ends what [`Queue::give_up`] or a broken ring began: the ring is set up anew, and nothing is in flight.
    pub(super) fn begin_anew(&self) {
        self.is_given_up.store(false, Ordering::Release);
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    fn break_ring(&self, vring: &Vring, error: &dyn std::fmt::Display) {
        if !self.is_given_up.swap(true, Ordering::AcqRel) {
            self.monitor.broken_queue();
            vring.signal_error();
            tracing::error!(%error, "the driver broke its ring: the queue is stopped");
        }
    }
}

/// Tells the driver of all that is back on the ring, where it wants to be told.
fn tell(vring: &Vring) {
    if vring.needs_notification().unwrap_or(true)
        && let Err(error) = vring.signal_used_queue()
    {
        tracing::warn!(%error, "cannot notify the guest");
    }
}

/// Whether the driver has published more than was taken.
fn is_behind(queue: &virtio_queue::Queue, memory: &GuestMemoryMmap<()>) -> bool {
    queue.avail_idx(memory, Ordering::Acquire).is_ok_and(|index| index.0 != queue.next_avail())
}
