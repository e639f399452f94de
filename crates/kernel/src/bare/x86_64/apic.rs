//! Interrupt controllers of a PC: the processor's own, which takes messages and has a timer, and the one for lines.
//!
//! Source: Intel SDM volume 3, chapter 11; 82093AA data sheet.

use transom_guest::transport::{Registers as _, TransportError, VolatileRegisters};

use super::{ports, traps::VECTORS};
use crate::bare::memory;

/// The vector of the timer, which only ends halts.
pub(super) const TIMER: u8 = 32;
/// The vectors of messages.
pub(super) const MESSAGES: core::ops::Range<u8> = 33..48;
/// The vector of all lines.
pub(super) const LINE: u8 = 48;
/// The vector of interrupts that went away.
pub(super) const SPURIOUS: u8 = 63;

/// Where messages for processor 0 are stored, and the processor's own registers are.
pub(super) const LOCAL: u64 = 0xfee0_0000;
const LOCAL_LEN: u64 = 0x400;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS_VECTOR: usize = 0xf0;
const ENABLED: u32 = 1 << 8;
const TIMER_VECTOR: usize = 0x320;
const PERIODIC: u32 = 1 << 17;
const TIMER_COUNT: usize = 0x380;
const TIMER_DIVIDER: usize = 0x3e0;
const DIVIDE_BY_16: u32 = 3;
/// Ticks between two interrupts of the timer: at the rate of QEMU's, 16 ms.
const TICKS: u32 = 1_000_000;

/// The controller for lines: an index and a window to what it selects.
const LINES: u64 = 0xfec0_0000;
const LINES_LEN: u64 = 0x20;
const SELECT: usize = 0x00;
const SELECTED: usize = 0x10;
/// The first of two words for each pin.
const PIN_0: u32 = 0x10;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;
const MASKED: u32 = 1 << 16;
/// The pins of PCI's lines on QEMU's q35.
const PCI_PINS: core::ops::Range<u32> = 16..24;

/// Data ports of the older controllers, which are not used.
const OLD: [u16; 2] = [0x21, 0xa1];

/// The controllers.
pub(super) struct Controllers {
    local: VolatileRegisters,
    lines: VolatileRegisters,
}

impl Controllers {
    /// Returns the controllers. They share nothing with other values but the registers.
    pub(super) fn new() -> Result<Self, TransportError> {
        Ok(Self { local: memory::registers(LOCAL, LOCAL_LEN)?, lines: memory::registers(LINES, LINES_LEN)? })
    }

    /// Lets messages in, and starts the timer.
    pub(super) fn begin(&self) {
        OLD.into_iter().for_each(|port| ports::write_u8(port, 0xff));
        self.local.write_u32(SPURIOUS_VECTOR, ENABLED | u32::from(SPURIOUS));
        self.local.write_u32(TIMER_DIVIDER, DIVIDE_BY_16);
        self.local.write_u32(TIMER_VECTOR, PERIODIC | u32::from(TIMER));
        self.local.write_u32(TIMER_COUNT, TICKS);
    }

    /// Lets the processor take the next interrupt.
    pub(super) fn end_interrupt(&self) {
        self.local.write_u32(END_OF_INTERRUPT, 0);
    }

    /// Lets the lines of PCI functions through to processor 0, or keeps them back. Interrupts are off.
    pub(super) fn set_lines(&self, are_let_through: bool) {
        let mask = if are_let_through { 0 } else { MASKED };
        for pin in PCI_PINS {
            self.set_pin(pin, 1, 0);
            self.set_pin(pin, 0, LEVEL | ACTIVE_LOW | mask | u32::from(LINE));
        }
    }

    fn set_pin(&self, pin: u32, word: u32, value: u32) {
        self.lines.write_u32(SELECT, PIN_0 + 2 * pin + word);
        self.lines.write_u32(SELECTED, value);
    }
}

const _: () = assert!((SPURIOUS as usize) < VECTORS && MESSAGES.end == LINE);
