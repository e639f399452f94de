//! How long a thread polls before it sleeps.
//!
//! Waking a sleeping thread costs more than serving a small request, so a thread that expects work soon polls for it
//! first. There are two policies, one for each kind of waiter:
//!
//! - [`AdaptivePoller`] is for a thread that waits for *any* request, such as a worker of the daemon or of a mount. It
//!   polls longer while that pays and not at all while requests are rare.
//! - [`ReplyPoller`] is for threads that each wait for *their own* reply, such as callers of the guest library. It
//!   polls up to a limit, while replies usually come sooner.
//!
//! Neither reads a clock, blocks, or makes a system call: callers pass times in nanoseconds of a monotonic clock. The
//! crate is `no_std`, so that the guest library can use it. [Decision 3](../../../docs/decisions/0003-polling.md) has
//! the reasons.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

extern crate alloc;

mod adaptive;
mod limit;
mod reply;

pub use adaptive::AdaptivePoller;
pub use limit::PollerLimit;
pub use reply::ReplyPoller;
