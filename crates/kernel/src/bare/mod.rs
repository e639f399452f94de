//! The kernel's main function, and what its architectures share.

#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64/mod.rs")]
mod arch;
mod by_name;
mod console;
mod copy;
mod dirty;
mod dma;
mod dma_cost;
mod entry;
mod geometry;
mod interrupts;
mod jobs;
mod lock;
mod mapping;
mod memory;
mod messages;
mod page;
mod parallel;
mod pci;
mod platform;
mod processors;
mod scenario;
mod share;
mod slots;
mod tables;
mod told;
mod versions;
#[cfg(not(target_arch = "x86_64"))]
mod virt;
#[cfg(not(target_arch = "x86_64"))]
mod virt_pci;
mod walk;
mod window;

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::panic::PanicInfo;

use console::say;
use platform::Bare;

/// The virtio device type of a file system (virtio 1.3, section 5).
const FILE_SYSTEM: u32 = 26;

type Failure = alloc::boxed::Box<dyn core::error::Error>;

/// The virtio devices of the machine.
#[derive(Default)]
struct Found {
    /// File systems, all of which were used.
    file_systems: usize,
    /// What the others are, and where.
    others: Vec<String>,
}

impl Found {
    fn add_other(&mut self, device_type: u32, place: &str) {
        self.others.push(format!("a device of type {device_type} {place}"));
    }

    /// Returns an error if there is no file system, which says what there is.
    fn check(&self) -> Result<(), Failure> {
        match (self.file_systems, self.others.is_empty()) {
            (1.., _) => Ok(()),
            (0, true) => Err("the machine has no virtio device (QEMU: -device vhost-user-fs-pci or -device \
                              vhost-user-fs-device)"
                .into()),
            (0, false) => {
                Err(format!("no virtio device is a file system, which has type 26: {}", self.others.join(", ")).into())
            }
        }
    }
}

/// Called by the architecture's entry point, with a stack and with all memory that the kernel uses mapped to itself.
pub(crate) fn main() -> ! {
    memory::begin();
    let result = arch::run(&Arc::new(Bare)).and_then(|found| found.check());
    match &result {
        Ok(()) => say!("all is well"),
        Err(error) => say!("FAILED: {error}"),
    }
    arch::leave(result.is_ok())
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console::last_words(format_args!("FAILED: processor {}: {info}", arch::number()));
    arch::leave(false)
}
