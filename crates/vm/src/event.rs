//! What happens during a run, as threads tell the session.

use std::io;

use crate::{
    keep::shares::Asked,
    machine::ports::PlugError,
    protocol::{FromGuest, Stream},
};

/// What happens during a run.
#[derive(Debug)]
pub(crate) enum Event {
    Message(FromGuest),
    Garbled(String),
    ControlClosed,
    /// The number of bytes that have arrived and are stored.
    Output(Stream, u64),
    OutputFailed(Stream, io::Error),
    InputEnded(u64),
    Signal(i32),
    /// Somebody ends a machine that is kept.
    Stop {
        is_forced: bool,
    },
    /// Somebody adds a share to a machine that is kept, or removes one.
    Share(Asked),
    /// What came of the plug of a share, by the number of its daemon.
    Plugged(usize, Result<(), PlugError>),
    /// Something is to be done about such a share.
    ShareTime,
    DaemonEnded(usize),
}
