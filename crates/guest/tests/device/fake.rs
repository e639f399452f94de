//! A device in the same process: the transport for the driver, and the device's end of the rings for the test.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering, fence},
    },
    time::Duration,
};

use transom_guest::transport::{QueueAddresses, ShmRegion, Transport, TransportError};

use crate::memory::at;

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
pub(crate) const EVENT_IDX: u64 = 1 << 29;
pub(crate) const ALL: u64 = VERSION_1 | INDIRECT_DESC | EVENT_IDX;

/// A device with one high-priority queue and some request queues.
pub(crate) struct Fake {
    pub(crate) features: u64,
    pub(crate) request_queues: u32,
    pub(crate) queue_len: u16,
    state: Mutex<State>,
    /// Signalled on every notification, interrupt and reset.
    changed: Condvar,
    gone: AtomicBool,
    /// Held while the device accesses a request's memory: a reset waits for that.
    pub(crate) reaching: Mutex<()>,
    /// A reset has begun since the device was started.
    pub(crate) is_resetting: AtomicBool,
}

#[derive(Default)]
struct State {
    status: u8,
    taken: u64,
    queues: Vec<Queue>,
    resets: u64,
}

#[derive(Default, Clone)]
struct Queue {
    ring: Option<Ring>,
    starts: u64,
    notifications: u64,
    interrupts: u64,
}

#[derive(Clone, Copy)]
struct Ring {
    len: u16,
    addresses: QueueAddresses,
    available: u16,
    used: u16,
}

/// A request as the device sees it.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) head: u16,
    pub(crate) readable: Vec<(u64, u32)>,
    pub(crate) writable: Vec<(u64, u32)>,
}

impl Chain {
    /// Returns everything that the driver sent.
    pub(crate) fn sent(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(address, len) in &self.readable {
            let from = bytes.len();
            bytes.resize(from + len as usize, 0);
            at(address, len as usize).read(0, &mut bytes[from..]);
        }
        bytes
    }

    pub(crate) fn room(&self) -> usize {
        self.writable.iter().map(|&(_, len)| len as usize).sum()
    }

    /// Writes as much as there is room for; returns the number of bytes.
    pub(crate) fn reply(&self, mut bytes: &[u8]) -> u32 {
        let mut written = 0;
        for &(address, len) in &self.writable {
            let (here, rest) = bytes.split_at(bytes.len().min(len as usize));
            at(address, here.len()).write(0, here);
            written += here.len() as u32;
            bytes = rest;
        }
        written
    }
}

impl Fake {
    pub(crate) fn new(features: u64, request_queues: u32, queue_len: u16) -> Self {
        let queues = vec![Queue::default(); request_queues as usize + 1];
        let state = Mutex::new(State { queues, ..State::default() });
        Self {
            features,
            request_queues,
            queue_len,
            state,
            changed: Condvar::new(),
            gone: AtomicBool::new(false),
            reaching: Mutex::new(()),
            is_resetting: AtomicBool::new(false),
        }
    }

    pub(crate) fn resets(&self) -> u64 {
        self.state.lock().unwrap().resets
    }

    pub(crate) fn status_bits(&self) -> u8 {
        self.state.lock().unwrap().status
    }

    pub(crate) fn taken_features(&self) -> u64 {
        self.state.lock().unwrap().taken
    }

    /// Disappears, as when its process is killed.
    pub(crate) fn vanish(&self) {
        let _state = self.state.lock().unwrap();
        self.gone.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Vanishes when the result is dropped, so that what serves ends if the test fails.
    pub(crate) fn vanish_at_the_end(&self) -> impl Drop + '_ {
        struct AtTheEnd<'a>(&'a Fake);
        impl Drop for AtTheEnd<'_> {
            fn drop(&mut self) {
                self.0.vanish();
            }
        }
        AtTheEnd(self)
    }

    /// Takes the next request, if there is one.
    pub(crate) fn pop(&self, queue: usize) -> Option<Chain> {
        let mut state = self.state.lock().unwrap();
        let ring = state.queues[queue].ring.as_mut()?;
        let len = usize::from(ring.len);
        let available = at(ring.addresses.available, 6 + 2 * len);
        if available.load_u16(2, Ordering::Acquire) == ring.available {
            if self.features & EVENT_IDX != 0 {
                let used = at(ring.addresses.used, 6 + 8 * len);
                used.store_u16(4 + 8 * len, ring.available, Ordering::Relaxed);
                fence(Ordering::SeqCst);
            }
            if available.load_u16(2, Ordering::Acquire) == ring.available {
                return None;
            }
        }
        let head = available.load_u16(4 + 2 * (usize::from(ring.available) % len), Ordering::Relaxed);
        ring.available = ring.available.wrapping_add(1);
        let mut chain = Chain { head, readable: Vec::new(), writable: Vec::new() };
        walk(ring.addresses.descriptors, len, head, &mut chain);
        Some(chain)
    }

    /// Blocks until there is a request. Returns `None` once the driver has reset the device, or the device is gone.
    pub(crate) fn pop_wait(&self, queue: usize) -> Option<Chain> {
        loop {
            let before = self.state.lock().unwrap().queues[queue].notifications;
            if let Some(chain) = self.pop(queue) {
                return Some(chain);
            }
            let mut state = self.state.lock().unwrap();
            while state.queues[queue].notifications == before {
                if state.queues[queue].ring.is_none() || self.gone.load(Ordering::SeqCst) {
                    return None;
                }
                state = self.changed.wait(state).unwrap();
            }
        }
    }

    /// Returns how often the driver has started a queue.
    #[allow(dead_code, reason = "for tests that bring the device up in another thread")]
    pub(crate) fn starts(&self, queue: usize) -> u64 {
        self.state.lock().unwrap().queues[queue].starts
    }

    /// Blocks until a queue runs, or the driver has started it since there were `starts`: it may have stopped again.
    #[allow(dead_code, reason = "for tests that bring the device up in another thread")]
    pub(crate) fn wait_for_start(&self, queue: usize, starts: u64) {
        let mut state = self.state.lock().unwrap();
        while state.queues[queue].ring.is_none() && state.queues[queue].starts == starts {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Marks a chain used, and interrupts if the driver wants it; returns whether it does.
    pub(crate) fn push(&self, queue: usize, id: u32, written: u32) -> bool {
        self.push_with_index(queue, id, written, 1)
    }

    /// As `push`, and advances the index by `step`, which is 1 for an honest device.
    pub(crate) fn push_with_index(&self, queue: usize, id: u32, written: u32, step: u16) -> bool {
        let mut state = self.state.lock().unwrap();
        let Some(ring) = state.queues[queue].ring.as_mut() else { return false };
        let len = usize::from(ring.len);
        let used = at(ring.addresses.used, 6 + 8 * len);
        let element = 4 + 8 * (usize::from(ring.used) % len);
        used.write(element, &id.to_le_bytes());
        used.write(element + 4, &written.to_le_bytes());
        let old = ring.used;
        ring.used = old.wrapping_add(step);
        used.store_u16(2, ring.used, Ordering::Release);
        fence(Ordering::SeqCst);
        let available = at(ring.addresses.available, 6 + 2 * len);
        let is_wanted = if self.features & EVENT_IDX != 0 {
            let event = available.load_u16(4 + 2 * len, Ordering::Relaxed);
            ring.used.wrapping_sub(event).wrapping_sub(1) < ring.used.wrapping_sub(old)
        } else {
            available.load_u16(0, Ordering::Relaxed) & 1 == 0
        };
        if is_wanted {
            state.queues[queue].interrupts += 1;
            self.changed.notify_all();
        }
        is_wanted
    }

    /// Answers every request of a queue with `answer` until the driver resets the device.
    pub(crate) fn serve(&self, queue: usize, mut answer: impl FnMut(&Chain) -> Vec<u8>) {
        while let Some(chain) = self.pop_wait(queue) {
            self.while_running(queue, || {
                let written = chain.reply(&answer(&chain));
                self.push(queue, chain.head.into(), written);
            });
        }
    }

    /// Accesses the memory of a request, unless the device was reset since the request was taken.
    pub(crate) fn while_running(&self, queue: usize, reach: impl FnOnce()) {
        let _reaching = self.reaching.lock().unwrap();
        let is_running = self.state.lock().unwrap().queues[queue].ring.is_some();
        if is_running {
            reach();
        }
    }
}

fn walk(table: u64, len: usize, head: u16, chain: &mut Chain) {
    let mut index = usize::from(head);
    for _ in 0..len {
        assert!(index < len, "the driver names descriptor {index} of {len}");
        let mut bytes = [0; 16];
        at(table, 16 * len).read(16 * index, &mut bytes);
        let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let size = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        let flags = u16::from_le_bytes(bytes[12..14].try_into().unwrap());
        if flags & 4 != 0 {
            return walk(address, size as usize / 16, 0, chain);
        }
        if flags & 2 != 0 {
            chain.writable.push((address, size));
        } else {
            assert!(chain.writable.is_empty(), "a readable descriptor follows a writable one");
            chain.readable.push((address, size));
        }
        if flags & 1 == 0 {
            return;
        }
        index = u16::from_le_bytes(bytes[14..].try_into().unwrap()).into();
    }
    panic!("the driver's chain has no end");
}

/// The driver's transport to it.
pub(crate) struct FakeTransport(pub(crate) Arc<Fake>);

impl Transport for FakeTransport {
    fn device_type(&self) -> u32 {
        26
    }

    fn status(&self) -> Result<u8, TransportError> {
        Ok(self.0.state.lock().unwrap().status)
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        self.0.state.lock().unwrap().status |= bits;
        Ok(())
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.0.is_resetting.store(true, Ordering::SeqCst);
        let _reaching = self.0.reaching.lock().unwrap();
        let mut state = self.0.state.lock().unwrap();
        state.status = 0;
        state.resets += 1;
        state.queues.iter_mut().for_each(|queue| queue.ring = None);
        self.0.changed.notify_all();
        Ok(())
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        Ok(self.0.features)
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        self.0.state.lock().unwrap().taken = features;
        Ok(())
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        let mut config = [0; 40];
        config[..5].copy_from_slice(b"share");
        config[36..].copy_from_slice(&self.0.request_queues.to_le_bytes());
        bytes.copy_from_slice(&config[offset_bytes..offset_bytes + bytes.len()]);
        Ok(())
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        Ok(if u32::from(queue) <= self.0.request_queues { self.0.queue_len } else { 0 })
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        let mut state = self.0.state.lock().unwrap();
        self.0.is_resetting.store(false, Ordering::SeqCst);
        state.queues[usize::from(queue)].ring = Some(Ring { len, addresses, available: 0, used: 0 });
        state.queues[usize::from(queue)].starts += 1;
        self.0.changed.notify_all();
        Ok(())
    }

    fn notify(&self, queue: u16) {
        self.0.state.lock().unwrap().queues[usize::from(queue)].notifications += 1;
        self.0.changed.notify_all();
    }

    fn wait(&self, queue: u16, _: u64, _: Option<u64>) -> Result<(), TransportError> {
        let mut state = self.0.state.lock().unwrap();
        loop {
            if self.0.gone.load(Ordering::SeqCst) {
                return Err(TransportError::Gone);
            }
            let Some(queue) = state.queues.get_mut(usize::from(queue)).filter(|queue| queue.ring.is_some()) else {
                return Ok(());
            };
            if queue.interrupts > 0 {
                queue.interrupts = 0;
                return Ok(());
            }
            // The deadline is the driver's safety net; no test here may depend on it.
            state = self.0.changed.wait_timeout(state, Duration::from_secs(600)).unwrap().0;
        }
    }

    fn shm_region(&self, _: u8) -> Result<Option<ShmRegion>, TransportError> {
        Ok(None)
    }
}
