//! The clock: the CPU's cycle counter, measured against the interval timer, whose rate is known.

use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
};

use super::ports;

/// Rate of the interval timer, which does not depend on the CPU.
const TIMER_HZ: u64 = 1_193_182;
const TIMER_DATA: u16 = 0x40;
const TIMER_MODE: u16 = 0x43;
/// Mode of channel 0: counts down from 65,536 repeatedly.
const COUNT_DOWN: u8 = 0x34;
/// Latches channel 0's count for reading.
const KEEP_COUNT: u8 = 0x00;
/// Duration of the measurement in timer ticks: about 10 ms.
const MEASURED: u16 = 11_932;

/// Rate of the CPU's cycle counter, once it was measured.
static CYCLES_PER_MS: AtomicU64 = AtomicU64::new(1);

/// Measures the cycle counter against the interval timer for 10 ms.
pub(super) fn begin() {
    ports::write_u8(TIMER_MODE, COUNT_DOWN);
    ports::write_u8(TIMER_DATA, 0);
    ports::write_u8(TIMER_DATA, 0);
    let (first, begun) = (timer(), ports::cycles());
    while first.wrapping_sub(timer()) < MEASURED {
        spin_loop();
    }
    let cycles = ports::cycles() - begun;
    CYCLES_PER_MS.store((cycles * TIMER_HZ / u64::from(MEASURED) / 1000).max(1), Ordering::Relaxed);
}

/// Returns the time since power-on, in nanoseconds.
pub(in crate::bare) fn now_ns() -> u64 {
    (u128::from(ports::cycles()) * 1_000_000 / u128::from(CYCLES_PER_MS.load(Ordering::Relaxed))) as u64
}

fn timer() -> u16 {
    ports::write_u8(TIMER_MODE, KEEP_COUNT);
    u16::from_le_bytes([ports::read_u8(TIMER_DATA), ports::read_u8(TIMER_DATA)])
}
