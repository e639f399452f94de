//! The kernel's main function, and what its architectures share.

#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64/mod.rs")]
mod arch;
mod console;
mod interrupts;
mod lock;
mod memory;
mod parallel;
mod platform;
mod processors;
mod scenario;
mod share;
#[cfg(not(target_arch = "x86_64"))]
mod virt;

use alloc::sync::Arc;
use core::panic::PanicInfo;

use console::say;
use platform::Bare;

/// The virtio device type of a file system (virtio 1.3, section 5).
const FILE_SYSTEM: u32 = 26;

type Failure = alloc::boxed::Box<dyn core::error::Error>;

/// Called by the architecture's entry point, with a stack and with all memory that the kernel uses mapped to itself.
pub(crate) fn main() -> ! {
    memory::begin();
    let result = match arch::run(&Arc::new(Bare)) {
        Ok(0) => Err("no virtio file system was found".into()),
        result => result,
    };
    match &result {
        Ok(_) => say!("all is well"),
        Err(error) => say!("FAILED: {error}"),
    }
    arch::leave(result.is_ok())
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console::last_words(format_args!("FAILED: processor {}: {info}", arch::number()));
    arch::leave(false)
}
