//! Finds virtio-mmio devices in a flattened device tree, which firmware or a hypervisor leaves in memory.
//!
//! [`Fdt`] checks the header of the blob, [`nodes`] follows its structure, [`Fdt::virtio_mmio`] returns where the
//! registers are, [`Fdt::pci_host`] where the configuration of PCI functions is, and [`Fdt::registers_of`] where any
//! other device is. The blob is untrusted: nothing outside it is read, nothing is allocated, and the time is bounded by
//! the blob's length. Source: Devicetree Specification 0.4, sections 2.3 and 5.

mod devices;
mod nodes;
mod pci_host;

use thiserror::Error;

use nodes::{Walk, locate};

pub use devices::Devices;
pub use pci_host::PciHost;

/// The first word of a blob.
const MAGIC: u32 = 0xd00d_feed;
/// The version of the format that this module reads, and that newer ones are compatible with.
const VERSION: u32 = 17;
const HEADER_LEN: usize = 40;

/// Maximum length of a blob in bytes. QEMU's have 1 MiB at most, Linux accepts 2 MiB.
pub const LEN_MAX: usize = 2 << 20;

/// A device tree.
#[derive(Debug, Clone, Copy)]
pub struct Fdt<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
}

/// The registers of a virtio-mmio device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MmioDevice {
    /// The physical address.
    pub address: u64,
    /// Length in bytes, above 0; `address + len_bytes` does not overflow.
    pub len_bytes: u64,
    /// The first word of its `interrupts` that names a line to the interrupt controller, as the tree has it: on
    /// aarch64, with a GIC, the number of a shared interrupt; on riscv64, with a PLIC, the number of the source.
    pub interrupt: Option<u32>,
}

/// Why a device tree cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FdtError {
    /// There is no device tree.
    #[error("no device tree: it begins with {0:#x} instead of 0xd00dfeed")]
    NoTree(u32),
    /// The blob is of a version that cannot be read.
    #[error("the device tree has version {0}, which is not compatible with 17")]
    Version(u32),
    /// The blob breaks the format.
    #[error("broken device tree: {0}")]
    Broken(&'static str),
}

impl<'a> Fdt<'a> {
    /// Returns the length in bytes of the blob that begins with `header`, for whoever has only its address: at most
    /// [`LEN_MAX`].
    ///
    /// # Errors
    /// It is not the header of a device tree, or the blob is longer than [`LEN_MAX`].
    pub fn len_bytes(header: &[u8; 8]) -> Result<usize, FdtError> {
        match word(header, 0) {
            Some(MAGIC) => {}
            magic => return Err(FdtError::NoTree(magic.unwrap_or(0))),
        }
        match word(header, 4).map(|len| len as usize) {
            Some(len @ HEADER_LEN..=LEN_MAX) => Ok(len),
            _ => Err(FdtError::Broken("its length is impossible")),
        }
    }

    /// Checks the header of `blob`, which may be longer than the tree.
    pub fn new(blob: &'a [u8]) -> Result<Self, FdtError> {
        let header = blob.first_chunk().ok_or(FdtError::Broken("it is shorter than its header"))?;
        let blob = blob.get(..Self::len_bytes(header)?).ok_or(FdtError::Broken("it is shorter than its length"))?;
        let field = |index: usize| word(blob, index * 4).unwrap_or(0);
        let (version, compatible) = (field(5), field(6));
        if version < VERSION || compatible > VERSION {
            return Err(FdtError::Version(version));
        }
        let part = |start: u32, len: u32| blob.get(start as usize..)?.get(..len as usize);
        Ok(Self {
            structure: part(field(2), field(9)).ok_or(FdtError::Broken("its structure lies outside"))?,
            strings: part(field(3), field(8)).ok_or(FdtError::Broken("its strings lie outside"))?,
        })
    }

    /// Returns the virtio-mmio devices, in the order of the tree. Nodes that are disabled, or on a bus whose addresses
    /// the processor cannot reach, are left out. Most slots of a virtual machine have no device attached, which
    /// [`Mmio::new`](super::mmio::Mmio::new) reports as [`TransportError::Absent`](super::TransportError::Absent).
    pub fn virtio_mmio(&self) -> Devices<'a> {
        Devices::new(*self)
    }

    /// Returns the first PCI host bridge with configuration at addresses (ECAM) that the processor can reach.
    ///
    /// # Errors
    /// The tree is broken.
    pub fn pci_host(&self) -> Result<Option<PciHost<'a>>, FdtError> {
        PciHost::find(*self)
    }

    /// Returns where the first device that is compatible with `name` has its first registers: the address, and the
    /// length in bytes, which is above 0 and does not overflow. For what a kernel needs beside virtio devices, such as
    /// the receiver of messages. Devices that are disabled or out of reach are left out.
    ///
    /// # Errors
    /// The tree is broken.
    pub fn registers_of(&self, name: &str) -> Result<Option<(u64, u64)>, FdtError> {
        let mut walk = Walk::new(*self);
        while let Some((node, above)) = walk.next()? {
            let found = locate(node, above).filter(|_| node.is_compatible(name.as_bytes()));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Returns the big-endian word at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
