//! The machine's processors, and the data of each. `jobs` runs work on the second one.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::arch;

/// The number of processors that the kernel can use.
pub(super) const PROCESSORS_MAX: usize = 2;

/// What a processor keeps for itself. Others read the tallies and use the mark.
pub(super) struct Processor {
    /// The locks that it holds.
    locks: AtomicUsize,
    /// Whether interrupts were on before it took the first of these.
    were_on: AtomicBool,
    /// It halts, or is about to: whoever changes what it may wait for calls it.
    is_waiting: AtomicBool,
    /// Times that it halted.
    sleeps: AtomicU64,
    /// Interrupts that it took, by their reason.
    interrupts: [AtomicU64; 3],
}

/// Why a processor was interrupted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reason {
    /// By a device.
    Device,
    /// By another processor.
    Call,
    /// By its timer.
    Alarm,
}

static PROCESSORS: [Processor; PROCESSORS_MAX] = [const { Processor::new() }; PROCESSORS_MAX];

/// Processors that run.
static RUNNING: AtomicUsize = AtomicUsize::new(1);

/// Returns the calling processor.
pub(super) fn this() -> &'static Processor {
    &PROCESSORS[arch::number()]
}

/// Returns the number of processors that run.
pub(super) fn running() -> usize {
    RUNNING.load(Ordering::SeqCst)
}

/// Counts the second processor in.
pub(super) fn set_running() {
    RUNNING.store(PROCESSORS_MAX, Ordering::SeqCst);
}

impl Processor {
    const fn new() -> Self {
        Self {
            locks: AtomicUsize::new(0),
            were_on: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            interrupts: [const { AtomicU64::new(0) }; 3],
        }
    }

    /// Turns interrupts off for a lock.
    pub(super) fn keep_quiet(&self) {
        let were_on = arch::interrupts_off();
        if self.locks.fetch_add(1, Ordering::Relaxed) == 0 {
            self.were_on.store(were_on, Ordering::Relaxed);
        }
    }

    /// Ends [`Self::keep_quiet`]; with the last lock, interrupts are as they were before the first.
    pub(super) fn end_quiet(&self) {
        if self.locks.fetch_sub(1, Ordering::Relaxed) == 1 && self.were_on.load(Ordering::Relaxed) {
            arch::interrupts_on();
        }
    }

    /// Marks the processor as one to call, before it checks what it waits for; or as one that runs.
    pub(super) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::SeqCst);
    }

    /// Counts an interrupt that it has taken.
    pub(super) fn interrupted(&self, reason: Reason) {
        self.interrupts[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls every other processor that waits.
pub(super) fn call_waiting() {
    for (number, processor) in PROCESSORS.iter().enumerate().take(running()) {
        if number != arch::number() && processor.is_waiting.swap(false, Ordering::SeqCst) {
            arch::call(number);
        }
    }
}

/// Keeps interrupts off while it lives.
pub(super) struct Quiet {
    were_on: bool,
}

impl Quiet {
    /// Turns interrupts off.
    pub(super) fn begin() -> Self {
        Self { were_on: arch::interrupts_off() }
    }

    /// Lets interrupts in and halts until one has been handled, at the latest that of the timer in `ns`. If interrupts
    /// were off before, returns soon.
    pub(super) fn pause(self, ns: u64) {
        if self.were_on {
            this().sleeps.fetch_add(1, Ordering::Relaxed);
            arch::halt(ns);
        } else {
            arch::relax();
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.were_on {
            arch::interrupts_on();
        }
    }
}

/// What the processors have done since [`reset`], by their numbers.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) sleeps: [u64; PROCESSORS_MAX],
    /// Interrupts of devices.
    pub(super) devices: [u64; PROCESSORS_MAX],
    /// Interrupts by the other processor.
    pub(super) calls: [u64; PROCESSORS_MAX],
    /// Interrupts of the timer: nothing else has ended a halt.
    pub(super) alarms: [u64; PROCESSORS_MAX],
}

/// Returns the tally.
pub(super) fn tally() -> Tally {
    let of = |reason: Reason| PROCESSORS.each_ref().map(|of| of.interrupts[reason as usize].load(Ordering::Relaxed));
    Tally {
        sleeps: PROCESSORS.each_ref().map(|processor| processor.sleeps.load(Ordering::Relaxed)),
        devices: of(Reason::Device),
        calls: of(Reason::Call),
        alarms: of(Reason::Alarm),
    }
}

/// Sets the tally to zero.
pub(super) fn reset() {
    for processor in &PROCESSORS {
        processor.sleeps.store(0, Ordering::Relaxed);
        processor.interrupts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}
