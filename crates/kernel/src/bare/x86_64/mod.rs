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
    Interrupts, VolatileRegisters,
    pci::{ConfigSpace, Message, Msix, Pci},
};

pub(super) use clock::now_ns;
pub(super) use processor::{interrupts_off, interrupts_on, number, root};
pub(super) use second::start_second;
pub(super) use shootdown::{forget, forget_here};

use super::{
    Failure, Found,
    console::say,
    dma_cost,
    interrupts::Wakes,
    jobs,
    lock::RawLock,
    mapping,
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

/// Ways to be woken that one processor uses the file system on the PCI bus with, one after the other.
const WAYS: [(&str, Way); 3] =
    [("one message", Way::Messages(1)), ("a message for each queue", Way::Messages(3)), ("a line", Way::Line)];

/// The same for two processors, and which queues they use.
const WAYS_OF_TWO: [(&str, Way, Queues); 3] = [
    ("one message", Way::Messages(1), Queues::Shared),
    ("a message for each queue", EACH_OF_TWO, Queues::Own),
    ("a line", Way::Line, Queues::Own),
];

/// Vector 0 is for the configuration, the others are for the high-priority queue and two request queues.
const EACH_OF_TWO: Way = Way::Messages(4);

#[derive(Clone, Copy)]
enum Way {
    /// MSI-X, with at most this many vectors.
    Messages(u16),
    /// INTx.
    Line,
}

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
    if start_info::command_line() == mapping::TABLE {
        mapping::measure(share.fs())?;
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
    for (name, way) in WAYS.into_iter().filter(|_| !has_regions) {
        let share = Share::mount(open(function, way)?, platform, Wait::Sleeping)?;
        share.use_until_woken(name, request_vector(way))?;
        share.unmount()?;
    }
    if !jobs::start_second()? {
        return Ok(());
    }
    for (name, way, queues) in WAYS_OF_TWO.into_iter().filter(|_| !has_regions) {
        let share = Share::mount(open(function, way)?, platform, Wait::Sleeping)?;
        parallel::run(&share, name, queues)?;
        share.unmount()?;
    }
    if has_window {
        let share = Share::mount(open(function, EACH_OF_TWO)?, platform, Wait::Sleeping)?;
        mapping::run_on_both(share.fs())?;
        share.unmount()?;
    }
    Ok(())
}

/// Returns the device's transport, set up to interrupt.
fn open(function: &dyn ConfigSpace, way: Way) -> Result<Pci<VolatileRegisters, RawLock>, Failure> {
    let Some(messages) = Msix::new(function, pci::map)? else { return Err("the device has no MSI-X".into()) };
    let interrupts = match way {
        Way::Messages(max) => {
            apic::set_lines(false);
            let count = messages.len().min(max);
            for vector in 0..count {
                // The queue of processor 1 has the last vector of `EACH_OF_TWO`; all others interrupt processor 0.
                let processor = usize::from(vector == 3) % processors::running();
                let address = apic::message_address(processor);
                messages.set(vector, Message { address, data: interrupts::message(vector) });
            }
            messages.enable(function);
            Interrupts::Messages(count, Box::new(Wakes))
        }
        Way::Line => {
            messages.disable(function);
            apic::set_lines(true);
            Interrupts::Line(Box::new(Wakes))
        }
    };
    Ok(pci::open(function, interrupts)?)
}

/// Returns the vector of the request queue, number 1: see `Interrupts::Messages`.
fn request_vector(way: Way) -> usize {
    match way {
        Way::Messages(count @ 2..) => 1 + 1 % (usize::from(count) - 1),
        Way::Messages(_) | Way::Line => 0,
    }
}
