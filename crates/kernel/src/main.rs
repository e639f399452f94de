//! The smallest kernel that uses a share: the guest library on bare metal.
//!
//! Built for `x86_64-unknown-none`, it boots in QEMU with `-kernel`, finds a virtio file system on the PCI bus or among
//! the virtio-mmio devices of a microvm, mounts it, reads and writes files, and reports the results on the serial port.
//! It is the library's example of a platform without threads and interrupts, and tests its transports against a real
//! device. `scripts/kernel` builds it; the crate's test boots it.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod bare;

#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    eprintln!("transom-kernel: this is a kernel; build it with `scripts/kernel` and boot it with QEMU's -kernel");
    std::process::ExitCode::from(2)
}
