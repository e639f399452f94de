//! transomd: the host daemon, a vhost-user-fs back end that serves a directory of the host.
//!
//! [`options`] parses the command line, [`listen`] opens the socket, and [`log`] opens the log. [`sandbox`],
//! [`privileges`] and [`seccomp`] isolate the process; [`start`] runs all of these in order. [`backend`] serves front
//! ends and guests, [`changes`] observes what others change in the share. With `--upgradable`, the
//! [`supervisor`] stays while daemons come and go, and [`upgrade`] is what they say to each other.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod backend;
pub mod capabilities;
pub mod changes;
pub mod listen;
pub mod log;
pub mod options;
pub mod padding;
pub mod privileges;
pub mod sandbox;
pub mod seccomp;
pub mod serve;
pub mod start;
pub mod supervisor;
pub mod upgrade;
