//! The PCI capabilities that locate a virtio function's structures.
//!
//! The list is untrusted: it is followed only within the configuration space, and for at most as many steps as fit
//! there. Source: virtio 1.3 §4.1.4.

use alloc::vec::Vec;

use super::config_space::{Bar, BarRange, ConfigSpace, read_u8};
use crate::transport::{ShmRegion, TransportError};

const STATUS_AT: u8 = 0x06;
/// The function has a list of capabilities.
const STATUS_HAS_LIST: u8 = 1 << 4;
const LIST_AT: u8 = 0x34;
/// Capabilities come after the header that all functions have.
const FIRST_AT: u8 = 0x40;
/// Each takes at least four bytes after the header, so a longer list is a loop.
const CAPABILITIES_MAX: usize = (256 - FIRST_AT as usize) / 4;

const VENDOR_SPECIFIC: u8 = 0x09;

/// Kinds of virtio structures (§4.1.4).
mod kind {
    pub(super) const COMMON: u8 = 1;
    pub(super) const NOTIFY: u8 = 2;
    pub(super) const ISR: u8 = 3;
    pub(super) const DEVICE: u8 = 4;
    pub(super) const SHARED_MEMORY: u8 = 8;
}

/// Length of `struct virtio_pci_cap`, with which the longer ones begin.
const LEN: u8 = 16;
const LEN_NOTIFY: u8 = 20;
const LEN_64: u8 = 24;

/// Where a device's structures are: for each kind the first usable one, which is the one that the device prefers.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    pub(super) common: Option<BarRange>,
    pub(super) notify: Option<Notify>,
    pub(super) isr: Option<BarRange>,
    pub(super) device: Option<BarRange>,
    shared: Vec<SharedMemory>,
}

/// The notification structure (§4.1.4.4).
#[derive(Debug, Clone, Copy)]
pub(super) struct Notify {
    pub(super) range: BarRange,
    /// Unit of a queue's notification offset, in bytes.
    pub(super) multiplier: u32,
}

/// A shared memory region, as the device describes it (§4.1.4.7).
#[derive(Debug, Clone, Copy)]
struct SharedMemory {
    id: u8,
    bar: Bar,
    offset_bytes: u64,
    len_bytes: u64,
}

impl Capabilities {
    /// Follows the list of capabilities.
    ///
    /// Skips structures of unknown kinds, and those in BARs that do not exist or are not memory (§4.1.4.1). Errors:
    /// there is no list; it loops or leaves the configuration space; a capability is too short for its structure, or
    /// the structure exceeds its BAR.
    pub(super) fn read(config: &dyn ConfigSpace, bars: &[Option<Bar>; 6]) -> Result<Self, TransportError> {
        let mut found = Self::default();
        follow(config, |at, id| if id == VENDOR_SPECIFIC { found.add(config, at, bars) } else { Ok(()) })?;
        Ok(found)
    }

    /// Returns the shared memory region with this id.
    ///
    /// Errors: two regions have the id; the region exceeds its BAR.
    pub(super) fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        let mut regions = self.shared.iter().filter(|region| region.id == id);
        let Some(region) = regions.next() else { return Ok(None) };
        if regions.next().is_some() {
            return Err(TransportError::Broken("two shared memory regions have one id"));
        }
        let SharedMemory { bar, offset_bytes, len_bytes, .. } = *region;
        if len_bytes == 0 {
            return Ok(None);
        }
        if offset_bytes.checked_add(len_bytes).is_none_or(|end| end > bar.len_bytes) {
            return Err(TransportError::RegionExceedsBar { id, offset_bytes, len_bytes, bar_len_bytes: bar.len_bytes });
        }
        Ok(Some(ShmRegion { address: bar.address + offset_bytes, len_bytes }))
    }

    /// Records the structure that the capability at `at` describes, if it is of use.
    fn add(&mut self, config: &dyn ConfigSpace, at: u8, bars: &[Option<Bar>; 6]) -> Result<(), TransportError> {
        let [_, _, len, kind] = config.read_u32(at).to_le_bytes();
        let len_min = match kind {
            kind::COMMON | kind::ISR | kind::DEVICE => LEN,
            kind::NOTIFY => LEN_NOTIFY,
            // A capability of another length is of some later kind, or of an earlier draft.
            kind::SHARED_MEMORY if len == LEN_64 => LEN_64,
            _ => return Ok(()),
        };
        if len < len_min {
            return Err(TransportError::Broken("a PCI capability too short for its structure"));
        }
        if usize::from(at) + usize::from(len_min) > 256 {
            return Err(TransportError::Broken("a PCI capability beyond the configuration space"));
        }
        let [bar_index, id, ..] = config.read_u32(at + 4).to_le_bytes();
        let Some(bar) = bars.get(usize::from(bar_index)).copied().flatten() else { return Ok(()) };
        let (offset, len_low) = (config.read_u32(at + 8), config.read_u32(at + 12));

        if kind == kind::SHARED_MEMORY {
            let wide = |low: u32, high_at| u64::from(low) | u64::from(config.read_u32(high_at)) << 32;
            let (offset_bytes, len_bytes) = (wide(offset, at + 16), wide(len_low, at + 20));
            self.shared.push(SharedMemory { id, bar, offset_bytes, len_bytes });
            return Ok(());
        }
        let range = range(bar_index, bar, offset, len_low)?;
        match kind {
            kind::COMMON => _ = self.common.get_or_insert(range),
            kind::ISR => _ = self.isr.get_or_insert(range),
            kind::DEVICE => _ = self.device.get_or_insert(range),
            _ => _ = self.notify.get_or_insert_with(|| Notify { range, multiplier: config.read_u32(at + 16) }),
        }
        Ok(())
    }
}

/// Returns the offset of the first capability with this id, if there is one. Errors: as for [`Capabilities::read`].
pub(super) fn find(config: &dyn ConfigSpace, wanted: u8) -> Result<Option<u8>, TransportError> {
    let mut found = None;
    follow(config, |at, id| {
        if id == wanted {
            found.get_or_insert(at);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `see` with the offset and the id of each capability.
fn follow(
    config: &dyn ConfigSpace,
    mut see: impl FnMut(u8, u8) -> Result<(), TransportError>,
) -> Result<(), TransportError> {
    if read_u8(config, STATUS_AT) & STATUS_HAS_LIST == 0 {
        return Err(TransportError::Lacks("PCI capabilities: it is no modern virtio device"));
    }
    let mut next = read_u8(config, LIST_AT) & !3;
    for _ in 0..CAPABILITIES_MAX {
        if next == 0 {
            return Ok(());
        }
        if next < FIRST_AT {
            return Err(TransportError::Broken("a PCI capability within the header"));
        }
        let head = config.read_u32(next).to_le_bytes();
        see(next, head[0])?;
        next = head[1] & !3;
    }
    Err(TransportError::Broken("its list of PCI capabilities does not end"))
}

/// Returns the range of a structure, if it lies within its BAR.
fn range(index: u8, bar: Bar, offset_bytes: u32, len_bytes: u32) -> Result<BarRange, TransportError> {
    let (offset_bytes, len_bytes) = (u64::from(offset_bytes), u64::from(len_bytes));
    if len_bytes == 0 || offset_bytes + len_bytes > bar.len_bytes {
        return Err(TransportError::Broken("a structure does not lie within its BAR"));
    }
    if offset_bytes % 4 != 0 {
        return Err(TransportError::Broken("a structure is not aligned to 4 bytes"));
    }
    Ok(BarRange { bar: index, address: bar.address + offset_bytes, len_bytes })
}
