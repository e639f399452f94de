//! A file system, from its transport to its root directory: what a kernel does to mount one.

use alloc::sync::{Arc, Weak};
use core::array;

use transom_guest::{
    cache::CacheOptions,
    channel::Channel,
    dax::{DaxOptions, WINDOW_ID},
    device::{QueueCounts, Settings, VirtioFs},
    dma::DmaCounts,
    fs::Fs,
    session::{Session, SessionConfig},
    transport::Transport,
    volume::Volume,
};
use transom_wire::{config::QUEUE_FIRST_REQUEST, ops::init::InitFlags, window::VERSIONS_ID};

use super::{
    Failure, arch,
    console::say,
    dma, interrupts, memory,
    platform::{Bare, LOST_NS},
    processors, scenario,
    versions::{self, Table},
    window,
};

/// How replies are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// By looking at the rings all the time: the processor has nothing else to do.
    Polling,
    /// Only by what the transport waits for.
    Sleeping,
}

/// What the device counts, whichever transport it is on.
trait Counts {
    /// Returns the counters of a queue.
    fn queue_counts(&self, queue: u16) -> Option<QueueCounts>;

    /// Returns the counters of the DMA operations.
    fn dma_counts(&self) -> DmaCounts;
}

impl<T: Transport + 'static> Counts for VirtioFs<Bare, T> {
    fn queue_counts(&self, queue: u16) -> Option<QueueCounts> {
        self.queue_counts(queue)
    }

    fn dma_counts(&self) -> DmaCounts {
        self.dma_counts()
    }
}

/// A mounted file system.
pub(super) struct Share {
    fs: Fs<Bare>,
    features: u64,
    versions: Option<Table>,
    /// Not kept alive by this, so that unmounting resets it.
    device: Weak<dyn Counts>,
}

impl Share {
    /// Brings the device up, begins a session, and maps the window, if there is one.
    pub(super) fn mount(
        transport: impl Transport + 'static,
        platform: &Arc<Bare>,
        wait: Wait,
    ) -> Result<Self, Failure> {
        let dma = dma::choice(platform, transport.device_features()?)?;
        let poll_max_ns = if wait == Wait::Polling { u32::MAX } else { 0 };
        let settings = Settings { poll_max_ns, pollers_max: 1, notification_buffers: 8, ..Settings::default() };
        let before = memory::used();
        let device = VirtioFs::new(transport, Arc::clone(platform), &dma, settings)?;
        say!("memory: {} KiB for the device, of {} KiB", (memory::used() - before) >> 10, memory::heap_len() >> 10);
        say!("tag: {}", alloc::string::String::from_utf8_lossy(device.tag()));
        let device = Arc::new(device);
        let channel: Arc<dyn Channel> = Arc::clone(&device) as Arc<dyn Channel>;
        let window = match channel.shm_region(WINDOW_ID) {
            Some(region) => {
                say!("window: {} MiB at {:#x}", region.len_bytes >> 20, region.address);
                Some(Arc::new(window::map(region)?))
            }
            None => None,
        };
        let versions = channel.shm_region(VERSIONS_ID).map(versions::table).transpose()?;
        let config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT | InitFlags::HAS_INODE_DAX);
        let session = Session::begin(channel, Arc::clone(platform), config)?;
        say!("FUSE minor {}", session.negotiated().minor);
        let options = CacheOptions::for_memory(memory::heap_len());
        let volume = match window {
            Some(window) => Volume::with_window(session, options, window, DaxOptions::default()),
            None => Volume::new(session, options),
        };
        let (features, device) = (device.features(), Arc::downgrade(&device) as Weak<dyn Counts>);
        Ok(Self { fs: Fs::new(Arc::new(volume)), features, versions, device })
    }

    /// Shows that the version table follows a change, if the device has one.
    pub(super) fn use_versions(&self) -> Result<(), Failure> {
        if let Some(table) = &self.versions {
            say!("ok: version table of {} slots: {}", table.slots(), versions::change(&self.fs, table)?);
        }
        Ok(())
    }

    /// Ends the session and resets the device.
    pub(super) fn unmount(self) -> Result<(), Failure> {
        if let Some(window) = self.fs.volume().window() {
            say!("{} ranges were mapped", window.counts().mapped);
        }
        Ok(self.fs.unmount()?)
    }

    /// Returns the file system.
    pub(super) fn fs(&self) -> &Fs<Bare> {
        &self.fs
    }

    /// Returns whether files can be mapped.
    pub(super) fn has_window(&self) -> bool {
        self.fs.volume().window().is_some()
    }

    /// Returns the counters of a request queue.
    pub(super) fn queue_counts(&self, queue: u16) -> QueueCounts {
        let queue = QUEUE_FIRST_REQUEST as u16 + queue;
        self.device.upgrade().and_then(|device| device.queue_counts(queue)).unwrap_or_default()
    }

    /// Returns the features that the driver has negotiated.
    pub(super) fn features(&self) -> u64 {
        self.features
    }

    /// Returns the counters of the device's DMA operations.
    pub(super) fn dma_counts(&self) -> DmaCounts {
        self.device.upgrade().map(|device| device.dma_counts()).unwrap_or_default()
    }

    /// Sends a few hundred requests without a trace on the host, and goes on until one was waited for: a reply that
    /// comes before the library looks needs no interrupt. `vector` is that of the request queue.
    ///
    /// Without polling, each reply is noticed by an interrupt, or the kernel stops.
    pub(super) fn use_until_woken(&self, name: &str, vector: usize) -> Result<(), Failure> {
        processors::reset();
        let (before, begun_ns) = (interrupts::counts(), arch::now_ns());
        let counts = || {
            let now = interrupts::counts();
            array::from_fn::<_, { interrupts::VECTORS }, _>(|vector| now[vector] - before[vector])
        };
        scenario::look_around(&self.fs)?;
        while counts()[vector] == 0 || processors::tally().sleeps[0] == 0 {
            if arch::now_ns() - begun_ns > LOST_NS {
                return Err("no interrupt has come".into());
            }
            self.fs.open_read("input")?.close()?;
        }
        let processors::Tally { sleeps, alarms, .. } = processors::tally();
        say!("ok: woken by {name}: {:?} interrupts, {} sleeps, {} alarms", counts(), sleeps[0], alarms[0]);
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
impl Share {
    /// Returns whether the device has a region of shared memory.
    pub(super) fn has_regions(&self) -> bool {
        self.has_window() || self.versions.is_some()
    }
}
