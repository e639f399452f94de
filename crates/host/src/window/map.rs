//! The record of what is mapped in the window.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    thread,
};

use transom_metrics::WindowUsage;
use transom_wire::NodeId;

use super::{
    Channel, FileIdentity, FrontEnd, MappedFile, RANGE_LEN,
    ranges::{Link, Mapped, Range, Shared, State},
    shmem_worker,
};
use crate::Errno;

/// The window of one share. Its methods may be called from many threads at once.
#[derive(Debug)]
pub struct Window {
    shared: Arc<Shared>,
}

/// A file and its number of mapped ranges.
#[derive(Debug, Clone)]
pub struct FileUsage {
    /// The file.
    pub file: Arc<MappedFile>,
    /// Number of mapped ranges.
    pub ranges: u64,
}

impl Window {
    /// Creates a window of `len_bytes`, a multiple of [`RANGE_LEN`] and no more than the front end supports.
    pub fn new(len_bytes: u64, front_end: FrontEnd) -> Self {
        Self { shared: Arc::new(Shared::new(len_bytes, front_end)) }
    }

    /// Returns the window's length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.shared.len_bytes
    }

    /// Returns the front end's capabilities.
    pub fn front_end(&self) -> FrontEnd {
        self.shared.front_end
    }

    /// Returns whether a front end that maps is connected.
    pub fn is_open(&self) -> bool {
        self.shared.lock().link == Link::Up
    }

    /// Connects an empty window to `channel`, through which it maps from now on. Errors: the thread cannot be started.
    pub fn connect(&self, channel: Box<dyn Channel>) -> std::io::Result<()> {
        let connection = self.shared.begin_connection(Link::Up);
        let shared = self.shared.clone();
        let started = thread::Builder::new()
            .name("window".into())
            .spawn(move || shmem_worker::run(&shared, &*channel, connection));
        if started.is_err() {
            self.shared.begin_connection(Link::None);
        }
        started.map(drop)
    }

    /// Disconnects from the front end, whose mappings have ended.
    pub fn disconnect(&self) {
        self.shared.begin_connection(Link::None);
    }

    /// Maps `file_offset` of a file to `window_offset`, for one range of SETUPMAPPING.
    ///
    /// Both offsets are multiples of [`RANGE_LEN`]. Replaces an existing mapping. `open` opens the file if it is not
    /// mapped already. Blocks on the front end.
    ///
    /// # Errors
    ///
    /// EINVAL beyond the window, EOPNOTSUPP if the front end cannot map that part of the file, EAGAIN if the device is
    /// stopping, EIO if the front end refuses, ENOTCONN without one.
    pub fn map(
        &self,
        nodeid: NodeId,
        file_offset: u64,
        window_offset: u64,
        wants_write: bool,
        open: impl FnOnce() -> Result<MappedFile, Errno>,
    ) -> Result<(), Errno> {
        let outcome = self.try_map(nodeid, file_offset, window_offset, wants_write, open);
        if outcome.is_err() {
            self.shared.lock().usage.refused += 1;
        }
        outcome
    }

    fn try_map(
        &self,
        nodeid: NodeId,
        file_offset: u64,
        window_offset: u64,
        wants_write: bool,
        open: impl FnOnce() -> Result<MappedFile, Errno>,
    ) -> Result<(), Errno> {
        let index = self.index(window_offset)?;
        let end = file_offset.checked_add(RANGE_LEN).ok_or(Errno::INVAL)?;
        let is_served = |state: &State| match &state.ranges[index] {
            Range::Mapped(Mapped { file, file_offset: offset, .. }) => {
                file.nodeid == nodeid && *offset == file_offset && (file.is_writable || !wants_write)
            }
            Range::Free | Range::Changing => false,
        };
        if is_served(&self.shared.lock()) {
            return Ok(());
        }
        let file = self.file(nodeid, wants_write, open)?;
        if !self.shared.front_end.maps_beyond_end && file.mappable_end()? < end {
            return Err(Errno::OPNOTSUPP);
        }
        let mut state = self.shared.wait_for(index)?;
        if is_served(&state) {
            return Ok(());
        }
        let outcome = state.begin(index, Some((file, file_offset)))?;
        drop(state);
        self.shared.finish(&[outcome])
    }

    /// Unmaps `len` bytes from `window_offset` for each of `ranges`, both multiples of [`RANGE_LEN`], for
    /// REMOVEMAPPING.
    ///
    /// Ignores ranges that are not mapped. Blocks on the front end. Errors: EINVAL beyond the window, EAGAIN if the
    /// device is stopping.
    pub fn unmap(&self, ranges: &[(u64, u64)]) -> Result<(), Errno> {
        let mut indices = BTreeSet::new();
        for &(window_offset, len) in ranges {
            let last = window_offset.checked_add(len).and_then(|end| end.checked_sub(RANGE_LEN)).ok_or(Errno::INVAL)?;
            if !len.is_multiple_of(RANGE_LEN) {
                return Err(Errno::INVAL);
            }
            indices.extend(self.index(window_offset)?..=self.index(last)?);
        }
        let mut outcomes = Vec::new();
        for index in indices {
            let mut state = self.shared.wait_for(index).inspect_err(|_| self.shared.take_back(&outcomes))?;
            // Without a channel the front end keeps its mappings; the guest no longer uses them.
            if matches!(state.ranges[index], Range::Mapped(_)) && state.link == Link::Up {
                outcomes.extend(state.begin(index, None));
            }
        }
        self.shared.finish(&outcomes)
    }

    /// Ends all mappings, because the driver has finished. Blocks on the front end.
    pub fn clear(&self) {
        self.clear_those(|_, _| true);
    }

    /// Empties the window for a driver that sends INIT. Blocks on the front end.
    ///
    /// If the device was stopped meanwhile, a reset has ended the previous driver. A front end that unmaps at a reset
    /// must then not be asked to unmap the same ranges again. What it mapped after the stop, for a request from before
    /// it, is still there.
    pub fn clear_for_init(&self) {
        let unmaps_at_reset = self.shared.front_end.unmaps_at_reset;
        self.clear_those(|mapped, stops| !unmaps_at_reset || mapped.stops == stops);
    }

    /// Unmaps the ranges for which `is_there` returns true, and forgets the others.
    fn clear_those(&self, is_there: impl Fn(&Mapped, u64) -> bool) {
        let (mut outcomes, mut forgotten) = (Vec::new(), Vec::new());
        let count = self.shared.lock().ranges.len();
        for index in 0..count {
            let Ok(mut state) = self.shared.wait_for(index) else { break };
            let stops = state.stops;
            match &state.ranges[index] {
                Range::Mapped(mapped) if is_there(mapped, stops) => outcomes.extend(state.begin(index, None)),
                _ => forgotten.push(std::mem::replace(&mut state.ranges[index], Range::Free)),
            }
        }
        drop(forgotten);
        if let Err(error) = self.shared.finish(&outcomes) {
            tracing::debug!(%error, "the window is not empty yet");
        }
    }

    /// Records that the front end has reset the device. Does not block.
    pub fn reset(&self) {
        let unmaps_at_reset = self.shared.front_end.unmaps_at_reset;
        let mut forgotten = Vec::new();
        let mut state = self.shared.lock();
        state.stops += 1;
        state.resets += 1;
        for index in 0..state.ranges.len() {
            if !matches!(state.ranges[index], Range::Mapped(_)) {
                continue;
            }
            if unmaps_at_reset {
                forgotten.push(std::mem::replace(&mut state.ranges[index], Range::Free));
            } else {
                // Nobody waits for the result here; the next user of the range does.
                let _ = state.begin(index, None);
            }
        }
        self.shared.has_job.notify_all();
        drop(state);
        drop(forgotten);
    }

    /// Records that the device was stopped: a reset may follow without a message to us.
    pub fn stop(&self) {
        self.shared.lock().stops += 1;
    }

    /// Ends waits for the front end if called a few times, because the device is about to be stopped.
    pub fn interrupt(&self) {
        self.shared.lock().interrupts += 1;
        self.shared.changed.notify_all();
    }

    /// Returns whether some range of the file with that identity is mapped or about to be.
    pub fn has_file(&self, identity: FileIdentity) -> bool {
        let state = self.shared.lock();
        state.files.values().filter_map(Weak::upgrade).any(|file| file.identity == identity)
    }

    /// Returns whether some range of that inode is mapped or about to be.
    pub fn has_node(&self, nodeid: NodeId) -> bool {
        self.shared.lock().files.get(&nodeid).is_some_and(|file| file.strong_count() > 0)
    }

    /// Returns what is mapped, and the work that it took.
    pub fn usage(&self) -> WindowUsage {
        let state = self.shared.lock();
        let ranges_mapped = state.ranges.iter().filter(|range| matches!(range, Range::Mapped(_))).count() as u64;
        WindowUsage { ranges_mapped, ..state.usage.clone() }
    }

    /// Returns the mapped files, those with the most ranges first.
    pub fn files(&self) -> Vec<FileUsage> {
        let mut files: HashMap<NodeId, FileUsage> = HashMap::new();
        for range in &self.shared.lock().ranges {
            if let Range::Mapped(Mapped { file, .. }) = range {
                files.entry(file.nodeid).or_insert_with(|| FileUsage { file: file.clone(), ranges: 0 }).ranges += 1;
            }
        }
        let mut files: Vec<_> = files.into_values().collect();
        files.sort_by_key(|usage| (std::cmp::Reverse(usage.ranges), usage.file.nodeid.0));
        files
    }

    fn index(&self, window_offset: u64) -> Result<usize, Errno> {
        let index = usize::try_from(window_offset / RANGE_LEN).map_err(|_| Errno::INVAL)?;
        let is_inside = window_offset.is_multiple_of(RANGE_LEN) && window_offset < self.shared.len_bytes;
        if is_inside { Ok(index) } else { Err(Errno::INVAL) }
    }

    /// Returns the file if it is mapped already, else opens it with `open`.
    fn file(
        &self,
        nodeid: NodeId,
        wants_write: bool,
        open: impl FnOnce() -> Result<MappedFile, Errno>,
    ) -> Result<Arc<MappedFile>, Errno> {
        let suits = |file: &Arc<MappedFile>| file.is_writable || !wants_write;
        let known = self.shared.lock().files.get(&nodeid).and_then(Weak::upgrade).filter(suits);
        if let Some(file) = known {
            return Ok(file);
        }
        let file = Arc::new(open()?);
        let mut state = self.shared.lock();
        // Another thread may have opened it meanwhile. Keep one descriptor for each file.
        if let Some(known) = state.files.get(&nodeid).and_then(Weak::upgrade).filter(suits) {
            drop(state);
            return Ok(known);
        }
        state.files.retain(|_, file| file.strong_count() > 0);
        state.files.insert(nodeid, Arc::downgrade(&file));
        Ok(file)
    }
}

#[cfg(test)]
impl Window {
    /// Returns the number of jobs that were not started.
    pub(super) fn shared_jobs(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Returns the window offsets of all mappings.
    pub(super) fn offsets(&self) -> Vec<u64> {
        let state = self.shared.lock();
        let ranges = state.ranges.iter().zip(0u64..);
        let mapped = ranges.filter(|(range, _)| matches!(range, Range::Mapped(_)));
        mapped.map(|(_, index)| index * RANGE_LEN).collect()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.disconnect();
    }
}
