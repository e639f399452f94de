//! Work for the second processor.
//!
//! The first processor runs the kernel. The second one, once it is started, runs one job at a time that the first one
//! gives it. A processor without work halts; whoever has something for it calls it, by an interrupt.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};

use transom_guest::{Errno, platform::Event as _};

use super::{
    Failure, arch,
    lock::Lock,
    platform::Event,
    processors::{self, PROCESSORS_MAX},
};

/// The second processor's work, and whether it has done it.
static JOB: Lock<Option<Box<dyn FnOnce() + Send>>> = Lock::new(None);
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// Starts the second processor. Returns false if the machine has one processor.
pub(super) fn start_second() -> Result<bool, Failure> {
    if !arch::start_second()? {
        return Ok(false);
    }
    while processors::running() < PROCESSORS_MAX {
        core::hint::spin_loop();
    }
    Ok(true)
}

/// What the second processor does. Its interrupts are set up, and off.
pub(super) fn serve() -> ! {
    processors::set_running();
    arch::interrupts_on();
    loop {
        // There may be nothing to do for any time.
        while !Event.wait(&mut || JOB.lock().is_some(), Some(u64::MAX)) {}
        let job = JOB.lock().take();
        if let Some(job) = job {
            job();
            IS_DONE.store(true, Ordering::SeqCst);
            Event.wake_all();
        }
    }
}

/// Runs `theirs` on the second processor while this one runs `ours`. Panics at the first error, because the other one
/// may wait for whoever has failed.
pub(super) fn on_both(
    ours: impl FnOnce() -> Result<(), Errno>,
    theirs: impl FnOnce() -> Result<(), Errno> + Send + 'static,
) {
    *JOB.lock() = Some(Box::new(move || theirs().expect("a step of two processors succeeds")));
    Event.wake_all();
    ours().expect("a step of two processors succeeds");
    Event.wait(&mut || IS_DONE.swap(false, Ordering::SeqCst), None);
}
