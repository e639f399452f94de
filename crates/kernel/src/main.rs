//! The smallest kernel that uses a share: the guest library on bare metal.
//!
//! Built for `x86_64-unknown-none`, it boots in QEMU by `-kernel`, finds a virtio file system on the PCI bus or among
//! the virtio-mmio devices of a microvm, mounts it, reads and writes files, and says on the serial port what it has
//! done. It is the library's example of a platform without threads and without interrupts, and the proof that its
//! transports drive a real device. `scripts/kernel` builds it; the crate's test boots it.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod bare;

#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    eprintln!("This is a kernel: `scripts/kernel` builds it for x86_64-unknown-none, and QEMU boots that by -kernel.");
    std::process::ExitCode::from(2)
}
