//! Looks for one stale answer: guests of a coherence group, a mount and the host change files and look at those of the
//! others, while daemons are killed.
//!
//! Each member owns a [`Record`](record): a few files that count its rounds in all that a guest caches. In a file and a
//! directory that all change, each has its own bytes and its own name, so that what a guest has cached of them survives
//! its own changes and must not survive those of others. When a change
//! is complete, its round is published on the [`Board`]. Whoever looks loads the round first, and may then see that one
//! or a later one: anything else is stale. Guests of the library and the host have to be right at once, the mount
//! within [`WITHIN`].
//!
//! The same with guests that use what they have cached without a look at the table must find stale answers.

mod board;
mod guest;
mod kernel;
mod record;
mod sum;
mod tally;

use std::{
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};
use transom_user::daemon::Program;

use crate::{Verdict, mounted::Mounted, places::Places};
use board::{Board, GUESTS, MEMBERS, MOUNT};
use guest::Guest;
use kernel::Kernel;
use sum::SumFile;
use tally::Tally;

/// How often a member looks at all records after each of its changes, if nobody says.
const LOOKS: u64 = 4;

/// How often the figures of all runs are brought up to date.
const SUM_EVERY: Duration = Duration::from_secs(5);

/// A daemon is killed each time that all members together have completed so many changes.
const CHANGES_PER_DEATH: u64 = 80;

/// The bound on how long a mount may be behind. It takes hundredths of a second; without the scan it would be a day.
const WITHIN: Duration = Duration::from_secs(20);

/// How long the killer rests between looks at the board.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs `rounds` of each member, or as many as fit in the hours that were asked for.
///
/// With `is_checked` false, guests never look at the table, and the test passes if that is found.
pub(crate) fn run(mounted: &Mounted, places: &Places<'_>, rounds: u64, is_checked: bool) -> anyhow::Result<Verdict> {
    let share = places.fresh("share")?;
    for member in 0..MEMBERS {
        record::create(&share.join(member.to_string())).context("the files of a member")?;
    }
    record::create_common(&share.join(record::COMMON), MEMBERS).context("what all members change")?;
    let search = places.search();
    let sum = search.sum.as_deref().filter(|_| is_checked).map(SumFile::open).transpose()?;
    let deadline = search.hours.map(|hours| Instant::now() + Duration::from_secs_f64(hours * 3600.0));
    let board = Board::new(rounds, search.looks.unwrap_or(LOOKS), deadline);
    let tally = mounted.at(&share, |at| {
        thread::scope(|scope| {
            let writer = scope.spawn(|| sum.as_ref().map_or(Ok(()), |sum| keep_sum(&board, sum)));
            let tally = all(&board, mounted.program(), &share, at, is_checked);
            board.end();
            writer.join().map_err(|_| anyhow::anyhow!("the writer of the sum panicked")).flatten()?;
            // All have told what they have found.
            sum.as_ref().map_or(Ok(()), |sum| sum.write(board.sum()))?;
            tally
        })
    })?;
    let figures = tally.to_string();
    places.keep(if is_checked { "stale" } else { "stale-unchecked" }, figures.as_bytes())?;
    if is_checked == tally.stale.is_empty() {
        return Ok(Verdict::passed(Some(figures)));
    }
    let found = tally.stale.first().map_or("guests that never look at the table were always right", String::as_str);
    Ok(Verdict::failed(&format!("{found}; {figures}")))
}

/// Lets all members work at once.
fn all(board: &Board, program: &Program, share: &Path, at: &Path, is_checked: bool) -> anyhow::Result<Tally> {
    thread::scope(|scope| {
        let mut members = Vec::new();
        for member in 0..GUESTS {
            members.push(scope.spawn(move || Guest::connect(member, share, program, is_checked, board)?.work(board)));
        }
        members.push(scope.spawn(|| Kernel::open(at, Some(WITHIN))?.work(board, MOUNT)));
        let followers = [(share, None), (at, Some(WITHIN))];
        let followers = followers.map(|(dir, within)| scope.spawn(move || Kernel::open(dir, within)?.follow(board)));
        let killer = scope.spawn(|| if is_checked { kill(board) } else { Ok(0) });
        let mut sum = Tally::default();
        let mut failed = None;
        for member in members {
            let result = member.join().map_err(|_| anyhow::anyhow!("a member panicked")).flatten();
            match result {
                Ok(tally) => sum.add(tally),
                Err(error) => {
                    // The others need not go on for hours.
                    board.end();
                    failed = failed.or(Some(error));
                }
            }
        }
        board.end();
        for follower in followers {
            sum.add(follower.join().map_err(|_| anyhow::anyhow!("a follower panicked")).flatten()?);
        }
        sum.deaths = killer.join().map_err(|_| anyhow::anyhow!("the killer panicked")).flatten()?;
        failed.map_or(Ok(sum), Err)
    })
}

/// Keeps the figures of all runs up to date, until this run is over.
fn keep_sum(board: &Board, sum: &SumFile) -> anyhow::Result<()> {
    let mut written = Instant::now();
    while !board.is_over() {
        if written.elapsed() >= SUM_EVERY {
            sum.write(board.sum())?;
            written = Instant::now();
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Kills one guest's daemon after the other, at no particular moment of their work; returns how many.
fn kill(board: &Board) -> anyhow::Result<u64> {
    let mut deaths = 0;
    while !board.is_over() {
        if board.changes() < (deaths + 1) * CHANGES_PER_DEATH {
            thread::sleep(PAUSE);
            continue;
        }
        // A guest that is about to connect has none for a moment.
        let daemon = board.daemons[deaths as usize % GUESTS].swap(0, Ordering::Relaxed);
        let Some(daemon) = Pid::from_raw(daemon.cast_signed()) else {
            thread::sleep(PAUSE);
            continue;
        };
        match kill_process_group(daemon, Signal::KILL) {
            Ok(()) => {
                deaths += 1;
                board.deaths.store(deaths, Ordering::Relaxed);
            }
            // Its guest has just come to its end.
            Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno).context("killing a daemon"),
        }
    }
    Ok(deaths)
}
