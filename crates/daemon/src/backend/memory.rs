//! Which of the memory that a front end announces the device uses.

use std::io;

use transom_host::window::{FileIdentity, Window};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap};

use super::{GuestRam, dirty_log::RegionLog};

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
