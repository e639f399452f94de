//! One connection on a channel: the bytes that wait for its socket, and the credit of both sides.
//!
//! A side sends at most [`WINDOW`] bytes more than the other has taken. So a reader of the channel never waits for a
//! socket, and a connection that stalls neither stops the others nor takes more memory than that.

use std::{
    collections::VecDeque,
    io,
    net::{Shutdown, TcpStream},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::frame::invalid;

/// Bytes that a side may send before it gets credit: four of the longest frames, so that data flows while credit is on
/// its way. A host with 256 streams keeps 16 MiB at most.
pub(crate) const WINDOW: usize = 64 << 10;

/// A connection. Protected by its own lock; nothing else is locked while it is held.
#[derive(Debug)]
pub(super) struct Stream {
    state: Mutex<State>,
    /// Notified at each change of the state.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// What has come through the channel and waits for the socket.
    incoming: VecDeque<u8>,
    /// What the peer may still send.
    allowance: usize,
    /// What may still be sent to the peer.
    credit: usize,
    /// How the peer's data ended, once it has.
    end: Option<End>,
    /// The connection, once there is one, to end it.
    socket: Option<TcpStream>,
    /// Bytes could not be written to it.
    has_failed: bool,
}

/// How the data of one direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All of it has been sent.
    Finished,
    /// The peer neither sends nor takes any more.
    Reset,
}

impl Stream {
    pub(super) fn new() -> Self {
        let state = State {
            incoming: VecDeque::new(),
            allowance: WINDOW,
            credit: WINDOW,
            end: None,
            socket: None,
            has_failed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes bytes of the peer. Does not block.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer has no credit for them, or has sent its end.
    pub(super) fn receive(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if bytes.len() > state.allowance || state.end.is_some() {
            return Err(invalid(format!("{} bytes without credit", bytes.len())));
        }
        state.allowance -= bytes.len();
        state.incoming.extend(bytes);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes credit of the peer. Does not block.
    ///
    /// # Errors
    ///
    /// Returns an error if it is more than the peer can have taken.
    pub(super) fn add_credit(&self, bytes: u32) -> io::Result<()> {
        let mut state = self.lock();
        let credit = state.credit.saturating_add(bytes as usize);
        if credit > WINDOW {
            return Err(invalid(format!("credit for {credit} bytes")));
        }
        state.credit = credit;
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the end of the peer's data. Does not block.
    ///
    /// # Errors
    ///
    /// Returns an error if it has ended before.
    pub(super) fn receive_end(&self, is_reset: bool) -> io::Result<()> {
        let mut state = self.lock();
        if state.end.is_some() {
            return Err(invalid("a second end"));
        }
        state.set_end(if is_reset { End::Reset } else { End::Finished });
        self.changed.notify_all();
        Ok(())
    }

    /// Ends the stream because its channel has ended.
    pub(super) fn abort(&self) {
        self.lock().set_end(End::Reset);
        self.changed.notify_all();
    }

    /// Names the connection that ends with the stream. It ends at once if the peer has reset the stream already.
    pub(super) fn connect(&self, socket: &TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        state.socket = Some(socket.try_clone()?);
        if state.end == Some(End::Reset) {
            state.shut_down();
        }
        Ok(())
    }

    /// Ends the connection, to which bytes could not be written.
    pub(super) fn fail(&self) {
        let mut state = self.lock();
        state.has_failed = true;
        state.shut_down();
    }

    /// Returns whether bytes could not be written to the connection.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Forgets the connection, which is closed once its other owners have let go of it.
    pub(super) fn disconnect(&self) {
        self.lock().socket = None;
    }

    /// Waits for credit, and returns at most `max` bytes of it, or `None` if the peer takes no more.
    pub(super) fn wait_for_credit(&self, max: usize) -> Option<usize> {
        let mut state = self.lock();
        loop {
            match state.end {
                Some(End::Reset) => return None,
                _ if state.credit > 0 => return Some(state.credit.min(max)),
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Uses credit that [`wait_for_credit`](Self::wait_for_credit) has returned.
    pub(super) fn use_credit(&self, bytes: usize) {
        let mut state = self.lock();
        state.credit = state.credit.saturating_sub(bytes);
    }

    /// Waits for bytes of the peer and moves them to `chunk`. Returns how many, or `None` after the last.
    pub(super) fn take(&self, chunk: &mut [u8]) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if !state.incoming.is_empty() && state.end != Some(End::Reset) {
                let len = io::Read::read(&mut state.incoming, chunk).unwrap_or(0);
                return Some(len);
            }
            if state.end.is_some() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Allows the peer to send as many bytes as were taken. Returns whether it still sends.
    pub(super) fn allow(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        state.allowance += bytes;
        state.end.is_none()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_end(&mut self, end: End) {
        self.end = Some(end);
        if end == End::Reset {
            self.incoming = VecDeque::new();
            self.shut_down();
        }
    }

    fn shut_down(&self) {
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
