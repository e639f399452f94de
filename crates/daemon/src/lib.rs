//! transomd: the host daemon, a vhost-user-fs back end over a host directory.
//!
//! [`options`] reads the command line, [`listen`] opens the socket, [`log`] the log; [`sandbox`], [`privileges`] and
//! [`seccomp`] isolate the process, [`start`] does it all in order; [`backend`] talks to front ends and guests.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod backend;
pub mod capabilities;
pub mod listen;
pub mod log;
pub mod options;
pub mod padding;
pub mod privileges;
pub mod sandbox;
pub mod seccomp;
pub mod serve;
pub mod start;
