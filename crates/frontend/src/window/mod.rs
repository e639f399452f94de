//! The front end's side of a shared-memory window: maps what the back end requests into this process.
//!
//! A thread answers the back end's requests by [`Rules`], as strictly as the front end that they describe. A test reads
//! and writes through the window as a guest would, inspects the mappings, and controls how the next requests are
//! handled: [`Reaction`] for single ones, [`Window::hold`] for all. Locks: the front end's turn, then the state.

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

/// A window. Lives as long as the connection.
pub struct Window {
    shared: Arc<Shared>,
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A mapping in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Offset in the window, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Whether the back end requested a writable mapping.
    pub is_writable: bool,
    /// The file's device and inode numbers.
    pub file: (u64, u64),
}

/// The number of requests received so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests to map.
    pub maps: u64,
    /// Requests to unmap.
    pub unmaps: u64,
    /// Requests about shared objects.
    pub barriers: u64,
}

/// The point at which requests are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Requests are not carried out until the hold ends.
    Requests,
    /// Requests are carried out, but not answered until the hold ends.
    Answers,
}

/// Holds requests until it is dropped.
pub struct Held<'w>(&'w Window);

impl Window {
    /// Creates a window of `len` bytes that serves requests from `stream`, taking turns with the other users of `turn`.
    pub(super) fn new(len: u64, rules: Rules, stream: UnixStream, turn: Arc<Turn>) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::new(len, rules, turn)?);
        let (served, of_thread) = (stream.try_clone()?, shared.clone());
        let thread = thread::Builder::new().name("front-end-window".into()).spawn(move || of_thread.serve(&served))?;
        Ok(Self { shared, stream, thread: Some(thread) })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    /// Returns whether the back end's window has no bytes.
    pub fn is_empty(&self) -> bool {
        self.shared.len == 0
    }

    /// Returns the mappings, sorted by offset.
    pub fn mappings(&self) -> Vec<Mapping> {
        self.shared.lock().mappings.values().map(|mapped| mapped.mapping).collect()
    }

    /// Returns the descriptor of the file that is mapped at `offset`.
    pub fn descriptor(&self, offset: u64) -> Option<OwnedFd> {
        self.shared.lock().mappings.get(&offset)?.fd.try_clone().ok()
    }

    /// Returns how many requests were received.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts
    }

    /// Returns the largest number of mappings that existed at once.
    pub fn most_mappings(&self) -> usize {
        self.shared.lock().most_mappings
    }

    /// Returns why requests were refused by the rules; empty for a back end that obeys them.
    pub fn refusals(&self) -> Vec<String> {
        self.shared.lock().refusals.clone()
    }

    /// Returns how many requests were refused, closing the channel if the rules say so, because their mapping had ended
    /// by a reset that the back end could not know of when it sent them.
    pub fn stale_refusals(&self) -> u64 {
        self.shared.lock().stale_refusals
    }

    /// Returns whether either side has closed the channel.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Copies from the window as a guest would.
    ///
    /// # Errors
    /// `EFAULT` if nothing is mapped there, or past the end of the file.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.shared.area.load(offset, bytes)
    }

    /// Reads `len` bytes at `offset`.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.load(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies to the window as a guest would.
    ///
    /// # Errors
    /// As for [`Window::load`], and if the guest must not write there.
    pub fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.shared.area.store(offset, bytes)
    }

    /// Sets the reactions to the next requests to map or to unmap, in order. Later requests are served.
    pub fn react(&self, reactions: &[Reaction]) {
        self.shared.lock().reactions.extend(reactions);
    }

    /// Waits until every reaction was used.
    pub fn wait_for_reactions(&self) -> anyhow::Result<()> {
        self.wait("too few requests came", |state| state.reactions.is_empty())
    }

    /// Holds all requests from now on. Requests that are held at the other point continue.
    pub fn hold(&self, hold: Hold) -> Held<'_> {
        self.shared.lock().hold = Some(hold);
        self.shared.changed.notify_all();
        Held(self)
    }

    /// Ends all mappings, as a reset of the device does.
    pub fn drop_mappings(&self) {
        self.shared.drop_mappings(&self.stream);
    }

    /// Closes the channel. Mappings remain.
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
            // The thread itself has reported its panic.
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
