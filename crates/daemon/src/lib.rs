//! transomd: the host daemon, a vhost-user-fs back end over a host directory.
//!
//! [`options`] reads the command line, [`listen`] opens the socket, [`log`] the log; [`backend`] talks to front ends
//! and guests.

pub mod backend;
pub mod capabilities;
mod legacy;
pub mod listen;
pub mod log;
pub mod options;
