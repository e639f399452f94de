//! Inside the guest: stores data, flushes it and acknowledges it to the host, until the machine is killed. After the
//! next boot, checks that every acknowledged store is in the file.
//!
//! Each round has its own file, which begins as a hole. Its seed determines where the records go, scattered over the
//! file, so that for a long time most of them are the first in their page. When all places have one, further records go
//! over them. The acknowledgement is a write to the host's share, which is a request: once it is done, the host has it,
//! whatever happens to the machine.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use transom_user::{
    guest::dax::entry::Order,
    map::{Mapping, Protection, Sharing},
};

use super::setting::{DIR, Guest, Way, mount_pmem, unmount_pmem};

/// Of the file.
const LEN: u64 = 16 << 20;
/// What is stored at a time: a line of the processor's cache.
const RECORD_LEN: usize = 64;
const RECORDS: u64 = LEN / RECORD_LEN as u64;
/// Length of an acknowledgement in bytes; the number of acknowledgements counts.
const ACK_LEN: u64 = 8;

/// What the stores of a round are, by its seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) seed: u64,
}

impl Round {
    /// Where the record `number` goes: each of [`RECORDS`] in a row has a place of its own.
    fn place(self, number: u64) -> u64 {
        // An odd factor permutes the places, since there is a power of two of them.
        let factor = mixed(self.seed) | 1;
        factor.wrapping_mul(number).wrapping_add(self.seed) % RECORDS * RECORD_LEN as u64
    }

    fn record(self, number: u64) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        for (at, word) in (0..).zip(record.chunks_exact_mut(8)) {
            // Never zero, which is what a hole has.
            word.copy_from_slice(&(mixed(self.seed ^ mixed(number * 8 + at)) | 1).to_le_bytes());
        }
        record
    }

    /// Every fourth round is served by 2 MiB.
    fn order(self) -> Order {
        if self.seed.is_multiple_of(4) { Order::Huge } else { Order::Small }
    }
}

/// The finalizer of SplitMix64.
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// What the host and the guest tell each other of a round, in the share.
pub(super) struct Notes<'a> {
    pub(super) share: &'a Path,
    pub(super) round: u64,
}

impl Notes<'_> {
    /// The acknowledgements.
    fn acks(&self) -> PathBuf {
        self.share.join(format!("acks-{}", self.round))
    }

    /// How many there are.
    pub(super) fn acknowledged(&self) -> io::Result<u64> {
        match fs::metadata(self.acks()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            acks => Ok(acks?.len() / ACK_LEN),
        }
    }

    /// What became of the round, as [`Found`] prints it.
    pub(super) fn found(&self) -> PathBuf {
        self.share.join(format!("found-{}", self.round))
    }

    fn seed(&self) -> PathBuf {
        self.share.join(format!("seed-{}", self.round))
    }
}

/// What was found after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Acknowledged stores that no later one has overwritten.
    pub(super) acknowledged: u64,
    /// Of these.
    pub(super) lost: u64,
    pub(super) first_lost: Option<u64>,
}

impl Found {
    fn words(&self) -> String {
        let first = self.first_lost.map_or_else(|| "none".into(), |first| first.to_string());
        format!("{} {} {first}", self.acknowledged, self.lost)
    }

    pub(super) fn parse(words: &str) -> anyhow::Result<Self> {
        let mut numbers = words.split_whitespace();
        let mut next = || numbers.next().with_context(|| format!("too few words: {words:?}"));
        let (acknowledged, lost) = (next()?.parse()?, next()?.parse()?);
        Ok(Self { acknowledged, lost, first_lost: next()?.parse().ok() })
    }
}

/// Looks what became of the round before, then stores until the machine is killed.
pub(super) fn inside(file_system: &str, number: u64, way: &str, seed: u64) -> anyhow::Result<()> {
    let way = Way::named(way)?;
    mount_pmem(file_system, "dax=always")?;
    look_back(number)?;
    store(number, way, Round { seed })
}

/// Looks what became of the last round.
pub(super) fn verify_last(file_system: &str, number: u64) -> anyhow::Result<()> {
    mount_pmem(file_system, "dax=always")?;
    look_back(number)?;
    Ok(unmount_pmem()?)
}

fn notes(round: u64) -> Notes<'static> {
    Notes { share: Path::new("/share"), round }
}

fn look_back(number: u64) -> anyhow::Result<()> {
    let Some(before) = number.checked_sub(1) else { return Ok(()) };
    let notes = notes(before);
    let seed = match fs::read_to_string(notes.seed()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        seed => seed?.parse()?,
    };
    let found = verify(Path::new(DIR), before, Round { seed }, notes.acknowledged()?)?;
    fs::write(notes.found(), found.words())?;
    Ok(fs::remove_file(path_of(Path::new(DIR), before))?)
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file-{number}"))
}

/// Looks for the acknowledged stores of the round `number` in the file system that is mounted at `dir`.
pub(super) fn verify(dir: &Path, number: u64, round: Round, acknowledged: u64) -> anyhow::Result<Found> {
    let path = path_of(dir, number);
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    // The store that was under way may have overwritten the record that had its place.
    let first = (acknowledged + 1).saturating_sub(RECORDS);
    let mut found = Found { acknowledged: acknowledged - first, lost: 0, first_lost: None };
    for number in first..acknowledged {
        let mut record = [0; RECORD_LEN];
        file.read_exact_at(&mut record, round.place(number))?;
        if record != round.record(number) {
            found.lost += 1;
            found.first_lost.get_or_insert(number);
        }
    }
    Ok(found)
}

fn store(number: u64, way: Way, round: Round) -> anyhow::Result<()> {
    let path = path_of(Path::new(DIR), number);
    let file = File::create(&path)?;
    file.set_len(LEN)?;
    file.sync_all()?;
    File::open(DIR)?.sync_all()?;

    let guest = Guest::connect()?;
    guest.choose(way)?;
    let file = guest.open(&format!("file-{number}"))?;
    let map = |sharing| {
        Mapping::with_order(file.as_open_file().clone(), 0..LEN, Protection::ReadWrite, sharing, round.order())
    };
    let durable = map(Sharing::SharedSync)?;
    // Lines of the cache are the same through whichever mapping they are flushed.
    let ordinary = if way == Way::Nothing { Some(map(Sharing::Shared)?) } else { None };
    let stores = ordinary.as_ref().unwrap_or(&durable);

    let notes = notes(number);
    fs::write(notes.seed(), round.seed.to_string())?;
    let acks = File::create(notes.acks())?;
    for number in 0.. {
        let at = round.place(number) as usize;
        stores.write_at(at, &round.record(number))?;
        durable.flush(at..at + RECORD_LEN)?;
        acks.write_all_at(&(number + 1).to_le_bytes(), number * ACK_LEN)?;
        if number == 0 {
            let is_map_sync = guest.synchronous_ranges() > 0;
            ensure!(is_map_sync == (way == Way::MapSync), "MAP_SYNC is used: {is_map_sync}");
        }
    }
    unreachable!("stores end with the machine")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_record_has_a_place_of_its_own() {
        let round = Round { seed: 12345 };
        let places: HashSet<_> = (0..RECORDS).map(|number| round.place(number)).collect();
        assert_eq!(places.len() as u64, RECORDS);
        let pages: HashSet<_> = (0..1000).map(|number| round.place(number) / 4096).collect();
        assert!(pages.len() > 500, "{} pages", pages.len());
    }

    #[test]
    fn a_record_that_is_not_there_is_told() {
        let round = Round { seed: 5 };
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(path_of(dir.path(), 3)).unwrap();
        file.set_len(LEN).unwrap();
        for number in [0, 1, 3] {
            file.write_all_at(&round.record(number), round.place(number)).unwrap();
        }
        let found = |acknowledged| verify(dir.path(), 3, round, acknowledged).unwrap();
        assert_eq!(found(2), Found { acknowledged: 2, lost: 0, first_lost: None });
        assert_eq!(found(4), Found { acknowledged: 4, lost: 1, first_lost: Some(2) });
        assert_eq!(Found::parse(&found(4).words()).unwrap(), found(4));
        assert_eq!(Found::parse(&found(2).words()).unwrap(), found(2));
    }

    #[test]
    fn records_over_others_count_in_their_place() {
        let round = Round { seed: 5 };
        let dir = tempfile::tempdir().unwrap();
        let mut content = vec![0; LEN as usize];
        // Two are acknowledged, and a third is under way.
        for number in 0..RECORDS + 3 {
            let at = round.place(number) as usize;
            content[at..at + RECORD_LEN].copy_from_slice(&round.record(number));
        }
        let found = |content: &[u8]| {
            fs::write(path_of(dir.path(), 3), content).unwrap();
            verify(dir.path(), 3, round, RECORDS + 2).unwrap()
        };
        assert_eq!(found(&content), Found { acknowledged: RECORDS - 1, lost: 0, first_lost: None });
        content[round.place(RECORDS) as usize] ^= 1;
        assert_eq!(found(&content), Found { acknowledged: RECORDS - 1, lost: 1, first_lost: Some(RECORDS) });
    }
}
