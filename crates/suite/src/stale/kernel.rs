//! A directory of this machine's kernel as a member: the mount, or the host itself.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::Context as _;

use super::{
    LOOKS, PAUSE,
    board::{Board, MEMBERS},
    record::{DATA, LINK, Look, NAMES, NEXT_LINK, TIMES, round},
    tally::Tally,
};

/// The shared directory, as this machine's programs see it.
pub(super) struct Kernel {
    dir: PathBuf,
    /// How long it may be behind; nothing if it may not be.
    within: Option<Duration>,
}

impl Kernel {
    pub(super) fn new(dir: &Path, within: Option<Duration>) -> Self {
        Self { dir: dir.to_owned(), within }
    }

    /// Changes the record of `member` and looks at all of them, until the run is over.
    pub(super) fn work(&self, board: &Board, member: usize) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        while board.goes_on(tally.changes) {
            let round = tally.changes + 1;
            self.change(member, round).context("a change by the kernel")?;
            board.publish(member, round);
            tally.changes = round;
            for _ in 0..LOOKS {
                self.look_at_all(board, &mut tally)?;
            }
        }
        Ok(tally)
    }

    /// Looks until the run is over, and changes nothing.
    pub(super) fn look_until_end(&self, board: &Board) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        while !board.is_over() {
            self.look_at_all(board, &mut tally)?;
            // The others have more to do.
            thread::sleep(PAUSE);
        }
        Ok(tally)
    }

    fn look_at_all(&self, board: &Board, tally: &mut Tally) -> anyhow::Result<()> {
        let who = if self.within.is_some() { "the mount" } else { "the host" };
        for member in 0..MEMBERS {
            let least = board.least(member);
            let begun = Instant::now();
            let mut look = self.look(member, least)?;
            if let Some(within) = self.within {
                let is_behind = |look: &Look| look.iter().any(|found| *found < least);
                let mut delay = Duration::ZERO;
                while is_behind(&look) && begun.elapsed() < within {
                    look = self.look(member, least)?;
                    delay = begun.elapsed();
                }
                tally.delays.push(delay);
            }
            tally.note(who, member, least, &look);
        }
        Ok(())
    }

    fn change(&self, member: usize, round: u64) -> anyhow::Result<()> {
        let record = self.dir.join(member.to_string());
        fs::File::options().write(true).open(record.join(DATA))?.write_all_at(&round.to_le_bytes(), 0)?;
        fs::rename(record.join(NAMES).join((round - 1).to_string()), record.join(NAMES).join(round.to_string()))?;
        let times = fs::File::options().write(true).open(record.join(TIMES))?;
        times.set_modified(UNIX_EPOCH + Duration::from_secs(round))?;
        symlink(round.to_string(), record.join(NEXT_LINK))?;
        fs::rename(record.join(NEXT_LINK), record.join(LINK))?;
        Ok(())
    }

    /// Looks at the record of `member`, whose round `least` is complete.
    fn look(&self, member: usize, least: u64) -> anyhow::Result<Look> {
        let record = self.dir.join(member.to_string());
        let mut bytes = [0; 8];
        fs::File::open(record.join(DATA))?.read_exact_at(&mut bytes, 0)?;
        let listed = fs::read_dir(record.join(NAMES))?.next().transpose()?;
        let listed = listed.map(|entry| round(entry.file_name().as_encoded_bytes())).transpose()?.unwrap_or(least);
        let before = least.saturating_sub(1);
        let is_stale = least > 0 && fs::exists(record.join(NAMES).join(before.to_string()))?;
        Ok([
            u64::from_le_bytes(bytes),
            listed,
            if is_stale { before } else { least },
            fs::metadata(record.join(TIMES))?.mtime().cast_unsigned(),
            round(fs::read_link(record.join(LINK))?.as_os_str().as_encoded_bytes())?,
        ])
    }
}
