//! The smallest kernel that uses a share: the guest library on bare metal.
//!
//! Built for a target without an operating system, it boots in QEMU with `-kernel`, finds a virtio file system, mounts
//! it, reads and writes files, maps them over page tables of its own, and reports the results on the serial port. On
//! x86_64, the file system is on the PCI bus or among the virtio-mmio devices of a microvm; on aarch64 and riscv64, the
//! device tree names it, or the PCI bus, which the kernel sets up itself. Replies are noticed by polling and by each
//! kind of interrupt, on one processor and on two.
//!
//! It is the library's example of a platform, and tests its transports against real devices.
//! `scripts/kernel` builds it; the crate's test boots it.

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
