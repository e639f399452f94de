//! Messages of a function on the PCI bus (MSI-X): which processor each of its vectors interrupts.
//!
//! The architecture says how a message is addressed to a processor (`arch::message`).

use alloc::{boxed::Box, format, sync::Arc};

use transom_guest::transport::{
    Interrupts, VolatileRegisters,
    pci::{ConfigSpace, Msix},
};

use super::{
    Failure, arch,
    interrupts::Wakes,
    parallel::{self, Queues},
    pci,
    platform::Bare,
    processors,
    share::{Share, Wait},
};

/// How many vectors one processor uses the file system with, one after the other.
const COUNTS: [(&str, u16); 2] = [("one message", 1), ("a message for each queue", 3)];

/// The same for two processors, and which queues they use.
const COUNTS_OF_TWO: [(&str, u16, Queues); 2] =
    [("one message", 1, Queues::Shared), ("a message for each queue", EACH_OF_TWO, Queues::Own)];

/// Vector 0 is for the configuration, the others are for the high-priority queue and two request queues.
const EACH_OF_TWO: u16 = 4;

/// Uses the file system on one processor.
pub(super) fn run(function: &dyn ConfigSpace, platform: &Arc<Bare>) -> Result<(), Failure> {
    for (name, count) in COUNTS {
        let share = Share::mount(pci::open(function, enable(function, count)?)?, platform, Wait::Sleeping)?;
        share.use_until_woken(name, request_vector(count))?;
        share.unmount()?;
    }
    Ok(())
}

/// Uses the file system on two processors, both of which run.
pub(super) fn run_on_both(function: &dyn ConfigSpace, platform: &Arc<Bare>) -> Result<(), Failure> {
    for (name, count, queues) in COUNTS_OF_TWO {
        let share = Share::mount(pci::open(function, enable(function, count)?)?, platform, Wait::Sleeping)?;
        parallel::run(&share, name, queues)?;
        share.unmount()?;
    }
    Ok(())
}

/// Has the function interrupt by this many messages.
pub(super) fn enable(function: &dyn ConfigSpace, count: u16) -> Result<Interrupts, Failure> {
    let messages = table(function)?;
    if messages.len() < count {
        return Err(format!("the device has {} messages instead of {count}", messages.len()).into());
    }
    for vector in 0..count {
        // The queue of processor 1 has the last vector of `EACH_OF_TWO`; all others interrupt processor 0.
        let processor = usize::from(vector == 3) % processors::running();
        messages.set(vector, arch::message(vector, processor));
    }
    messages.enable(function);
    Ok(Interrupts::Messages(count, Box::new(Wakes)))
}

/// Has the function interrupt by its line.
#[cfg(target_arch = "x86_64")]
pub(super) fn disable(function: &dyn ConfigSpace) -> Result<(), Failure> {
    table(function)?.disable(function);
    Ok(())
}

fn table(function: &dyn ConfigSpace) -> Result<Msix<VolatileRegisters>, Failure> {
    Msix::new(function, pci::map)?.ok_or_else(|| "the device has no MSI-X".into())
}

/// Returns the vector of the request queue, number 1: see `Interrupts::Messages`.
fn request_vector(count: u16) -> usize {
    if count > 1 { 1 + 1 % (usize::from(count) - 1) } else { 0 }
}
