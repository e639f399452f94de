//! A guest of the library, which starts anew when its daemon has been killed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use transom_user::{
    daemon::Program,
    guest::{
        cache::{CacheMode, CacheOptions},
        dax::DaxOptions,
        fs::{File, Fs, OpenOptions},
        session::SessionConfig,
        volume::SetTime,
    },
    platform::Process,
    share::Share,
};

use super::{
    board::{Board, MEMBERS},
    record::{COMMON, DATA, LINK, Look, NAMES, NEXT_LINK, TIMES, common_name, common_round, round},
    tally::Tally,
};

/// How long after an error a guest may take to notice that its daemon is gone.
const DEATH_WITHIN: Duration = Duration::from_secs(20);

/// A guest, and what it needs to start anew.
pub(super) struct Guest<'b> {
    member: usize,
    dir: PathBuf,
    program: &'b Program,
    mode: CacheMode,
    session: Session,
    /// The rounds of the names in its record and in the common directory; nothing after a death, which may have come in
    /// the middle of a rename.
    named: Option<[u64; 2]>,
}

/// What ends with a daemon.
struct Session {
    fs: Fs<Process>,
    /// The data of all records, which stay open.
    data: Vec<File<Process>>,
    common: File<Process>,
    share: Share,
}

impl<'b> Guest<'b> {
    pub(super) fn connect(
        member: usize,
        dir: &Path,
        program: &'b Program,
        is_checked: bool,
        board: &Board,
    ) -> anyhow::Result<Self> {
        let mode = if is_checked { CacheMode::Shared } else { CacheMode::Always };
        let session = Session::new(dir, program, mode)?;
        session.announce(member, board);
        Ok(Self { member, dir: dir.to_owned(), program, mode, session, named: Some([0; 2]) })
    }

    /// Changes its record and looks at all of them, until the run is over.
    pub(super) fn work(mut self, board: &Board) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let (mut round, who) = (0, format!("guest {}", self.member));
        while board.goes_on(tally.changes) {
            // A round that a death has cut short is never published: the next one changes everything again.
            round += 1;
            if let Err(error) = self.change(round) {
                self.start_anew(error, board)?;
                continue;
            }
            board.publish(self.member, round);
            tally.changes += 1;
            for _ in 0..board.looks {
                for member in 0..MEMBERS {
                    let least = board.least(member);
                    match self.session.look(member, least) {
                        Ok(look) => tally.note(&who, member, least, &look),
                        Err(error) => self.start_anew(error, board)?,
                    }
                }
            }
            tally.report(board);
        }
        board.daemons[self.member].store(0, Ordering::Relaxed);
        Ok(tally)
    }

    /// Brings its record to `round`.
    fn change(&mut self, round: u64) -> anyhow::Result<()> {
        let (fs, record) = (&self.session.fs, self.member);
        let data = fs.open(format!("{record}/{DATA}"), &OpenOptions::new().write(true))?;
        data.write_at(0, &round.to_le_bytes())?;
        let [before, common_before] = match self.named.take() {
            Some(before) => before,
            None => {
                // The link may be there as well.
                let _ = fs.remove_file(format!("{record}/{NEXT_LINK}"));
                [name(fs, record)?.context("a record has a name")?, common(fs, record)?.context("a member has a name")?]
            }
        };
        fs.rename(format!("{record}/{NAMES}/{before}"), format!("{record}/{NAMES}/{round}"))?;
        self.session.common.write_at(8 * record as u64, &round.to_le_bytes())?;
        let [from, to] = [common_before, round].map(|at| format!("{COMMON}/{NAMES}/{}", common_name(record, at)));
        fs.rename(&from, &to)?;
        let time = SetTime::At(round.cast_signed(), 0);
        fs.set_times(format!("{record}/{TIMES}"), SetTime::Keep, time, true)?;
        fs.symlink(round.to_string(), format!("{record}/{NEXT_LINK}"))?;
        fs.rename(format!("{record}/{NEXT_LINK}"), format!("{record}/{LINK}"))?;
        self.named = Some([round; 2]);
        Ok(())
    }

    /// Errors: `error`, if the daemon is still there; it cannot be started again.
    fn start_anew(&mut self, error: anyhow::Error, board: &Board) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEATH_WITHIN;
        while !self.session.share.is_gone() {
            if Instant::now() > deadline {
                return Err(error.context(format!("guest {}, whose daemon lives", self.member)));
            }
            thread::yield_now();
        }
        self.session = Session::new(&self.dir, self.program, self.mode)?;
        self.session.announce(self.member, board);
        self.named = None;
        Ok(())
    }
}

impl Session {
    fn new(dir: &Path, program: &Program, mode: CacheMode) -> anyhow::Result<Self> {
        let share = Share::builder().shared_dir(dir).daemon(program.clone()).connect()?;
        anyhow::ensure!(share.versions().is_some(), "the daemon offers no version table");
        let options = CacheOptions { mode, ..CacheOptions::default() };
        let fs = Fs::new(Arc::new(share.volume(SessionConfig::default(), options, DaxOptions::default())?));
        let open = |member| fs.open_read(format!("{member}/{DATA}"));
        let data = (0..MEMBERS).map(open).collect::<Result<_, _>>()?;
        let common = fs.open(format!("{COMMON}/{DATA}"), &OpenOptions::new().read(true).write(true))?;
        Ok(Self { fs, data, common, share })
    }

    /// From here on the daemon may be killed.
    fn announce(&self, member: usize, board: &Board) {
        let daemon = self.share.device().transport().daemon_id().unwrap_or_default();
        board.daemons[member].store(daemon, Ordering::Relaxed);
    }

    /// Looks at the record of `member`, whose round `least` is complete.
    fn look(&self, member: usize, least: u64) -> anyhow::Result<Look> {
        let fs = &self.fs;
        let (mut bytes, mut common) = ([0; 8], [0; 8]);
        self.data[member].read_at(0, &mut bytes)?;
        self.common.read_at(8 * member as u64, &mut common)?;
        // Between two entries of a listing the name may change; an old one never comes back.
        let listed = name(fs, member)?.unwrap_or(least);
        let before = least.saturating_sub(1);
        let is_stale = least > 0 && fs.exists(format!("{member}/{NAMES}/{before}"))?;
        let is_common_stale = least > 0 && fs.exists(format!("{COMMON}/{NAMES}/{}", common_name(member, before)))?;
        Ok([
            u64::from_le_bytes(bytes),
            listed,
            if is_stale { before } else { least },
            fs.metadata(format!("{member}/{TIMES}"))?.attr().mtime.get(),
            round(&fs.read_link(format!("{member}/{LINK}"))?)?,
            u64::from_le_bytes(common),
            if is_common_stale { before } else { least },
        ])
    }
}

/// Returns the round that the name in the record of `member` is, if the listing shows one; the older, if it shows two.
/// Reads to the end: only then the listing is cached.
fn name(fs: &Fs<Process>, member: usize) -> anyhow::Result<Option<u64>> {
    let rounds = fs.read_dir(format!("{member}/{NAMES}"))?.map(|entry| round(&entry?.name));
    rounds.reduce(|one, other| Ok(one?.min(other?))).transpose()
}

/// Returns the round that the name of `member` in the common directory is.
fn common(fs: &Fs<Process>, member: usize) -> anyhow::Result<Option<u64>> {
    for entry in fs.read_dir(format!("{COMMON}/{NAMES}"))? {
        if let Some(round) = common_round(&entry?.name, member) {
            return Ok(Some(round));
        }
    }
    Ok(None)
}
