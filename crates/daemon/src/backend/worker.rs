//! Serves one queue: takes chains off the ring, answers them, puts them back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use transom_host::{
    Errno,
    server::{BlockingMode, Done, ExecutionTarget, FileSystem, Scratch, ServeOutcome},
};
use transom_wire::Opcode;
use vhost_user_backend::VringT;
use virtio_queue::QueueT;
use vm_memory::{GuestAddressSpace, GuestMemoryLoadGuard};

use super::{
    GuestRam,
    chain::{Buffers, Chain, Descriptors},
    in_flight::{Interrupted, REQUESTS_MAX, Ticket, Waiting},
    next::Next,
    poll::RingPoller,
    queue::{Deferred, Queue, TAKE_BACK_EVERY},
    view::MemoryView,
    vring::Vring,
};

/// The longest time that a completed request waits for the following ones, so that the driver is notified of all at
/// once. A notification costs a system call here and an interrupt in the guest, as much as serving a small request; the
/// next request then adds its own time.
const SIGNAL_DELAY_MAX: Duration = Duration::from_micros(20);

/// A request with more bytes than this does not delay the notification of earlier ones.
const LONG_BYTES: usize = 64 << 10;

/// How often a worker that waits for its guest's rate looks whether its queue is stopped.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// State that only the worker's own thread uses.
pub(super) struct WorkerState {
    poller: RingPoller,
    scratch: Scratch,
    /// Memory for the next chain.
    descriptors: Descriptors,
    /// The first chain put back on the ring since the driver was last notified. `None` while the worker polls or
    /// sleeps.
    pending_signal: Option<PendingSignal>,
}

/// A chain that is back on the ring. It counts as in flight until the driver is notified.
struct PendingSignal {
    taken_at: Instant,
    _ticket: Ticket,
}

impl WorkerState {
    pub(super) fn new(poller: RingPoller) -> Self {
        Self { poller, scratch: Scratch::default(), descriptors: Descriptors::default(), pending_signal: None }
    }

    /// Returns the memory for the next chain.
    pub(super) fn descriptors(&mut self) -> &mut Descriptors {
        &mut self.descriptors
    }

    /// Returns whether the driver must be notified before `next` is served.
    fn must_signal_before(&self, next: &Chain) -> bool {
        let is_late = |first: &PendingSignal| next.taken_at.duration_since(first.taken_at) >= SIGNAL_DELAY_MAX;
        self.pending_signal.as_ref().is_some_and(|first| is_late(first) || next.len_bytes() > LONG_BYTES)
    }
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is answered or dropped.
    Finished,
    /// Its queue was stopped while it waited for a lock, and goes on.
    ServeAgain,
}

impl<F: FileSystem + 'static> Queue<F> {
    /// Serves what is on the ring, polls for more, and returns once the next request will kick.
    pub(super) fn run(self: &Arc<Self>, vring: &Vring, state: &mut WorkerState) {
        state.poller.record_sleep();
        while !self.run_in(&self.memory.memory(), vring, state) {}
    }

    /// Does that while the guest's memory is `memory`. Returns false if the front end has replaced it.
    fn run_in(
        self: &Arc<Self>,
        memory: &GuestMemoryLoadGuard<GuestRam>,
        vring: &Vring,
        state: &mut WorkerState,
    ) -> bool {
        let view = &MemoryView::new(memory);
        loop {
            self.disable_kicks(view, vring);
            loop {
                self.await_rate(view, vring, state);
                let next = self.next(view, vring, &mut state.descriptors);
                if !matches!(&next, Next::Chain(chain) if !state.must_signal_before(chain)) {
                    Self::signal_used(view, vring, state);
                }
                match next {
                    Next::Chain(chain) => {
                        state.poller.record_request(chain.taken_at);
                        if let Some(rate) = &self.rate {
                            rate.charge(chain.len_bytes(), chain.taken_at);
                        }
                        self.serve((memory, view), vring, chain, state);
                    }
                    Next::Stopped => return true,
                    Next::MemoryReplaced => return false,
                    Next::Empty if state.poller.poll_until(|| self.has_next(view, vring)) => {}
                    Next::Empty => break,
                }
            }
            let has_more = self.enable_kicks(view, vring);
            vring.mark_notification(&self.log, &self.memory);
            match has_more {
                Ok(true) => {}
                Err(Next::MemoryReplaced) => return false,
                Ok(false) | Err(_) => return true,
            }
        }
    }

    /// Waits until the guest may have another request served, or the queue is stopped.
    fn await_rate(&self, view: &MemoryView<'_>, vring: &Vring, state: &mut WorkerState) {
        let Some(rate) = &self.rate else { return };
        while let Some(delay) = rate.delay(Instant::now()) {
            // The driver may wait for what was served before.
            Self::signal_used(view, vring, state);
            if self.is_stopped(vring) {
                return;
            }
            thread::sleep(delay.min(LOOK_EVERY));
        }
    }

    fn is_stopped(&self, vring: &Vring) -> bool {
        let ring = vring.get_ref();
        !ring.is_enabled() || !ring.get_queue().ready() || self.is_given_up()
    }

    /// Serves `chain`, whose buffers are in `memory`, on this thread, or hands it to a thread that may block. `view` is
    /// of the same memory.
    pub(super) fn serve(
        self: &Arc<Self>,
        (memory, view): (&GuestMemoryLoadGuard<GuestRam>, &MemoryView<'_>),
        vring: &Vring,
        chain: Chain,
        state: &mut WorkerState,
    ) {
        let target = match self.answer(view, &chain, &mut state.scratch, BlockingMode::MustNotBlock) {
            ServeOutcome::Done(done) => {
                self.put_back(view, vring, memory, &chain, done);
                let taken_at = chain.taken_at;
                let (ticket, descriptors) = chain.into_parts();
                state.descriptors = descriptors;
                state.pending_signal.get_or_insert(PendingSignal { taken_at, _ticket: ticket });
                return;
            }
            ServeOutcome::Defer(target) => target,
        };
        // The chain takes its memory along, so take other memory for the next one.
        state.descriptors = self.spares.take();
        self.monitor.deferred();
        let waiting = match target {
            ExecutionTarget::Pool => None,
            ExecutionTarget::OwnThread(unique) => {
                vring.resumes(&self.in_flight);
                Some(self.in_flight.waits(unique, chain.head))
            }
        };
        let request = Deferred { queue: self.clone(), vring: vring.clone(), memory: memory.clone(), chain, waiting };
        let handed_on = match target {
            ExecutionTarget::Pool => self.pool.run(request),
            ExecutionTarget::OwnThread(_) => self.pool.wait(request),
        };
        match (handed_on, target) {
            (Ok(()), _) => {
                if self.in_flight.count() >= REQUESTS_MAX {
                    Self::signal_used(view, vring, state);
                    self.in_flight.wait_for_room();
                }
            }
            // Without a pool, this thread waits for the disk. It never waits for another lock owner.
            (Err(request), ExecutionTarget::Pool) => {
                Self::signal_used(view, vring, state);
                self.serve_waiting(vring, memory, &request.chain, &mut state.scratch, None);
            }
            (Err(request), ExecutionTarget::OwnThread(_)) => {
                let mut buffers = Buffers::default();
                request.chain.resolve(view, &mut buffers);
                let done = self.server.refuse(&buffers.readable, &buffers.writable, Errno::NOLCK);
                self.finish(vring, memory, &request.chain, done);
            }
        }
    }

    /// Serves a request that may block. Drops it if the queue was given up before it began.
    ///
    /// If a stop of the queue interrupts its wait for a lock, it is not answered, and this blocks until the queue goes
    /// on.
    pub(super) fn serve_waiting(
        &self,
        vring: &Vring,
        memory: &GuestRam,
        chain: &Chain,
        scratch: &mut Scratch,
        waiting: Option<&Waiting>,
    ) -> Progress {
        if self.is_given_up() {
            return Progress::Finished;
        }
        let view = MemoryView::new(memory);
        let done = match self.answer(&view, chain, scratch, BlockingMode::MayBlock) {
            ServeOutcome::Done(done) => done,
            ServeOutcome::Defer(_) => unreachable!("a request that may block is not deferred"),
        };
        if let Some(waiting) = waiting
            && done.result == Err(Errno::INTR)
            && !self.is_given_up()
        {
            if self.log.is_on() {
                chain.mark_written(memory);
            }
            match waiting.interrupted(|unique| self.server.file_system().forget_interrupt(unique)) {
                Interrupted::Answer => {}
                Interrupted::ServeAgain => return self.again(waiting),
                Interrupted::Drop => return Progress::Finished,
            }
        }
        self.finish(vring, memory, chain, done);
        Progress::Finished
    }

    /// The ring of a request that was set aside runs again: blocks until the session goes on here. A stop meanwhile
    /// sets the request aside again.
    fn again(&self, waiting: &Waiting) -> Progress {
        let mut until = None;
        while !self.goes_on_here(&mut until) {
            thread::sleep(TAKE_BACK_EVERY);
            if self.is_given_up() {
                return Progress::Finished;
            }
            match waiting.interrupted(|unique| self.server.file_system().forget_interrupt(unique)) {
                Interrupted::Answer => {}
                // It waited for as long as the ring was stopped.
                Interrupted::ServeAgain => until = None,
                Interrupted::Drop => return Progress::Finished,
            }
        }
        Progress::ServeAgain
    }

    fn answer(
        &self,
        view: &MemoryView<'_>,
        chain: &Chain,
        scratch: &mut Scratch,
        blocking: BlockingMode,
    ) -> ServeOutcome {
        let mut buffers = Buffers::default();
        chain.resolve(view, &mut buffers);
        if buffers.is_bad {
            return ServeOutcome::Done(self.server.refuse(&buffers.readable, &buffers.writable, Errno::FAULT));
        }
        if let Some(slots) = &self.slots {
            slots.identify(chain.head, self.server.unique_of(&buffers.readable));
        }
        // After a panic, the request fails with EIO and the queue keeps its thread.
        let served = catch_unwind(AssertUnwindSafe(|| {
            self.server.handle(&buffers.readable, &buffers.writable, scratch, blocking)
        }));
        served.unwrap_or_else(|_| {
            tracing::error!("a request failed with EIO because of the panic above");
            ServeOutcome::Done(self.server.refuse(&buffers.readable, &buffers.writable, Errno::IO))
        })
    }

    fn finish(&self, vring: &Vring, memory: &GuestRam, chain: &Chain, done: Done) {
        // The ring is where the guest's memory is now.
        let current = self.memory.memory();
        let view = MemoryView::new(&current);
        self.put_back(&view, vring, memory, chain, done);
        notify_driver(&view, vring);
    }

    /// Returns the chain, whose buffers are in `memory`, to the driver. The ring is in `view`.
    fn put_back(&self, view: &MemoryView<'_>, vring: &Vring, memory: &GuestRam, chain: &Chain, done: Done) {
        self.monitor.finished(chain, &done);
        let is_copy = done.opcode == Some(Opcode::CopyFileRange as u32);
        if let Some(rate) = self.rate.as_ref().filter(|_| is_copy) {
            rate.charge_copied(done.data_len_bytes, Instant::now());
        }
        let slots = self.slots.as_ref();
        if let Some(slots) = slots {
            slots.answer(chain.head, done.used_len_bytes);
            self.monitor.undecided(slots.take_undecided());
        }
        self.in_flight.give_back(chain.head);
        let written = || chain.mark_written(memory);
        let logged = (&*self.log, &self.memory);
        if let Err(error) = vring.add_used_logged(chain.head, done.used_len_bytes, view, logged, slots, written) {
            self.break_ring(vring, &error);
        }
    }

    fn signal_used(view: &MemoryView<'_>, vring: &Vring, state: &mut WorkerState) {
        if let Some(_in_flight) = state.pending_signal.take() {
            notify_driver(view, vring);
        }
    }

    pub(super) fn break_ring(&self, vring: &Vring, error: &dyn std::fmt::Display) {
        if !self.is_given_up.swap(true, Ordering::AcqRel) {
            self.monitor.broken_queue();
            vring.signal_error();
            tracing::error!(%error, "the driver broke its ring: the queue is stopped");
        }
    }
}

/// Notifies the driver of all chains that are back on the ring, if it asked for that.
pub(super) fn notify_driver(view: &MemoryView<'_>, vring: &Vring) {
    if let Err(error) = vring.notify_driver(view) {
        tracing::warn!(%error, "cannot notify the guest");
    }
}
