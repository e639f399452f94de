//! A hostile guest or a broken front end, and a daemon that survives.
//!
//! Each test does its harm over a connection. Then a healthy session runs on the same daemon: over the same connection
//! if the protocol is intact, and over a new one in any case.

mod chains;
mod executable;
mod host;
mod lifetimes;
mod messages;
mod model;
mod overtaken;
mod requests;
mod rings;
mod sessions;
mod slopes;
mod unbegun;
