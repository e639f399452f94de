//! The virtio-fs device driver against a fake device: honest, out of order, hostile, and gone.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod bring_up;
mod calls;
mod cooperative;
mod dma;
mod fake;
mod hostile;
mod incoherent;
mod interrupted;
mod limits;
mod lists;
mod memory;
mod pages;
mod pending;
mod platform;
mod polled;
mod ring;
mod ring_rules;
mod server;
