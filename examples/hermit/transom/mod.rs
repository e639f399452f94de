//! A share of the host, mounted at [`MOUNT_POINT`] of Hermit's file system by the library `transom-guest`.
//!
//! `platform` and `memory` are what the library needs of the kernel, `device` finds the device, `vfs` is the share for
//! Hermit's descriptors, and `mapping` shows files at addresses, which `pages` enters into the page tables.

mod device;
mod mapping;
mod memory;
mod pages;
mod platform;
mod vfs;

use alloc::boxed::Box;
use alloc::sync::Arc;

use hermit_sync::OnceCell;
use transom_guest::cache::CacheOptions;
use transom_guest::channel::Channel;
use transom_guest::dax::{Dax, DaxOptions, WINDOW_ID};
use transom_guest::device::{Settings, VirtioFs};
use transom_guest::dma::{Direct, DmaChoice};
use transom_guest::fs::Fs;
use transom_guest::session::{Session, SessionConfig};
use transom_guest::volume::Volume;
use transom_guest::wire::ops::init::InitFlags;

pub(crate) use self::mapping::serve_fault;
pub use self::mapping::{Mapping, map};
use self::platform::Hermit;
use self::vfs::Share;
use crate::fs::Filesystem;

/// Where the share is in Hermit's file system.
const MOUNT_POINT: &str = "/share";

/// How much memory the caches of the share may take, in bytes.
const CACHE_LEN: usize = 16 << 20;

type Failure = Box<dyn core::error::Error>;

static SHARE: OnceCell<Fs<Hermit>> = OnceCell::new();

/// Mounts the share, if the machine has one. Called once Hermit's own file system is there.
pub(crate) fn init(root: &Filesystem) {
    match begin(root) {
        Ok(()) => info!("A share is mounted at {MOUNT_POINT}"),
        Err(error) => warn!("No share is mounted: {error}"),
    }
}

fn begin(root: &Filesystem) -> Result<(), Failure> {
    let transport = device::find()?;
    let platform = Arc::new(Hermit);
    let dma = DmaChoice { direct: Some(Arc::new(Direct::new(memory::Paged))), ..DmaChoice::default() };
    // Nothing wakes a task that waits for a reply: one polls, and lets the others run.
    let settings = Settings { poll_max_ns: u32::MAX, pollers_max: 1, ..Settings::default() };
    let device = VirtioFs::new(transport, Arc::clone(&platform), &dma, settings)?;
    let channel: Arc<dyn Channel> = Arc::new(device);
    let window = channel.shm_region(WINDOW_ID).map(memory::window).transpose()?;
    let config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT);
    let session = Session::begin(channel, platform, config)?;
    let caches = CacheOptions::for_memory(CACHE_LEN);
    let volume = match window {
        Some(window) => {
            info!("The share has a window");
            let dax = DaxOptions { dax: Dax::Always, ..DaxOptions::default() };
            Volume::with_window(session, caches, Arc::new(window), dax)
        }
        None => Volume::new(session, caches),
    };
    let fs = Fs::new(Arc::new(volume));
    root.mount(MOUNT_POINT, Box::new(Share(fs.clone()))).map_err(|error| format!("{MOUNT_POINT}: {error:?}"))?;
    SHARE.set(fs).map_err(|_| "a share is mounted already")?;
    Ok(())
}
