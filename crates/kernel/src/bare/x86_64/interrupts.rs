//! What an interrupt means, by its vector.

use super::{
    apic, shootdown,
    vectors::{CALL, FORGET, LINE, MESSAGES, SPURIOUS, TIMER},
};
use crate::bare::{
    interrupts::{self, VECTORS},
    processors::{self, Reason},
};

/// Returns the processor's vector for a vector of the device.
pub(super) fn message(vector: u16) -> u32 {
    u32::from(MESSAGES.start) + u32::from(vector)
}

/// Handles an interrupt. Called with interrupts off.
pub(super) fn arrived(vector: u8) {
    match vector {
        TIMER => processors::this().interrupted(Reason::Alarm),
        CALL => processors::this().interrupted(Reason::Call),
        FORGET => shootdown::answer(),
        LINE => {
            // The line stays up until the device's status has been read, which `rearm` follows.
            apic::set_lines(false);
            interrupts::arrived(0);
        }
        // It went away, and its end is not awaited.
        SPURIOUS => return,
        vector if MESSAGES.contains(&vector) => interrupts::arrived(u16::from(vector - MESSAGES.start)),
        vector => panic!("an interrupt of vector {vector}, which nobody was told to send"),
    }
    apic::end_interrupt();
}

const _: () = assert!(MESSAGES.end - MESSAGES.start == VECTORS as u8);
