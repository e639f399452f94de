//! transomd: the host daemon, a vhost-user-fs back end over a host directory.
//!
//! [`backend`] talks to front ends and guests.

pub mod backend;
