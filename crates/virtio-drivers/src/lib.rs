//! Virtio-fs for kernels that use the crate [`virtio_drivers`].
//!
//! Such a kernel has a [`Hal`](virtio_drivers::Hal) and a way to reach the configuration of PCI functions.
//! [`HalMemory`] makes the first the DMA operations of [`transom_guest`], and [`Function`] makes a transport of the
//! second. The device is then brought up by [`VirtioFs::new`](transom_guest::device::VirtioFs::new), as on any other
//! system.
//!
//! `virtio_drivers` 0.13 does not know file systems: its `PciTransport` and `MmioTransport` refuse devices of type 26.
//! So the registers are driven by `transom-guest`'s own transports: [`Function::open`] for PCI, [`open_mmio`] for
//! virtio-mmio. A kernel with a transport of its own, which implements virtio-drivers'
//! [`Transport`](virtio_drivers::transport::Transport), passes it to [`Driven::new`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use transom_guest::{
//!     Platform,
//!     cache::CacheOptions,
//!     device::{Settings, VirtioFs},
//!     dma::DmaChoice,
//!     fs::Fs,
//!     session::{Session, SessionConfig},
//!     transport::Interrupts,
//! };
//! use transom_virtio_drivers::{Function, HalMemory, find};
//! use virtio_drivers::{Hal, transport::pci::bus::{ConfigurationAccess, PciRoot}};
//!
//! fn mount<H: Hal + 'static, P: Platform>(
//!     root: &PciRoot<impl ConfigurationAccess>,
//!     access: impl ConfigurationAccess,
//!     platform: Arc<P>,
//! ) -> Result<Fs<P>, Box<dyn std::error::Error>> {
//!     let place = find(root, 0).ok_or("no file system on PCI bus 0")?;
//!     let transport = Function::new(access, place).open::<H, P::RawMutex>(Interrupts::Polling)?;
//!     let dma = DmaChoice::always(Arc::new(HalMemory::<H>::new()));
//!     let device = VirtioFs::new(transport, Arc::clone(&platform), &dma, Settings::default())?;
//!     let session = Session::begin(Arc::new(device), platform, SessionConfig::default())?;
//!     Ok(Fs::mount(session, CacheOptions::default()))
//! }
//! ```

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod memory;
mod pci;
mod registers;
mod transport;

pub use memory::HalMemory;
pub use pci::{Function, find, is_file_system};
pub use registers::open_mmio;
pub use transport::Driven;
