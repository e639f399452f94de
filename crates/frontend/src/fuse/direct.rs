//! A server in the same process, without a ring between.

use transom_host::server::{FileSystem, GuestSlice, Outcome, Patience, Scratch, Server};

use super::{Completion, Exchange};

/// Hands requests to a server, first as a queue's worker would, then as a thread that may wait.
pub struct Direct<'s, F> {
    server: &'s Server<F>,
    scratch: Scratch,
}

impl<'s, F: FileSystem> Direct<'s, F> {
    /// Requests go to `server`.
    pub fn new(server: &'s Server<F>) -> Self {
        Self { server, scratch: Scratch::default() }
    }
}

impl<F: FileSystem> Exchange for Direct<'_, F> {
    fn exchange(&mut self, readable: &[&[u8]], room: usize) -> anyhow::Result<Completion> {
        let mut sent: Vec<Vec<u8>> = readable.iter().map(|piece| piece.to_vec()).collect();
        let mut writable = vec![0; room];
        let used_len = {
            let readable: Vec<GuestSlice<'_>> = sent.iter_mut().map(|piece| piece.as_mut_slice().into()).collect();
            let writable = [GuestSlice::from(writable.as_mut_slice())];
            let mut handle = |patience| self.server.handle(&readable, &writable, &mut self.scratch, patience);
            let outcome = match handle(Patience::Try) {
                Outcome::Defer(_) => handle(Patience::MayBlock),
                done => done,
            };
            match outcome {
                Outcome::Done(done) => done.used_len_bytes,
                Outcome::Defer(lane) => anyhow::bail!("deferred to {lane:?} though it may block"),
            }
        };
        Ok(Completion { used_len, writable })
    }
}
