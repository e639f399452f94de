//! x86_64: a PC or QEMU's microvm. Devices are at known ports and addresses.

mod apic;
mod boot;
mod clock;
mod copy;
mod devices;
mod interrupts;
mod mapping;
mod page;
mod ports;
mod processor;
mod tables;
mod traps;

use alloc::{boxed::Box, sync::Arc};

use transom_guest::transport::{Interrupts, pci::Message};

pub(super) use clock::now_ns;
pub(super) use processor::Quiet;

use super::{
    Failure,
    console::say,
    platform::Bare,
    share::{Share, Wait},
};
use devices::Function;
use interrupts::{Interrupted, Wakes};

/// The first serial port: its data and line status registers.
const SERIAL: u16 = 0x3f8;
const LINE_STATUS: u16 = SERIAL + 5;
const MAY_SEND: u8 = 1 << 5;

/// Exit codes of the machine; QEMU's exit status is twice the code plus one.
const ALL_WELL: u32 = 16;
const FAILED: u32 = 17;

/// Length of the heap after the kernel, in bytes. The machine must have this much memory above 2 MiB.
pub(super) const HEAP_LEN: usize = 128 << 20;

/// Addresses below this are mapped to themselves.
pub(super) const IDENTITY_LEN: u64 = 512 << 30;

/// Ways to be woken that the file system on the PCI bus is used with, one after the other.
const WAYS: [(&str, Way); 3] =
    [("one message", Way::Messages(1)), ("a message for each queue", Way::Messages(3)), ("a line", Way::Line)];

#[derive(Clone, Copy)]
enum Way {
    /// MSI-X, with at most this many vectors.
    Messages(u16),
    /// INTx.
    Line,
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

/// Uses every file system of the machine; returns their number.
pub(super) fn run(platform: &Arc<Bare>) -> Result<usize, Failure> {
    clock::begin();
    traps::begin();
    let mut found = 0;
    if let Some(function) = Function::find() {
        say!("a file system on the PCI bus");
        let share = Share::mount(function.open(Interrupts::Polling)?, platform, Wait::Polling)?;
        share.use_it()?;
        if share.has_window() {
            mapping::run(share.fs())?;
        }
        let has_window = share.has_window();
        share.unmount()?;
        // Once is enough: the ways do not depend on the window.
        for (name, way) in WAYS.into_iter().filter(|_| !has_window) {
            use_with_interrupts(&function, platform, name, way)?;
        }
        found += 1;
    }
    for device in devices::in_memory()? {
        say!("a file system behind virtio-mmio");
        let share = Share::mount(device, platform, Wait::Polling)?;
        share.use_it()?;
        share.unmount()?;
        found += 1;
    }
    Ok(found)
}

/// Uses the file system without polling: each reply is noticed by an interrupt, or the kernel stops.
fn use_with_interrupts(function: &Function, platform: &Arc<Bare>, name: &str, way: Way) -> Result<(), Failure> {
    let Some(messages) = function.messages()? else { return Err("the device has no MSI-X".into()) };
    // The vector of the request queue, number 1: see `Interrupts::Messages`.
    let (interrupts, vector) = match way {
        Way::Messages(max) => {
            let count = messages.len().min(max);
            for vector in 0..count {
                messages.set(vector, Message { address: apic::LOCAL, data: interrupts::message(vector) });
            }
            messages.enable(function);
            let vector = if count > 1 { 1 + 1 % (count - 1) } else { 0 };
            (Interrupts::Messages(count, Box::new(Wakes)), vector)
        }
        Way::Line => {
            messages.disable(function);
            (Interrupts::Line(Box::new(Wakes)), 0)
        }
    };
    let interrupted = Interrupted::begin()?;
    let share = Share::mount(function.open(interrupts)?, platform, Wait::Sleeping)?;
    // A reply that comes before the library looks needs no interrupt: continue until one was waited for.
    let begun_ns = now_ns();
    share.look_around()?;
    while interrupted.counts()[usize::from(vector)] == 0 {
        if now_ns() - begun_ns > interrupts::LOST_NS {
            return Err("no interrupt has come".into());
        }
        share.fs().open_read("input")?.close()?;
    }
    share.unmount()?;
    let counts = interrupted.counts();
    drop(interrupted);
    messages.disable(function);
    say!("ok: woken by {name}: {counts:?} interrupts");
    Ok(())
}
