//! The kernel's main function: finds file systems, mounts them and runs the scenario.

mod boot;
mod devices;
mod memory;
mod platform;
mod ports;
mod scenario;
mod serial;

use alloc::sync::Arc;
use core::panic::PanicInfo;

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

use platform::Bare;
use serial::say;

/// Exit codes of the machine; QEMU's exit status is twice the code plus one.
const ALL_WELL: u32 = 16;
const FAILED: u32 = 17;

/// Called by [`boot`] in long mode, with all memory below 512 GiB identity-mapped.
pub(crate) fn main() -> ! {
    memory::begin();
    let platform = Arc::new(Bare::begin());
    let code = match run(&platform) {
        Ok(()) => {
            say!("all is well");
            ALL_WELL
        }
        Err(error) => {
            say!("FAILED: {error}");
            FAILED
        }
    };
    ports::leave(code)
}

type Failure = alloc::boxed::Box<dyn core::error::Error>;

fn run(platform: &Arc<Bare>) -> Result<(), Failure> {
    let mut devices = 0;
    if let Some(device) = devices::on_pci()? {
        say!("a file system on the PCI bus");
        use_share(device, platform)?;
        devices += 1;
    }
    for device in devices::in_memory()? {
        say!("a file system behind virtio-mmio");
        use_share(device, platform)?;
        devices += 1;
    }
    if devices == 0 { Err("no virtio file system was found".into()) } else { Ok(()) }
}

fn use_share(transport: impl Transport + 'static, platform: &Arc<Bare>) -> Result<(), Failure> {
    let dma = DmaChoice { direct: Some(Arc::new(Direct::new(memory::Identity))), ..DmaChoice::default() };
    // A single CPU, which has nothing else to do than poll.
    let settings = Settings { poll_max_ns: u32::MAX, pollers_max: 1, ..Settings::default() };
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
    let fs = Fs::new(Arc::new(volume));
    scenario::run(&fs)?;
    if let Some(window) = fs.volume().window() {
        say!("{} ranges were mapped", window.counts().mapped);
    }
    fs.unmount()?;
    Ok(())
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("FAILED: {info}");
    ports::leave(FAILED)
}
