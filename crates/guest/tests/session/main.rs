//! The session and its operations, with real servers in the same process and with impossible ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod begin;
mod complete;
mod failures;
mod forgets;
mod hostile;
mod interrupts;
mod memory;
mod operations;
mod peer;
mod pending;
mod requests;
mod scenarios;
mod script;
mod unknown;
