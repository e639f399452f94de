//! What the processor's vectors stand for.

/// Vectors with a handler: the processor's own 32, and as many for devices.
pub(super) const COUNT: usize = 64;
/// The first vector that is not the processor's own.
pub(super) const FIRST_OF_DEVICES: u8 = 32;

/// The vector of the timer, which only ends halts.
pub(super) const TIMER: u8 = 32;
/// The vectors of messages.
pub(super) const MESSAGES: core::ops::Range<u8> = 33..41;
/// The vector of all lines.
pub(super) const LINE: u8 = 48;
/// The vector by which processors call each other.
pub(super) const CALL: u8 = 49;
/// The vector by which they ask each other to forget translations.
pub(super) const FORGET: u8 = 50;
/// The vector of interrupts that went away.
pub(super) const SPURIOUS: u8 = 63;

const _: () = assert!((SPURIOUS as usize) < COUNT && MESSAGES.end <= LINE);
