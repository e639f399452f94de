//! A request on its way to a thread that may block.

use std::sync::Arc;

use transom_host::server::{FileSystem, Scratch};
use vm_memory::{GuestAddressSpace, GuestMemoryLoadGuard};

use super::{
    GuestRam,
    chain::Chain,
    in_flight::Waiting,
    pool::Job,
    vring::Vring,
    worker::{Progress, Queue},
};

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

impl<F: FileSystem + 'static> Job for Deferred<F> {
    fn run(self, scratch: &mut Scratch) {
        let Self { queue, vring, mut memory, chain, waiting } = self;
        while queue.serve_waiting(&vring, &memory, &chain, scratch, waiting.as_ref()) == Progress::ServeAgain {
            // The front end may have replaced the memory while the ring was stopped.
            memory = queue.memory.memory();
        }
        let (ticket, descriptors) = chain.into_parts();
        queue.spares.keep(descriptors);
        drop((waiting, ticket));
    }
}
