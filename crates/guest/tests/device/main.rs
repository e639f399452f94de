//! The virtio-fs device driver against a fake device: honest, out of order, hostile, and gone.

mod bring_up;
mod calls;
mod dma;
mod fake;
mod hostile;
mod memory;
mod platform;
mod ring;
