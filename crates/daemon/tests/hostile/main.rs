//! What a hostile guest or a broken front end sends, and a daemon that lives on.
//!
//! Each test does its harm over a connection, then a healthy session runs on the same daemon: over the same connection
//! where the protocol is unharmed, over a new one in any case.

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
