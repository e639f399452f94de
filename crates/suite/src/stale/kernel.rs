//! A directory of this machine's kernel as a member: the mount, or the host itself.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::Context as _;

use super::{
    board::{Board, MEMBERS},
    record::{COMMON, DATA, LINK, Look, NAMES, NEXT_LINK, TIMES, common_name, round},
    tally::{Delay, Tally},
};

/// How long the follower rests between looks at the board: short beside the time between two looks of a mount at the
/// table.
const PAUSE: Duration = Duration::from_micros(100);

/// The shared directory, as this machine's programs see it.
pub(super) struct Kernel {
    dir: PathBuf,
    /// Data and times of each record, which stay open: no name that expires refreshes them.
    open: Vec<[File; 2]>,
    common: File,
    /// How long it may be behind; nothing if it may not be.
    within: Option<Duration>,
}

impl Kernel {
    pub(super) fn open(dir: &Path, within: Option<Duration>) -> anyhow::Result<Self> {
        let open = |member: usize, name: &str| File::open(dir.join(member.to_string()).join(name));
        let open = (0..MEMBERS).map(|member| Ok([open(member, DATA)?, open(member, TIMES)?]));
        let open = open.collect::<io::Result<_>>().context("the records")?;
        let common = File::open(dir.join(COMMON).join(DATA)).context("what is common")?;
        Ok(Self { dir: dir.to_owned(), open, common, within })
    }

    /// Changes the record of `member` and looks at all of them, until the run is over.
    pub(super) fn work(&self, board: &Board, member: usize) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        while board.goes_on(tally.changes) {
            let round = tally.changes + 1;
            self.change(member, round).context("a change by the kernel")?;
            board.publish(member, round);
            tally.changes = round;
            for _ in 0..board.looks {
                for member in 0..MEMBERS {
                    self.check(board, member, board.least(member), &mut tally)?;
                }
            }
            tally.report(board);
        }
        Ok(tally)
    }

    /// Looks at each record as soon as it is published, until the run is over, and changes nothing.
    pub(super) fn follow(&self, board: &Board) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let mut seen = [0; MEMBERS];
        while !board.is_over() {
            for (member, seen) in seen.iter_mut().enumerate() {
                let least = board.least(member);
                if least != std::mem::replace(seen, least) {
                    let delay = self.check(board, member, least, &mut tally)?;
                    tally.delays.extend(delay);
                }
            }
            tally.report(board);
            thread::sleep(PAUSE);
        }
        Ok(tally)
    }

    /// Looks at the record of `member`, whose round `least` is complete, until it is right or time is up. Returns how
    /// long the answers were old, if they may be.
    fn check(&self, board: &Board, member: usize, least: u64, tally: &mut Tally) -> anyhow::Result<Option<Delay>> {
        let begun = Instant::now();
        let mut look = self.look(member, least)?;
        let mut delay = Delay::default();
        while let Some(kind) = look.iter().position(|found| *found < least)
            && self.within.is_some_and(|within| begun.elapsed() < within)
        {
            look = self.look(member, least)?;
            delay = Delay { time: begun.elapsed(), kind };
        }
        if look.iter().any(|found| *found < least) {
            // The run has failed. Each look more would wait as long.
            board.end();
        }
        let who = if self.within.is_some() { "the mount" } else { "the host" };
        tally.note(who, member, least, &look);
        Ok(self.within.map(|_| delay))
    }

    fn change(&self, member: usize, round: u64) -> anyhow::Result<()> {
        let record = self.dir.join(member.to_string());
        File::options().write(true).open(record.join(DATA))?.write_all_at(&round.to_le_bytes(), 0)?;
        fs::rename(record.join(NAMES).join((round - 1).to_string()), record.join(NAMES).join(round.to_string()))?;
        let common = self.dir.join(COMMON);
        let data = File::options().write(true).open(common.join(DATA))?;
        data.write_all_at(&round.to_le_bytes(), 8 * member as u64)?;
        let [from, to] = [round - 1, round].map(|at| common.join(NAMES).join(common_name(member, at)));
        fs::rename(from, to)?;
        let times = File::options().write(true).open(record.join(TIMES))?;
        times.set_modified(UNIX_EPOCH + Duration::from_secs(round))?;
        symlink(round.to_string(), record.join(NEXT_LINK))?;
        fs::rename(record.join(NEXT_LINK), record.join(LINK))?;
        Ok(())
    }

    /// Looks at the record of `member`, whose round `least` is complete.
    fn look(&self, member: usize, least: u64) -> anyhow::Result<Look> {
        let record = self.dir.join(member.to_string());
        let (mut bytes, mut common) = ([0; 8], [0; 8]);
        let [data, times] = &self.open[member];
        data.read_exact_at(&mut bytes, 0)?;
        self.common.read_exact_at(&mut common, 8 * member as u64)?;
        let listed = fs::read_dir(record.join(NAMES))?.next().transpose()?;
        let listed = listed.map(|entry| round(entry.file_name().as_encoded_bytes())).transpose()?.unwrap_or(least);
        let before = least.saturating_sub(1);
        let is_stale = least > 0 && fs::exists(record.join(NAMES).join(before.to_string()))?;
        let common_before = self.dir.join(COMMON).join(NAMES).join(common_name(member, before));
        let is_common_stale = least > 0 && fs::exists(common_before)?;
        Ok([
            u64::from_le_bytes(bytes),
            listed,
            if is_stale { before } else { least },
            times.metadata()?.mtime().cast_unsigned(),
            round(fs::read_link(record.join(LINK))?.as_os_str().as_encoded_bytes())?,
            u64::from_le_bytes(common),
            if is_common_stale { before } else { least },
        ])
    }
}
