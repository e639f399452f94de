//! A virtio device on the PCI bus, by virtio 1 ("modern").
//!
//! [`Pci`] finds the device's structures by the capabilities ([`capabilities`]) in the configuration space
//! ([`ConfigSpace`]), has the kernel map them, and drives the device through [`Registers`]. Fields that the common
//! configuration multiplexes (by queue, or by half) are accessed under `common`, a lock for short sections;
//! notifications and waits take no lock. Source: virtio 1.3 §4.1.
//!
//! A kernel without a bus driver finds functions by [`functions`], assigns their addresses with [`assign_bars`],
//! and sets up messages by [`Msix`].

mod assign;
mod bus;
mod capabilities;
mod common;
mod config_space;
mod msix;

use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use lock_api::{Mutex, RawMutex};

use self::{
    capabilities::{Capabilities, Notify},
    common::Common,
};
use super::{
    QueueAddresses, Registers, ShmRegion, Transport, TransportError, checks,
    interrupts::{Interrupts, SharedLine, Watch, check_alive},
    registers::read_fields,
};

pub use assign::{FreeAddresses, assign_bars};
pub use bus::{ConfigAccess, Ecam, Function, Place, functions};
pub use config_space::{Bar, BarRange, ConfigSpace, read_bars};
pub use msix::{Message, Msix};

/// Modern devices have the id 0x1040 plus their type (§4.1.2); virtio uses Red Hat's vendor id.
const VENDOR: u32 = 0x1af4;
const DEVICE_MIN: u32 = 0x1040;
const DEVICE_MAX: u32 = 0x107f;

/// Maximum number of queues that this library can use: a file system has at most one per processor, and two more.
const QUEUES_MAX: u16 = 1024;

/// The queue is not running, so its notifications go nowhere.
const STOPPED: u32 = u32::MAX;

/// A device on the PCI bus.
pub struct Pci<R, L: RawMutex> {
    device_type: u32,
    common: Mutex<L, Common<R>>,
    notify: R,
    notify_multiplier: u32,
    isr: R,
    device: Option<R>,
    capabilities: Capabilities,
    interrupts: Interrupts,
    line: SharedLine,
    watch: Watch,
    queues: Box<[Queue]>,
}

/// How to notify, and hear from, a running queue.
struct Queue {
    /// Where its notifications are written, as an offset in bytes within the notification structure, or [`STOPPED`].
    notify_at: AtomicU32,
    /// Its message vector.
    vector: AtomicU16,
}

impl<R: Registers, L: RawMutex> Pci<R, L> {
    /// Creates a driver for the device behind `config`, and enables its responses to memory accesses and its access to
    /// memory. Does not reset the device.
    ///
    /// `map` maps the registers at a range of physical addresses, which lies within a BAR of the device. The kernel has
    /// assigned the BARs their addresses and, if it passes [`Interrupts::Messages`], has set up and enabled MSI-X.
    /// Errors: it is not a modern virtio device; a structure is missing or exceeds its BAR; `map` fails.
    pub fn new(
        config: &dyn ConfigSpace,
        mut map: impl FnMut(BarRange) -> Result<R, TransportError>,
        interrupts: Interrupts,
    ) -> Result<Self, TransportError> {
        let device_type = device_type(config)?;
        let bars = read_bars(config)?;
        let capabilities = Capabilities::read(config, &bars)?;
        let missing = TransportError::Lacks;
        let common = capabilities.common.ok_or(missing("a common configuration that memory accesses reach"))?;
        let Notify { range: notify, multiplier } =
            capabilities.notify.ok_or(missing("notifications that memory accesses reach"))?;
        let isr = capabilities.isr.ok_or(missing("an interrupt status that memory accesses reach"))?;
        config_space::enable(config, matches!(interrupts, Interrupts::Line(_)));

        let common = Common::new(map(common)?)?;
        let queues = (0..QUEUES_MAX.min(common.queues())).map(|_| Queue::stopped()).collect::<Vec<_>>();
        Ok(Self {
            device_type,
            common: Mutex::new(common),
            notify: map(notify)?,
            notify_multiplier: multiplier,
            isr: map(isr)?,
            device: capabilities.device.map(&mut map).transpose()?,
            capabilities,
            interrupts,
            line: SharedLine::default(),
            watch: Watch::default(),
            queues: queues.into_boxed_slice(),
        })
    }

    /// Reads the interrupt status, which silences the device's line, and returns the causes; for a kernel whose handler
    /// must silence the line before it returns. [`Transport::wait`] also does it.
    pub fn acknowledge(&self) -> u8 {
        self.isr.read_u8(0)
    }

    fn queue(&self, queue: u16) -> Result<&Queue, TransportError> {
        self.queues.get(usize::from(queue)).ok_or(TransportError::Lacks("a queue of this number"))
    }

    /// Returns where a queue's notifications are written, if that lies within the notification structure (§4.1.4.4).
    fn notify_at(&self, notify_off: u16) -> Result<u32, TransportError> {
        let at = u64::from(notify_off) * u64::from(self.notify_multiplier);
        match u32::try_from(at) {
            Ok(at) if at % 2 == 0 && u64::from(at) + 2 <= self.notify.len_bytes() as u64 => Ok(at),
            _ => Err(TransportError::Broken("a queue's notification lies outside its structure")),
        }
    }

    /// Returns the vectors to try for a queue, the best one first: one of its own after vector 0, then the shared one.
    fn vectors(&self, queue: u16) -> Option<[u16; 2]> {
        match self.interrupts {
            Interrupts::Messages(0 | 1, _) => Some([0, 0]),
            Interrupts::Messages(count, _) => Some([1 + queue % (count - 1), 0]),
            Interrupts::Polling | Interrupts::Line(_) => None,
        }
    }
}

impl Queue {
    fn stopped() -> Self {
        Self { notify_at: AtomicU32::new(STOPPED), vector: AtomicU16::new(0) }
    }
}

/// Returns the device type, if the function is a modern virtio device.
fn device_type(config: &dyn ConfigSpace) -> Result<u32, TransportError> {
    let identity = config.read_u32(0);
    let (vendor, device) = (identity & 0xffff, identity >> 16);
    match (vendor, device) {
        (0xffff, _) => Err(TransportError::Gone),
        (VENDOR, DEVICE_MIN..=DEVICE_MAX) => Ok(device - DEVICE_MIN),
        (VENDOR, 0x1000..DEVICE_MIN) => Err(TransportError::Lacks("a modern interface: it is a transitional device")),
        _ => Err(TransportError::Lacks("the identity of a virtio device")),
    }
}

impl<R: Registers, L: RawMutex + Send + Sync> Transport for Pci<R, L> {
    fn device_type(&self) -> u32 {
        self.device_type
    }

    fn status(&self) -> Result<u8, TransportError> {
        self.common.lock().status()
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        self.common.lock().add_status(bits)
    }

    fn reset(&self) -> Result<(), TransportError> {
        let common = self.common.lock();
        for queue in &self.queues {
            queue.notify_at.store(STOPPED, Ordering::Relaxed);
        }
        common.reset()
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        self.common.lock().device_features()
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        self.common.lock().set_driver_features(features)
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        let device = self.device.as_ref().ok_or(TransportError::Lacks("a device-specific configuration space"))?;
        let start = checks::config_start(0, offset_bytes, bytes.len(), device.len_bytes())?;
        let common = self.common.lock();
        checks::read_settled(|| common.generation(), || read_fields(device, start, bytes))?;
        common.status().map(|_| ())
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        if self.queue(queue).is_err() {
            return Ok(0);
        }
        self.common.lock().queue_len_max(queue)
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        let place = self.queue(queue)?;
        let mut common = self.common.lock();
        checks::check_queue_len(len, common.queue_len_max(queue)?)?;
        let mut selected = common.select(queue)?;
        let notify_at = self.notify_at(selected.notify_off())?;
        if let Some(vectors) = self.vectors(queue) {
            place.vector.store(selected.set_vector(vectors)?, Ordering::Relaxed);
        }
        selected.start(len, addresses)?;
        place.notify_at.store(notify_at, Ordering::Release);
        Ok(())
    }

    fn notify(&self, queue: u16) {
        let Ok(place) = self.queue(queue) else { return };
        match place.notify_at.load(Ordering::Acquire) {
            STOPPED => {}
            at => self.notify.write_u16(at as usize, queue),
        }
    }

    fn notifications(&self, queue: u16) -> u64 {
        match &self.interrupts {
            Interrupts::Polling => 0,
            Interrupts::Line(source) => source.count(0),
            Interrupts::Messages(_, source) => {
                self.queue(queue).map_or(0, |queue| source.count(queue.vector.load(Ordering::Relaxed)))
            }
        }
    }

    fn wait(&self, queue: u16, seen: u64, deadline_ns: Option<u64>) -> Result<(), TransportError> {
        let must_look = match &self.interrupts {
            Interrupts::Polling => self.watch.is_due(),
            Interrupts::Line(source) => self.line.wait(&**source, seen, deadline_ns, || self.acknowledge().into()),
            Interrupts::Messages(_, source) => {
                let vector = self.queue(queue)?.vector.load(Ordering::Relaxed);
                !source.wait(vector, seen, deadline_ns)
            }
        };
        if must_look { check_alive(self.status()?) } else { Ok(()) }
    }

    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        self.capabilities.shm_region(id)
    }
}
