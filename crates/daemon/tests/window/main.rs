//! The DAX window, end to end: a guest that requests mappings, transomd or its parts, and a front end that maps.
//!
//! The front end is as strict as QEMU or as lenient as crosvm. At the end of a test, the daemon and the front end agree
//! on what is mapped, and the front end has had no reason to refuse anything.

mod channel;
mod data;
mod end_of_file;
mod guard;
mod host;
mod lifetimes;
mod memory;
mod model;
mod requests;
mod slope;
