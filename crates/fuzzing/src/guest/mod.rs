//! What a hostile device and a hostile server can do to the guest library: cause errors, and nothing worse.
//!
//! [`device`] is the device under a channel, [`replies`] the server under a session and under paths. A run uses one
//! thread, so that an input always has the same effect: code that would wait for another thread, or take a lock twice,
//! panics, and the device is gone once the input ends.

pub mod device;
mod lock;
mod memory;
mod platform;
pub mod replies;
mod tape;
