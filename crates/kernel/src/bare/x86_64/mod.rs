//! x86_64: a PC or QEMU's microvm. Devices are at known ports and addresses.

mod adopted;
mod apic;
mod boot;
mod clock;
mod copy_bytes;
mod devices;
pub(super) mod format;
mod interrupts;
mod ports;
mod processor;
mod second;
mod shootdown;
mod start_info;
mod traps;
mod vectors;

use alloc::{boxed::Box, sync::Arc};

use transom_guest::transport::{
    Interrupts,
    pci::{ConfigSpace, Message},
};

pub(super) use clock::now_ns;
pub(super) use processor::{interrupts_off, interrupts_on, number, root};
pub(super) use second::start_second;
pub(super) use shootdown::{forget, forget_here};

use super::{
    Failure, Found, by_name,
    console::say,
    dma_cost,
    interrupts::Wakes,
    jobs, mapping, messages,
    parallel::{self, Queues},
    pci,
    platform::Bare,
    processors, scenario,
    share::{Share, Wait},
};
use devices::Ports;

/// The first serial port: its data and line status registers.
const SERIAL: u16 = 0x3f8;
const LINE_STATUS: u16 = SERIAL + 5;
const MAY_SEND: u8 = 1 << 5;

/// Exit codes of the machine; QEMU's exit status is twice the code plus one.
const ALL_WELL: u32 = 16;
const FAILED: u32 = 17;

/// Maximum length of the heap after the kernel, in bytes.
const HEAP_LEN_MAX: usize = 128 << 20;

/// Addresses below this are mapped to themselves.
pub(super) const IDENTITY_LEN: u64 = 512 << 30;

/// Returns the length of the heap that begins at `start`, in bytes: the rest of the machine's memory there, or a part.
pub(super) fn heap_len(start: usize) -> usize {
    start_info::memory_from(start, HEAP_LEN_MAX)
}

/// Writes a byte to the console.
pub(super) fn put(byte: u8) {
    while ports::read_u8(LINE_STATUS) & MAY_SEND == 0 {
        core::hint::spin_loop();
    }
    ports::write_u8(SERIAL, byte);
}

/// Ends the machine.
pub(super) fn leave(is_well: bool) -> ! {
    ports::leave(if is_well { ALL_WELL } else { FAILED })
}

/// Has another processor take an interrupt.
pub(super) fn call(processor: usize) {
    let _quiet = processors::Quiet::begin();
    apic::interrupt(processor, vectors::CALL);
}

/// Lets interrupts in and halts until one has been handled, at the latest that of the timer in `ns`. Interrupts are
/// off.
pub(super) fn halt(ns: u64) {
    apic::set_alarm(ns);
    processor::halt();
}

/// What a processor does while it spins with interrupts off: answers the others, who cannot interrupt it.
pub(super) fn relax() {
    core::hint::spin_loop();
    shootdown::answer();
}

/// Makes a stored entry of a page table known to what reads it: processors of this architecture see it at once.
pub(super) fn publish() {}

/// Lets the line through, which its handler has kept back.
pub(super) fn rearm_line() {
    apic::set_lines(true);
}

/// Uses every file system of the machine.
pub(super) fn run(platform: &Arc<Bare>) -> Result<Found, Failure> {
    clock::begin();
    traps::begin();
    apic::begin();
    apic::begin_local();
    interrupts_on();
    let mut found = Found::default();
    if let Some(function) = pci::find(&Ports, &mut found) {
        say!("a file system on the PCI bus");
        use_pci(&function, platform)?;
        found.file_systems += 1;
    }
    for device in devices::in_memory(&mut found)? {
        say!("a file system behind virtio-mmio");
        let share = Share::mount(device, platform, Wait::Polling)?;
        scenario::run(share.fs())?;
        dma_cost::count(&share)?;
        share.unmount()?;
        found.file_systems += 1;
    }
    Ok(found)
}

/// Uses the file system on the PCI bus: by polling, with each kind of interrupt, and on two processors.
fn use_pci(function: &dyn ConfigSpace, platform: &Arc<Bare>) -> Result<(), Failure> {
    adopted::run(platform)?;
    let share = Share::mount(pci::open(function, Interrupts::Polling)?, platform, Wait::Polling)?;
    if by_name::run(&share)? {
        return share.unmount();
    }
    scenario::run(share.fs())?;
    share.use_versions()?;
    dma_cost::count(&share)?;
    let (has_window, has_regions) = (share.has_window(), share.has_regions());
    if has_window {
        mapping::run(share.fs())?;
    }
    share.unmount()?;
    // Once is enough: the ways do not depend on the regions.
    if !has_regions {
        messages::run(function, platform)?;
        let share = Share::mount(pci::open(function, use_line(function)?)?, platform, Wait::Sleeping)?;
        share.use_until_woken("a line", 0)?;
        share.unmount()?;
    }
    if !jobs::start_second()? {
        return Ok(());
    }
    if !has_regions {
        messages::run_on_both(function, platform)?;
        let share = Share::mount(pci::open(function, use_line(function)?)?, platform, Wait::Sleeping)?;
        parallel::run(&share, "a line", Queues::Own)?;
        share.unmount()?;
    }
    if has_window {
        // QEMU's generic device has no more.
        let interrupts = messages::enable(function, 1)?;
        let share = Share::mount(pci::open(function, interrupts)?, platform, Wait::Sleeping)?;
        mapping::run_on_both(share.fs())?;
        share.unmount()?;
    }
    Ok(())
}

/// Has the function interrupt by its line.
fn use_line(function: &dyn ConfigSpace) -> Result<Interrupts, Failure> {
    messages::disable(function)?;
    apic::set_lines(true);
    Ok(Interrupts::Line(Box::new(Wakes)))
}

/// Has a vector of the device interrupt a processor by a message, and its line no more. Returns the message.
pub(super) fn message(vector: u16, processor: usize) -> Message {
    apic::set_lines(false);
    Message { address: apic::message_address(processor), data: interrupts::message(vector) }
}
