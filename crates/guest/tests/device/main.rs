//! The virtio-fs device driver against a fake device: honest, out of order, hostile, and gone.

mod calls;
mod fake;
mod memory;
mod platform;
