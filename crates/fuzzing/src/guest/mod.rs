//! What a hostile device and a hostile server can make of the guest library: errors, and nothing worse.
//!
//! [`device`] plays the device under a channel, [`replies`] the server under a session and under paths. All of a run
//! happens on one thread, so that an input always does the same: whatever would wait for another thread, or locks
//! twice, panics, and where the input ends the device is gone.

pub mod device;
mod lock;
mod memory;
mod platform;
pub mod replies;
mod tape;
