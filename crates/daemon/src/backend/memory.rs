//! Which of the memory that a front end announces the device uses.

use std::{
    io, ptr,
    sync::{
        PoisonError,
        atomic::{
            AtomicPtr,
            Ordering::{Acquire, Release},
        },
    },
};

use transom_host::window::{FileIdentity, Window};
use vm_memory::{GuestAddressSpace, GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap};

use super::{GuestRam, Memory, dirty_log::RegionLog};

/// Tells a worker, for the price of a load, whether the memory that it uses is still the device's. [`Memory`] itself
/// counts a reference at each look.
///
/// Holds an address to compare with, which is never followed. A worker compares memory that it holds, so that no other
/// can have its address.
#[derive(Debug)]
pub(super) struct CurrentMemory(AtomicPtr<GuestRam>);

impl CurrentMemory {
    /// Creates one of `memory` as it is, which a worker may use before a front end has announced any.
    pub(super) fn of(memory: &Memory) -> Self {
        Self(AtomicPtr::new(address(memory)))
    }

    /// Replaces the device's memory by `usable`. A worker that looks meanwhile may find that neither is current, and
    /// looks again.
    pub(super) fn replace(&self, memory: &Memory, usable: GuestRam) {
        memory.lock().unwrap_or_else(PoisonError::into_inner).replace(usable);
        self.0.store(address(memory), Release);
    }

    /// Returns whether `memory`, which the caller holds, is the device's.
    pub(super) fn is(&self, memory: &GuestRam) -> bool {
        ptr::eq(self.0.load(Acquire), memory)
    }
}

fn address(memory: &Memory) -> *mut GuestRam {
    ptr::from_ref(&*memory.memory()).cast_mut()
}

/// Returns the regions that do not overlap the window.
pub(super) fn without_window(window: Option<&Window>, announced: &GuestRam) -> GuestRam {
    let Some(window) = window else { return announced.clone() };
    let is_mapped = |region: &GuestRegionMmap<RegionLog>| {
        let file = region.file_offset().and_then(|mapped| FileIdentity::of(mapped.file()).ok());
        file.is_some_and(|file| window.has_file(file))
    };
    let mapped: Vec<_> = announced.iter().filter(|region| is_mapped(region)).collect();
    mapped.iter().fold(announced.clone(), |kept, region| match kept.remove_region(region.start_addr(), region.len()) {
        Ok((rest, _)) => rest,
        Err(_) => kept,
    })
}

/// Returns an error if a region extends past the end of the regular file that it maps.
pub(super) fn check_files(memory: &GuestRam) -> io::Result<()> {
    for (region, mapped) in memory.iter().filter_map(|region| Some((region, region.file_offset()?))) {
        let metadata = mapped.file().metadata()?;
        let end = mapped.start().saturating_add(region.len());
        if metadata.is_file() && end > metadata.len() {
            let message = format!("a region ends at byte {end} of a file of {} bytes", metadata.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    }
    Ok(())
}
