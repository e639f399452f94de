//! One file that several parties map: it holds a counter that all add to, and a message from each.

use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// Number of parties: the host and two guests.
pub(super) const PARTIES: usize = 3;
/// Number of additions of each party.
pub(super) const ADDITIONS: u64 = 100_000;
/// Two ranges of the window, and large enough to be mapped by the default policy.
pub(super) const FILE_LEN: u64 = 4 << 20;
/// How long to wait for the others, which may still be booting.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(180);

const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Offsets of the counters: parties that arrived, parties that are done, and the counter that all add to.
const ARRIVED: usize = 0;
const DONE: usize = 8;
const SUM: usize = 4096;
/// Offsets of the messages: the first in the first range, the others in the second.
const MESSAGES: [usize; PARTIES] = [8192, (2 << 20) + 4096, (3 << 20) + 100];

/// The file, mapped by this process.
pub(super) struct Shared {
    region: MmapRegion,
}

impl Shared {
    /// Maps the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file =
            File::options().read(true).write(true).open(path).with_context(|| format!("cannot open {path:?}"))?;
        let region = MmapRegion::from_file(FileOffset::new(file, 0), FILE_LEN as usize);
        Ok(Self { region: region.with_context(|| format!("cannot map {path:?}"))? })
    }

    /// Adds to the sum together with the others, leaves a message, and checks theirs. Blocks until all are done.
    ///
    /// # Errors
    ///
    /// Returns an error if a message is missing, if `is_cancelled` returns true, or after [`WAIT_MAX`].
    pub(super) fn take_part(&self, party: usize, is_cancelled: impl Fn() -> bool) -> Result<()> {
        self.wait_for_all(ARRIVED, &is_cancelled)?;
        for _ in 0..ADDITIONS {
            self.counter(SUM)?.fetch_add(1, SeqCst);
        }
        self.slice().write_slice(&message(party), MESSAGES[party])?;
        self.wait_for_all(DONE, &is_cancelled)?;
        for (other, offset) in MESSAGES.into_iter().enumerate() {
            let mut found = message(party);
            self.slice().read_slice(&mut found, offset)?;
            ensure!(found == message(other), "the store of party {other} is not seen by party {party}");
        }
        Ok(())
    }

    /// Returns the sum of all additions.
    pub(super) fn sum(&self) -> u64 {
        self.counter(SUM).map_or(0, |counter| counter.load(SeqCst))
    }

    fn wait_for_all(&self, offset: usize, is_cancelled: impl Fn() -> bool) -> Result<()> {
        let counter = self.counter(offset)?;
        counter.fetch_add(1, SeqCst);
        let deadline = Instant::now() + WAIT_MAX;
        while counter.load(SeqCst) < PARTIES as u64 {
            // The check repeats because the count may have been reached just now.
            let is_over = is_cancelled() || Instant::now() >= deadline;
            ensure!(!is_over || counter.load(SeqCst) >= PARTIES as u64, "not every party reached the shared mapping");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn counter(&self, offset: usize) -> Result<&AtomicU64> {
        self.region.get_atomic_ref(offset).context("counter outside the mapping")
    }

    fn slice(&self) -> vm_memory::VolatileSlice<'_> {
        self.region.as_volatile_slice()
    }
}

/// Returns the message of a party: 64 bytes, different for each party.
fn message(party: usize) -> [u8; 64] {
    std::array::from_fn(|index| (index * 3 + party * 85 + 1) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_mappings_of_one_file_agree() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(FILE_LEN).unwrap();
        thread::scope(|scope| {
            for party in 0..PARTIES {
                let shared = Shared::open(file.path()).unwrap();
                scope.spawn(move || shared.take_part(party, || false).unwrap());
            }
        });
        assert_eq!(Shared::open(file.path()).unwrap().sum(), PARTIES as u64 * ADDITIONS);
    }

    #[test]
    fn a_party_that_will_not_come_is_not_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(FILE_LEN).unwrap();
        let error = Shared::open(file.path()).unwrap().take_part(0, || true).unwrap_err();
        assert!(error.to_string().contains("not every party"), "{error}");
    }
}
