//! The front end's side of a shared-memory window: maps what the back end asks for into this process.
//!
//! A thread answers the back end's requests by [`Rules`], as strict as the front end that they describe. A test reads
//! and writes through the window as a guest would, looks at what is mapped, and chooses what becomes of the next
//! requests: [`Reaction`] for one each, [`Window::hold`] for all. Locks: the front end's turn, then the state.

mod area;
mod requests;
mod rules;
mod serve;

#[cfg(test)]
mod window_test;

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::bail;

use super::{message::HANG_AFTER, turn::Turn};
pub use rules::{Reaction, Rules};
use serve::{Shared, State};

/// One window, for as long as the connection lives.
pub struct Window {
    shared: Arc<Shared>,
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What is mapped at one place of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// In the window, in bytes.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
    /// In the file, in bytes.
    pub file_offset: u64,
    /// Whether the back end asked for it to be writable.
    pub is_writable: bool,
    /// The file's device and inode numbers.
    pub file: (u64, u64),
}

/// What a window was asked so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests to map.
    pub maps: u64,
    /// Requests to unmap.
    pub unmaps: u64,
    /// Requests about shared objects.
    pub barriers: u64,
}

/// Where requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Nothing is done before the hold ends.
    Requests,
    /// Requests are served, and no answer is sent before the hold ends.
    Answers,
}

/// Holds requests until it is dropped.
pub struct Held<'w>(&'w Window);

impl Window {
    /// A window of `len` bytes that serves what comes by `stream`, taking turns with whoever else takes `turn`.
    pub(super) fn new(len: u64, rules: Rules, stream: UnixStream, turn: Arc<Turn>) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::new(len, rules, turn)?);
        let (served, of_thread) = (stream.try_clone()?, shared.clone());
        let thread = thread::Builder::new().name("front-end-window".into()).spawn(move || of_thread.serve(&served))?;
        Ok(Self { shared, stream, thread: Some(thread) })
    }

    /// In bytes.
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    /// True for a back end that has none.
    pub fn is_empty(&self) -> bool {
        self.shared.len == 0
    }

    /// What is mapped, by offset.
    pub fn mappings(&self) -> Vec<Mapping> {
        self.shared.lock().mappings.values().map(|mapped| mapped.mapping).collect()
    }

    /// The descriptor that is mapped at `offset`.
    pub fn descriptor(&self, offset: u64) -> Option<OwnedFd> {
        self.shared.lock().mappings.get(&offset)?.fd.try_clone().ok()
    }

    /// What the window was asked.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts
    }

    /// The most mappings that ever lived at once.
    pub fn most_mappings(&self) -> usize {
        self.shared.lock().most_mappings
    }

    /// Why requests were refused by the rules; a back end that keeps to them gives no reason.
    pub fn refusals(&self) -> Vec<String> {
        self.shared.lock().refusals.clone()
    }

    /// How many requests were refused, and the channel closed where the rules say so, because the mapping that they
    /// were about had ended by a reset that the back end could not know of when it sent them.
    pub fn stale_refusals(&self) -> u64 {
        self.shared.lock().stale_refusals
    }

    /// Whether the channel is closed, by either side.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Copies from the window as a guest would. Errors: EFAULT where nothing is mapped, or beyond the end of the file.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.shared.area.load(offset, bytes)
    }

    /// `len` bytes from `offset`.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.load(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies to the window as a guest would. Errors as with [`Window::load`], and where the guest must not write.
    pub fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.shared.area.store(offset, bytes)
    }

    /// Chooses what becomes of the next requests to map or to unmap, one after the other; those after them are served.
    pub fn react(&self, reactions: &[Reaction]) {
        self.shared.lock().reactions.extend(reactions);
    }

    /// Waits until every chosen reaction has had its request.
    pub fn wait_for_reactions(&self) -> anyhow::Result<()> {
        self.wait("too few requests came", |state| state.reactions.is_empty())
    }

    /// Holds all requests from now on; those held in another way go on.
    pub fn hold(&self, hold: Hold) -> Held<'_> {
        self.shared.lock().hold = Some(hold);
        self.shared.changed.notify_all();
        Held(self)
    }

    /// Ends all mappings, as a reset of the device does.
    pub fn drop_mappings(&self) {
        self.shared.drop_mappings(&self.stream);
    }

    /// Closes the channel. What is mapped stays.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Waits until the channel is closed.
    pub fn wait_for_close(&self) -> anyhow::Result<()> {
        self.wait("the channel is not closed", |state| state.is_closed)
    }

    pub(super) fn device_was_reset(&self) {
        if self.shared.rules.unmaps_at_reset {
            self.drop_mappings();
        }
    }

    fn wait(&self, otherwise: &str, is_true: impl Fn(&State) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + HANG_AFTER;
        let mut state = self.shared.lock();
        while !is_true(&state) {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| *left > Duration::ZERO)
            else {
                bail!("{otherwise} after {} s", HANG_AFTER.as_secs());
            };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.close();
        self.shared.lock().is_ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Held<'_> {
    /// Waits until a request is held.
    pub fn wait_for_request(&self) -> anyhow::Result<()> {
        self.0.wait("no request came", |state| state.held.is_some() && state.held == state.hold)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().hold = None;
        self.0.shared.changed.notify_all();
    }
}
