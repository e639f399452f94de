//! Serves a deferred request on a thread that may block.

use transom_host::server::{FileSystem, Scratch};
use vm_memory::GuestAddressSpace;

use super::{pool::Job, queue::Deferred, worker::Progress};

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
