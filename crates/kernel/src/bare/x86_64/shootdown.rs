//! Making every processor forget translations that the page tables no longer have.
//!
//! A processor keeps translations until it is told to forget them, and only it can do so. So whoever takes a page or a
//! right away stores the tables first, then asks the other processor, and waits for its answer before anything else
//! comes to use that page. The other one answers in an interrupt handler, or while it spins for a lock: it may spin
//! for one that the asking processor holds.

use core::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::{apic, processor, vectors};
use crate::bare::{
    lock::Lock,
    platform::PAGE_LEN,
    processors::{self, PROCESSORS_MAX},
};

/// Pages beyond which forgetting everything is cheaper than forgetting each.
const PAGES_MAX: usize = 32;

/// Held by the processor that asks.
static ASKING: Lock<()> = Lock::new(());

/// What is asked, stored before `IS_ASKED`.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// By processor: it is to forget, and has not yet.
static IS_ASKED: [AtomicBool; PROCESSORS_MAX] = [const { AtomicBool::new(false) }; PROCESSORS_MAX];

/// Has all processors forget the translations of `addresses`, of which the page tables have been changed. Returns when
/// they have.
pub(in crate::bare) fn forget(addresses: Range<usize>) {
    forget_here(addresses.clone());
    if processors::running() == 1 {
        return;
    }
    let _asking = ASKING.lock();
    START.store(addresses.start, Ordering::Relaxed);
    END.store(addresses.end, Ordering::Relaxed);
    let others = || IS_ASKED.iter().enumerate().filter(|(number, _)| *number != processor::number());
    for (number, is_asked) in others() {
        is_asked.store(true, Ordering::Release);
        apic::interrupt(number, vectors::FORGET);
    }
    for (_, is_asked) in others() {
        while is_asked.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
    }
}

/// Forgets what another processor has asked this one to. Interrupts are off.
pub(super) fn answer() {
    let is_asked = &IS_ASKED[processor::number()];
    if is_asked.load(Ordering::Acquire) {
        forget_here(START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed));
        is_asked.store(false, Ordering::Release);
    }
}

/// Has this processor forget the translations of `addresses`.
pub(in crate::bare) fn forget_here(addresses: Range<usize>) {
    if addresses.len() / PAGE_LEN as usize > PAGES_MAX {
        return processor::flush_all();
    }
    addresses.step_by(PAGE_LEN as usize).for_each(processor::flush_page);
}
