//! The platform of the guest library: a single thread, which polls.

use alloc::boxed::Box;
use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
};

use spinning_top::RawSpinlock;
use transom_guest::{Platform, platform::Event};

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

/// The bare machine.
pub(super) struct Bare;

impl Bare {
    /// Measures the cycle counter against the interval timer for 10 ms.
    pub(super) fn begin() -> Self {
        ports::write_u8(TIMER_MODE, COUNT_DOWN);
        ports::write_u8(TIMER_DATA, 0);
        ports::write_u8(TIMER_DATA, 0);
        let (first, begun) = (timer(), ports::cycles());
        while first.wrapping_sub(timer()) < MEASURED {
            spin_loop();
        }
        let cycles = ports::cycles() - begun;
        CYCLES_PER_MS.store((cycles * TIMER_HZ / u64::from(MEASURED) / 1000).max(1), Ordering::Relaxed);
        Self
    }
}

fn now_ns() -> u64 {
    (u128::from(ports::cycles()) * 1_000_000 / u128::from(CYCLES_PER_MS.load(Ordering::Relaxed))) as u64
}

fn timer() -> u16 {
    ports::write_u8(TIMER_MODE, KEEP_COUNT);
    u16::from_le_bytes([ports::read_u8(TIMER_DATA), ports::read_u8(TIMER_DATA)])
}

impl Platform for Bare {
    type RawMutex = RawSpinlock;
    type Event = Poll;

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn spawn(&self, _name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn is_single_threaded(&self) -> bool {
        true
    }
}

/// An event that waits by polling.
#[derive(Default)]
pub(super) struct Poll;

impl Event for Poll {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        while !is_done() {
            if deadline_ns.is_some_and(|deadline_ns| now_ns() >= deadline_ns) {
                return false;
            }
            spin_loop();
        }
        true
    }

    fn wake_all(&self) {}
}
