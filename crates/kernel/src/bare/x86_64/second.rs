//! Starting the second processor.
//!
//! It begins in real mode, at a page below 1 MiB to which [`boot`](super::boot)'s code for it is copied. Source: Intel
//! SDM volume 3, section 9.4.

#![expect(unsafe_code, reason = "copies code to where a processor begins")]

use core::ptr;

use super::{apic, clock, ports, traps};
use crate::bare::{Failure, jobs};

/// Where the second processor begins. Nobody uses this memory once the loader is done.
const BEGINS_AT: usize = 0x8000;

/// How long a processor takes to be reset.
const RESET_NS: u64 = 10_000_000;
/// How long a processor may take to begin, after which it is told once more.
const BEGIN_NS: u64 = 200_000;

/// QEMU's firmware configuration: the ports that select an item, and that read it, and the number of processors. Other
/// machines list their processors in an ACPI table, the MADT.
const ITEM: u16 = 0x510;
const ITEM_DATA: u16 = 0x511;
const PROCESSORS_ITEM: u16 = 5;

unsafe extern "C" {
    static second_begin: u8;
    static second_end: u8;
}

/// Starts the second processor, if the machine has one, at [`enter`]. Returns whether it has.
pub(in crate::bare) fn start_second() -> Result<bool, Failure> {
    if processors() < 2 {
        return Ok(false);
    }
    let (begin, end) = (&raw const second_begin, &raw const second_end);
    // SAFETY: the code lies between the two symbols, and the memory is mapped to itself and has no other user.
    unsafe { ptr::copy_nonoverlapping(begin, BEGINS_AT as *mut u8, end.addr() - begin.addr()) };
    apic::reset(1);
    wait(RESET_NS);
    for _ in 0..2 {
        apic::start_up(1, (BEGINS_AT >> 12) as u8);
        wait(BEGIN_NS);
    }
    Ok(true)
}

/// The second processor's way into the kernel.
pub(super) fn enter() -> ! {
    traps::load();
    apic::begin_local();
    jobs::serve()
}

fn processors() -> u16 {
    ports::write_u16(ITEM, PROCESSORS_ITEM);
    u16::from_le_bytes([ports::read_u8(ITEM_DATA), ports::read_u8(ITEM_DATA)])
}

fn wait(ns: u64) {
    let begun_ns = clock::now_ns();
    while clock::now_ns() - begun_ns < ns {
        core::hint::spin_loop();
    }
}
