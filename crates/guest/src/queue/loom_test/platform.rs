//! A platform and memory for models: loom may switch threads at every lock, wait and shared index.

#![expect(unsafe_code, reason = "implements a lock, and vouches for memory shared with a device")]

extern crate std;

use alloc::{boxed::Box, vec};
use core::ptr::NonNull;
use std::sync::OnceLock;

use loom::sync::{Condvar, Mutex};

use crate::{
    dma::{DirectMemory, DmaMemory},
    platform::{self, Platform},
};

pub(crate) struct Model;

impl Platform for Model {
    type RawMutex = Lock;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

/// A lock made of loom's, which cannot be created in a constant.
pub(crate) struct Lock(OnceLock<(Mutex<bool>, Condvar)>);

impl Lock {
    fn parts(&self) -> &(Mutex<bool>, Condvar) {
        self.0.get_or_init(|| (Mutex::new(false), Condvar::new()))
    }
}

// SAFETY: `is_locked` is set by one thread at a time, under loom's mutex, and a second thread waits until it is
// cleared.
unsafe impl lock_api::RawMutex for Lock {
    const INIT: Self = Self(OnceLock::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        let (is_locked, unlocked) = self.parts();
        let mut is_locked = is_locked.lock().unwrap();
        while *is_locked {
            is_locked = unlocked.wait(is_locked).unwrap();
        }
        *is_locked = true;
    }

    fn try_lock(&self) -> bool {
        !core::mem::replace(&mut *self.parts().0.lock().unwrap(), true)
    }

    unsafe fn unlock(&self) {
        let (is_locked, unlocked) = self.parts();
        *is_locked.lock().unwrap() = false;
        unlocked.notify_one();
    }
}

/// Deadlines never pass: after a lost wake-up a thread stands still, which loom reports.
pub(crate) struct Event {
    wakes: Mutex<u64>,
    woken: Condvar,
}

impl Default for Event {
    fn default() -> Self {
        Self { wakes: Mutex::new(0), woken: Condvar::new() }
    }
}

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        loop {
            let before = *self.wakes.lock().unwrap();
            if is_done() {
                return true;
            }
            let mut wakes = self.wakes.lock().unwrap();
            while *wakes == before {
                wakes = self.woken.wait(wakes).unwrap();
            }
        }
    }

    fn wake_all(&self) {
        *self.wakes.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

/// Memory that is never freed, so that the device of a model may access it to the end.
pub(super) struct Leaked;

impl DirectMemory for Leaked {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let words = Box::leak(vec![0u64; len_bytes.div_ceil(8)].into_boxed_slice());
        let start = NonNull::from(words).cast::<u8>();
        // SAFETY: aligned to 8, as long as requested, used for nothing else, never freed.
        Some(unsafe { DmaMemory::new(start, len_bytes, start.as_ptr().expose_provenance() as u64) })
    }

    fn free(&self, _: DmaMemory) {}

    fn address(&self, start: NonNull<u8>, _: usize) -> Option<u64> {
        Some(start.as_ptr().expose_provenance() as u64)
    }

    fn contiguous_len_max(&self) -> usize {
        usize::MAX
    }
}

/// Returns a ring's part at an address of [`Leaked`].
pub(super) fn at(address: u64, len_bytes: usize) -> DmaMemory {
    let start = NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize)).expect("an address of the ring");
    // SAFETY: the ring's memory, which is never freed; both sides use atomics or copies.
    unsafe { DmaMemory::new(start, len_bytes, address) }
}
