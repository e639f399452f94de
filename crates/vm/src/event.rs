//! What happens during a run, as threads tell the session.

use std::io;

use crate::protocol::{FromGuest, Stream};

/// What happens during a run.
#[derive(Debug)]
pub(crate) enum Event {
    Message(FromGuest),
    Garbled(String),
    ControlClosed,
    /// So many bytes have arrived and gone where they belong.
    Output(Stream, u64),
    OutputFailed(Stream, io::Error),
    InputEnded(u64),
    Signal(i32),
    DaemonEnded(usize),
}
