//! Whether a device still works, for all of its queues.
//!
//! The first thread that detects a protocol violation, or finds the device gone, resets it; only then do the other
//! threads get their error, and their buffers back. Lock: `cause`, held for short sections, in which no other lock is
//! taken.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};

use crate::{
    channel::ChannelError,
    platform::{Event as _, Platform},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        rank,
    },
    transport::{Transport, TransportError},
};

const WORKS: u32 = 0;
/// Nothing more is sent; the device may still access what it was given.
const FAILED: u32 = 1;
/// The device has released everything.
const RELEASED: u32 = 2;

/// Pause between attempts to reset a device that does not respond.
const RESET_PAUSE_NS: u64 = 10_000_000;

/// What a queue does when its device fails.
pub(crate) trait OfDevice: Send + Sync {
    /// Returns once no thread that has not seen the failure is about to add to the ring.
    fn settle(&self);

    /// Makes all waiters see that the device has released everything.
    fn wake_everyone(&self);
}

/// The health of one device.
pub(crate) struct Health<P: Platform> {
    state: AtomicU32,
    cause: Mutex<P, { rank::DEVICE }, Option<ChannelError>>,
    platform: Arc<P>,
    transport: Arc<dyn Transport>,
    /// Signalled when the device has released everything.
    released: P::Event,
    queues: Mutex<P, { rank::DEVICE }, Vec<Weak<dyn OfDevice>>>,
}

impl<P: Platform> Health<P> {
    pub(crate) fn new(platform: Arc<P>, transport: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(WORKS),
            cause: Mutex::new(None),
            platform,
            transport,
            released: P::Event::default(),
            queues: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn watch(&self, queue: Weak<dyn OfDevice>) {
        self.queues.lock().push(queue);
    }

    /// Fails once the device has failed, whether or not it has released its buffers.
    pub(crate) fn check(&self) -> Result<(), ChannelError> {
        if self.is_working() { Ok(()) } else { Err(self.cause()) }
    }

    /// Returns whether the device has not failed so far.
    pub(crate) fn is_working(&self) -> bool {
        self.state.load(Ordering::Acquire) == WORKS
    }

    /// Returns whether the device has released every buffer.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Ordering::Acquire) == RELEASED
    }

    /// Returns why it failed.
    pub(super) fn cause(&self) -> ChannelError {
        self.cause.lock().clone().unwrap_or(ChannelError::Gone)
    }

    /// Ends use of the device: nothing more is sent, and when this returns the device has released everything.
    ///
    /// Blocks for as long as the device cannot be reset, since until then it may write to memory that was lent to it.
    pub(crate) fn fail(&self, cause: ChannelError) {
        {
            let mut first = self.cause.lock();
            if first.is_some() {
                drop(first);
                self.released.wait(&mut || self.is_released(), None);
                return;
            }
            *first = Some(cause);
            self.state.store(FAILED, Ordering::Release);
        }
        let queues: Vec<_> = core::mem::take(&mut *self.queues.lock()).iter().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| queue.settle());
        while !self.is_reset() {
            let again_ns = self.platform.now_ns().saturating_add(RESET_PAUSE_NS);
            self.released.wait(&mut || false, Some(again_ns));
        }
        self.state.store(RELEASED, Ordering::Release);
        self.released.wake_all();
        queues.iter().for_each(|queue| queue.wake_everyone());
    }

    fn is_reset(&self) -> bool {
        matches!(self.transport.reset(), Ok(()) | Err(TransportError::Gone))
    }
}

impl From<TransportError> for ChannelError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Gone => Self::Gone,
            TransportError::Broken(what) | TransportError::Lacks(what) => Self::Broken(what),
            TransportError::Absent => Self::Broken("there is no device at its registers"),
            TransportError::Legacy { .. } => Self::Broken("it is a legacy device"),
            TransportError::RegionExceedsBar { .. } => Self::Broken("a shared memory region exceeds its BAR"),
        }
    }
}
