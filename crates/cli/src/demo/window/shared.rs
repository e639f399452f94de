//! One file that several parties have mapped: a number that all add to, and a message of each.

use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// The host and two guests.
pub(super) const PARTIES: usize = 3;
/// What each adds to the number.
pub(super) const ADDITIONS: u64 = 100_000;
/// Two ranges of the window, above the size from which files are mapped.
pub(super) const FILE_LEN: u64 = 4 << 20;
/// The others may still be booting.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Where the numbers lie: who has come, who has said all; the number that all add to.
const COME: usize = 0;
const SAID: usize = 8;
const SUM: usize = 4096;
/// Where the messages lie: the first in the first range, the others in the second.
const MESSAGES: [usize; PARTIES] = [8192, (2 << 20) + 4096, (3 << 20) + 100];

/// The file, mapped by this process.
pub(super) struct Shared {
    region: MmapRegion,
}

impl Shared {
    /// Maps the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path).with_context(|| format!("opening {path:?}"))?;
        let region = MmapRegion::from_file(FileOffset::new(file, 0), FILE_LEN as usize);
        Ok(Self { region: region.with_context(|| format!("mapping {path:?}"))? })
    }

    /// Adds together with the others, leaves a message, and finds theirs. Blocks until all have.
    ///
    /// Errors: a message is not there; `is_hopeless` says that not all will come.
    pub(super) fn take_part(&self, party: usize, is_hopeless: impl Fn() -> bool) -> Result<()> {
        self.together(COME, &is_hopeless)?;
        for _ in 0..ADDITIONS {
            self.number(SUM)?.fetch_add(1, SeqCst);
        }
        self.slice().write_slice(&message(party), MESSAGES[party])?;
        self.together(SAID, &is_hopeless)?;
        for (other, offset) in MESSAGES.into_iter().enumerate() {
            let mut found = message(party);
            self.slice().read_slice(&mut found, offset)?;
            ensure!(found == message(other), "the store of party {other} is not seen by party {party}");
        }
        Ok(())
    }

    /// What all have added.
    pub(super) fn sum(&self) -> u64 {
        self.number(SUM).map_or(0, |number| number.load(SeqCst))
    }

    fn together(&self, offset: usize, is_hopeless: impl Fn() -> bool) -> Result<()> {
        let number = self.number(offset)?;
        number.fetch_add(1, SeqCst);
        let deadline = Instant::now() + PATIENCE;
        while number.load(SeqCst) < PARTIES as u64 {
            // A guest that has ended may have seen the number reached just now.
            let is_over = is_hopeless() || Instant::now() >= deadline;
            ensure!(!is_over || number.load(SeqCst) >= PARTIES as u64, "not every party came to the shared mapping");
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    fn number(&self, offset: usize) -> Result<&AtomicU64> {
        self.region.get_atomic_ref(offset).context("a number outside of the mapping")
    }

    fn slice(&self) -> vm_memory::VolatileSlice<'_> {
        self.region.as_volatile_slice()
    }
}

/// What a party says: 64 bytes that no other says.
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
