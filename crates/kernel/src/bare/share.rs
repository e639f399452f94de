//! A file system, from its transport to its root directory: what a kernel does to mount one.

use alloc::sync::Arc;

use transom_guest::{
    cache::CacheOptions,
    channel::Channel,
    dax::{DaxOptions, WINDOW_ID},
    device::{Settings, VirtioFs},
    dma::{Direct, DmaChoice},
    fs::Fs,
    session::{Session, SessionConfig},
    transport::Transport,
    volume::Volume,
};
use transom_wire::ops::init::InitFlags;

use super::{Failure, console::say, memory, platform::Bare, scenario};

/// How replies are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// By looking at the rings all the time: this processor has nothing else to do.
    Polling,
    /// Only by what the transport waits for.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "needs interrupts"))]
    Sleeping,
}

/// A mounted file system.
pub(super) struct Share {
    fs: Fs<Bare>,
}

impl Share {
    /// Brings the device up, begins a session, and maps the window, if there is one.
    pub(super) fn mount(
        transport: impl Transport + 'static,
        platform: &Arc<Bare>,
        wait: Wait,
    ) -> Result<Self, Failure> {
        let dma = DmaChoice { direct: Some(Arc::new(Direct::new(memory::Identity))), ..DmaChoice::default() };
        let poll_max_ns = if wait == Wait::Polling { u32::MAX } else { 0 };
        let settings = Settings { poll_max_ns, pollers_max: 1, ..Settings::default() };
        let device = VirtioFs::new(transport, Arc::clone(platform), &dma, settings)?;
        say!("tag: {}", alloc::string::String::from_utf8_lossy(device.tag()));
        let channel: Arc<dyn Channel> = Arc::new(device);
        let window = channel.shm_region(WINDOW_ID).map(|region| {
            say!("window: {} MiB at {:#x}", region.len_bytes >> 20, region.address);
            Arc::new(memory::window(region))
        });
        let config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT | InitFlags::HAS_INODE_DAX);
        let session = Session::begin(channel, Arc::clone(platform), config)?;
        say!("FUSE minor {}", session.negotiated().minor);
        let volume = match window {
            Some(window) => Volume::with_window(session, CacheOptions::default(), window, DaxOptions::default()),
            None => Volume::new(session, CacheOptions::default()),
        };
        Ok(Self { fs: Fs::new(Arc::new(volume)) })
    }

    /// Reads, writes and changes names.
    pub(super) fn use_it(&self) -> Result<(), Failure> {
        Ok(scenario::run(&self.fs)?)
    }

    /// Ends the session and resets the device.
    pub(super) fn unmount(self) -> Result<(), Failure> {
        if let Some(window) = self.fs.volume().window() {
            say!("{} ranges were mapped", window.counts().mapped);
        }
        Ok(self.fs.unmount()?)
    }
}

#[cfg(target_arch = "x86_64")]
impl Share {
    /// Returns the file system.
    pub(super) fn fs(&self) -> &Fs<Bare> {
        &self.fs
    }

    /// Returns whether files can be mapped.
    pub(super) fn has_window(&self) -> bool {
        self.fs.volume().window().is_some()
    }

    /// Lists a directory and looks at some errors: a few hundred requests, and no trace on the host.
    pub(super) fn look_around(&self) -> Result<(), Failure> {
        Ok(scenario::look_around(&self.fs)?)
    }
}
