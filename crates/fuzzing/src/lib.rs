//! What the fuzzers run, as functions, so that ordinary tests replay what the fuzzers found.
//!
//! [`decode`] takes bytes for one message, [`requests`] for a sequence of them against a file system in memory; both
//! panic where an invariant does not hold. [`guest`] has what is on the other side. [`seeds`] makes the inputs that
//! fuzzing begins with.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod answer;
pub mod decode;
pub mod guest;
mod input;
mod null;
pub mod requests;
pub mod seeds;
