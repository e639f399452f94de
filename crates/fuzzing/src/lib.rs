//! The fuzzers' entry points, as functions, so that ordinary tests can replay what the fuzzers found.
//!
//! [`decode`] interprets bytes as one message, [`requests`] as a sequence of messages to a file system in memory,
//! [`migration`] as the state of a session, [`announcement`] as what a daemon sends to the agent in a guest; all panic
//! if an invariant is violated. [`guest`] fuzzes the guest library.
//! [`seeds`] generates the initial inputs.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod announcement;
mod answer;
pub mod decode;
mod filled;
pub mod guest;
mod input;
pub mod migration;
mod null;
pub mod requests;
pub mod seeds;
