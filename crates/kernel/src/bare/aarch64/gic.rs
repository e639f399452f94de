//! The interrupt controller of `virt`, a GIC of version 2: its distributor, and each processor's interface.
//!
//! Source: Arm IHI 0048, chapter 4.

use core::sync::atomic::{AtomicU32, Ordering};

use transom_guest::transport::{Registers as _, VolatileRegisters};

use super::processor;
use crate::bare::{
    interrupts::{self, VECTORS},
    memory,
    processors::{self, Reason},
};

const DISTRIBUTOR: u64 = 0x0800_0000;
const CONTROL: usize = 0x000;
/// One bit for each interrupt: those stored as 1 are let through, or kept back.
const SET_ENABLE: usize = 0x100;
const CLEAR_ENABLE: usize = 0x180;
/// Two bits for each interrupt: the upper one says that it comes once for each edge.
const KINDS: usize = 0xc00;
const EDGE: u32 = 0b10;
/// One byte for each interrupt: a bit for each processor that it is sent to.
const TARGETS: usize = 0x800;
const SEND: usize = 0xf00;
const SEND_TO_SHIFT: u32 = 16;

const INTERFACE: u64 = 0x0801_0000;
const PRIORITY_MASK: usize = 0x04;
const ACKNOWLEDGE: usize = 0x0c;
const END: usize = 0x10;
/// The interrupt's number in what is acknowledged; above it, who has sent it.
const NUMBER_MASK: u32 = 0x3ff;

const LEN: u64 = 0x1000;

/// The interrupt by which processors call each other.
const CALL: u32 = 0;
/// The interrupt of a processor's virtual timer.
const ALARM: u32 = 27;
/// The first interrupt that the processors share; the device tree counts from here.
const SHARED: u32 = 32;
/// Interrupts from this one on mean that there is no interrupt.
const NOTHING: u32 = 1020;

/// The interrupt of the device that is in use.
static LINE: AtomicU32 = AtomicU32::new(NOTHING);

/// The interrupt of the device's vector 0, if it interrupts by messages. Those of the others follow.
static FIRST_MESSAGE: AtomicU32 = AtomicU32::new(NOTHING);

/// Turns the distributor on.
pub(super) fn begin() {
    registers(DISTRIBUTOR).write_u32(CONTROL, 1);
}

/// Lets calls and alarms in to this processor.
pub(super) fn begin_local() {
    registers(DISTRIBUTOR).write_u32(SET_ENABLE, 1 << CALL | 1 << ALARM);
    let interface = registers(INTERFACE);
    interface.write_u32(PRIORITY_MASK, 0xff);
    interface.write_u32(CONTROL, 1);
}

/// Has the line that the device tree calls `number` interrupt processor 0.
pub(in crate::bare) fn use_line(number: u32) {
    let line = SHARED + number;
    LINE.store(line, Ordering::Relaxed);
    registers(DISTRIBUTOR).write_u8(TARGETS + line as usize, 1);
    rearm_line();
}

/// Lets the line through, which its handler has kept back.
pub(in crate::bare) fn rearm_line() {
    set_bit(SET_ENABLE, LINE.load(Ordering::Relaxed));
}

/// Sets the interrupt that messages of the device's vector 0 raise.
pub(super) fn set_first_message(interrupt: u32) {
    FIRST_MESSAGE.store(interrupt, Ordering::Relaxed);
}

/// Has messages of a vector of the device interrupt a processor. Returns the number of the interrupt.
pub(super) fn use_message(vector: u16, processor: usize) -> u32 {
    let interrupt = FIRST_MESSAGE.load(Ordering::Relaxed) + u32::from(vector);
    let distributor = registers(DISTRIBUTOR);
    let kinds_at = KINDS + interrupt as usize / 16 * 4;
    // A message is over as soon as it is stored: as a level, it would be gone before a processor looks.
    let kinds = distributor.read_u32(kinds_at) | EDGE << (interrupt % 16 * 2);
    distributor.write_u32(kinds_at, kinds);
    distributor.write_u8(TARGETS + interrupt as usize, 1 << processor);
    set_bit(SET_ENABLE, interrupt);
    interrupt
}

/// Returns the device's vector whose messages raise an interrupt.
fn vector_of(interrupt: u32) -> Option<u16> {
    let vector = interrupt.checked_sub(FIRST_MESSAGE.load(Ordering::Relaxed))?;
    (vector < VECTORS as u32).then_some(vector as u16)
}

/// Has another processor take an interrupt.
pub(in crate::bare) fn call(processor: usize) {
    registers(DISTRIBUTOR).write_u32(SEND, 1 << (SEND_TO_SHIFT + processor as u32) | CALL);
}

/// Handles an interrupt. Called with interrupts off.
pub(super) fn arrived() {
    let interface = registers(INTERFACE);
    let acknowledged = interface.read_u32(ACKNOWLEDGE);
    match acknowledged & NUMBER_MASK {
        CALL => processors::this().interrupted(Reason::Call),
        ALARM => {
            processor::end_alarm();
            processors::this().interrupted(Reason::Alarm);
        }
        // It went away, and its end is not awaited.
        NOTHING.. => return,
        line if line == LINE.load(Ordering::Relaxed) => {
            // The line stays up until the device's causes have been acknowledged, which `rearm_line` follows.
            set_bit(CLEAR_ENABLE, line);
            interrupts::arrived(0);
        }
        number => match vector_of(number) {
            Some(vector) => interrupts::arrived(vector),
            None => panic!("interrupt {number}, which nobody was told to send"),
        },
    }
    interface.write_u32(END, acknowledged);
}

fn set_bit(register: usize, interrupt: u32) {
    registers(DISTRIBUTOR).write_u32(register + interrupt as usize / 32 * 4, 1 << (interrupt % 32));
}

fn registers(address: u64) -> VolatileRegisters {
    memory::registers(address, LEN).expect("the addresses are mapped to themselves")
}
