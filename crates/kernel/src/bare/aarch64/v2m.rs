//! Messages of devices: a GICv2m frame, which has the GIC raise the interrupt whose number is stored there.
//!
//! Source: Arm DEN 0029 (Server Base System Architecture), appendix on GICv2m.

use core::sync::atomic::{AtomicU64, Ordering};

use transom_guest::transport::{Registers as _, fdt::Fdt, pci::Message};

use super::gic;
use crate::bare::{Failure, interrupts::VECTORS, memory};

const COMPATIBLE: &str = "arm,gic-v2m-frame";
/// The first interrupt that can be raised, and how many there are in the lower half.
const TYPE: usize = 0x008;
const TYPE_SHIFT: u32 = 16;
const TYPE_MASK: u32 = 0x3ff;
/// Where devices store.
const RAISE: u64 = 0x040;

/// Where the frame is.
static FRAME: AtomicU64 = AtomicU64::new(0);

/// Finds the frame, and gives its first interrupts to the vectors of the device. Returns false without a frame.
pub(in crate::bare) fn begin_messages(tree: &Fdt<'_>) -> Result<bool, Failure> {
    let Some((address, len_bytes)) = tree.registers_of(COMPATIBLE)? else { return Ok(false) };
    let kind = memory::registers(address, len_bytes)?.read_u32(TYPE);
    if kind & TYPE_MASK < VECTORS as u32 {
        return Err("the frame for messages has fewer interrupts than the device has vectors".into());
    }
    gic::set_first_message(kind >> TYPE_SHIFT & TYPE_MASK);
    FRAME.store(address, Ordering::Relaxed);
    Ok(true)
}

/// Returns the message by which a vector of the device interrupts a processor.
pub(in crate::bare) fn message(vector: u16, processor: usize) -> Message {
    let address = FRAME.load(Ordering::Relaxed) + RAISE;
    Message { address, data: gic::use_message(vector, processor) }
}
