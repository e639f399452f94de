//! What the threads of one mount have in common, and how it ends for all of them.
//!
//! The first thread that meets the end says why: the kernel's descriptors are then let go of, which makes the kernel answer
//! every request that waits and every later one with ENOTCONN, and all threads wake. Locks: `kernels`, `parked` and `end`,
//! each held for a moment with nothing under it.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

use transom_wire::header::InHeader;

use super::{End, kernel::Kernel, priority::Priority};
use crate::transport::VhostUser;

/// Requests that wait for a slot, of all threads; beyond that nothing more is read.
const PARKED_MAX: usize = 4096;
/// Bytes of them.
const PARKED_BYTES_MAX: usize = 64 << 20;

/// The common part of a mount.
pub(super) struct Shared {
    /// Is to end before the rings and slots, which the threads hold.
    pub(super) device: VhostUser,
    pub(super) priority: Priority,
    /// Readable once the mount has ended.
    stop: OwnedFd,
    /// One for each thread; empty after the end.
    kernels: Mutex<Vec<Arc<Kernel>>>,
    end: Mutex<Option<End>>,
    /// Requests that came when every slot was taken.
    parked: Mutex<Vec<Parked>>,
    parked_bytes: AtomicUsize,
    parked_count: AtomicUsize,
    /// Threads that watch rather than sleep.
    pub(super) watchers: AtomicUsize,
}

/// A request that waits for a slot of its thread.
pub(super) struct Parked {
    /// Whose it is: by its descriptor the answer goes.
    pub(super) lane: usize,
    pub(super) header: InHeader,
    pub(super) message: Vec<u8>,
}

impl Shared {
    pub(super) fn new(device: VhostUser, priority: Priority) -> io::Result<Self> {
        Ok(Self {
            device,
            priority,
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            kernels: Mutex::default(),
            end: Mutex::new(None),
            parked: Mutex::default(),
            parked_bytes: AtomicUsize::new(0),
            parked_count: AtomicUsize::new(0),
            watchers: AtomicUsize::new(0),
        })
    }

    /// The threads' descriptors, before they run.
    pub(super) fn serve(&self, kernels: Vec<Arc<Kernel>>) {
        *self.kernels.lock() = kernels;
    }

    pub(super) fn stop(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// The descriptor of thread `lane`, until the end.
    pub(super) fn kernel(&self, lane: usize) -> Option<Arc<Kernel>> {
        self.kernels.lock().get(lane).cloned()
    }

    /// Ends the mount for `why`, unless it has ended.
    pub(super) fn end(&self, why: End) {
        {
            let mut end = self.end.lock();
            if end.is_some() {
                return;
            }
            *end = Some(why);
        }
        // A device that broke its promises is not talked to any more; of one that is gone this makes sure.
        self.device.hang_up();
        self.kernels.lock().clear();
        // It fails for a bad number or buffer only.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Why it has ended.
    pub(super) fn cause(&self) -> Option<End> {
        *self.end.lock()
    }

    /// Whether more requests may be read that find no slot.
    pub(super) fn can_park(&self) -> bool {
        self.parked_count.load(Ordering::Relaxed) < PARKED_MAX
            && self.parked_bytes.load(Ordering::Relaxed) < PARKED_BYTES_MAX
    }

    pub(super) fn park(&self, request: Parked) {
        self.parked_bytes.fetch_add(request.message.len(), Ordering::Relaxed);
        let mut parked = self.parked.lock();
        parked.push(request);
        self.parked_count.store(parked.len(), Ordering::Release);
    }

    /// The oldest request that waits for a slot of `lane`.
    pub(super) fn unpark(&self, lane: usize) -> Option<Parked> {
        self.take_parked(|parked| parked.lane == lane)
    }

    /// Answers the request `unique` with EINTR if it still waits for a slot; tells whether it did.
    pub(super) fn interrupt_parked(&self, unique: u64) -> bool {
        let Some(parked) = self.take_parked(|parked| parked.header.unique.get() == unique) else { return false };
        if let Some(kernel) = self.kernel(parked.lane) {
            // Nobody waits any more where this fails.
            let _ = kernel.fail(unique, Errno::INTR);
        }
        true
    }

    fn take_parked(&self, is_wanted: impl Fn(&Parked) -> bool) -> Option<Parked> {
        if self.parked_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut parked = self.parked.lock();
        let found = parked.iter().position(is_wanted).map(|at| parked.remove(at));
        self.parked_count.store(parked.len(), Ordering::Release);
        if let Some(found) = &found {
            self.parked_bytes.fetch_sub(found.message.len(), Ordering::Relaxed);
        }
        found
    }
}
