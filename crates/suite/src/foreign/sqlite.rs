//! SQLite in WAL mode: killed writers lose no committed row, and the database stays intact.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context as _;

use super::{Outcome, Test, root, text};

const DATABASE: &str = "/share/rows.db";
const ROUNDS: u32 = 12;
const WRITERS: u32 = 3;
/// A writer is killed after this many acknowledged rows at most.
const ROWS_MAX: u32 = 40;

/// Rows that a writer of a round had acknowledged when it was killed.
struct Killed {
    round: u32,
    writer: u32,
    rows: u32,
}

/// Runs the rounds at `share`. The checks are made there and, after the last round, at `bare`, the directory that is
/// shared.
pub(super) fn run(root: &root::Root, share: &Path, bare: &Path, seed: u64) -> anyhow::Result<Vec<Test>> {
    let schema = "PRAGMA journal_mode=WAL; CREATE TABLE rows (round INT, writer INT, row INT);";
    let made = root.run(share, &["sqlite3", DATABASE, schema])?;
    anyhow::ensure!(made.status.success(), "making the database: {}", text(&made));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut tests, mut all) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        all.extend(round_of(root, share, round, &mut random)?);
        tests.push(check(root, share, &format!("round {round}"), &all, seed)?);
    }
    tests.push(check(root, bare, "on the host", &all, seed)?);
    Ok(tests)
}

/// Lets the writers of one round run side by side until each is killed.
fn round_of(root: &root::Root, share: &Path, round: u32, random: &mut fastrand::Rng) -> anyhow::Result<Vec<Killed>> {
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (rows, pause_us) = (random.u32(1..=ROWS_MAX), random.u64(0..2000));
                scope.spawn(move || write_until_killed(root, share, round, writer, rows, pause_us))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect()
    })
}

/// Inserts rows until `rows` are acknowledged, asks for more without waiting, and kills the writer in the middle.
fn write_until_killed(
    root: &root::Root,
    share: &Path,
    round: u32,
    writer: u32,
    rows: u32,
    pause_us: u64,
) -> anyhow::Result<Killed> {
    let mut command = root.command(share, &["sqlite3", "-batch", DATABASE]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let acknowledged = insert(&mut child, round, writer, rows, pause_us);
    // `unshare` takes its process down with it; the pipes' ends show that it is gone.
    child.kill()?;
    child.wait()?;
    Ok(Killed { round, writer, rows: acknowledged? })
}

fn insert(child: &mut Child, round: u32, writer: u32, rows: u32, pause_us: u64) -> anyhow::Result<u32> {
    let mut requests = child.stdin.take().context("a pipe to the writer")?;
    let mut answers = BufReader::new(child.stdout.take().context("a pipe from the writer")?).lines();
    writeln!(requests, ".timeout 60000\nPRAGMA synchronous=NORMAL;")?;
    let send = |row: u32, to: &mut dyn std::io::Write| {
        writeln!(to, "INSERT INTO rows VALUES ({round}, {writer}, {row});\nSELECT 'row ' || {row};")
    };
    for row in 0..rows {
        send(row, &mut requests)?;
        let answer = answers.next().context("the writer ended early")??;
        anyhow::ensure!(answer == format!("row {row}"), "the writer said {answer:?} to row {row}");
    }
    (rows..rows + 50).try_for_each(|row| send(row, &mut requests))?;
    thread::sleep(Duration::from_micros(pause_us));
    Ok(rows)
}

/// The database is whole and has every acknowledged row.
fn check(root: &root::Root, share: &Path, name: &str, killed: &[Killed], seed: u64) -> anyhow::Result<Test> {
    let wanted: Vec<String> = killed
        .iter()
        .map(|k| format!("(round = {} AND writer = {} AND row < {})", k.round, k.writer, k.rows))
        .collect();
    let count: u32 = killed.iter().map(|k| k.rows).sum();
    let query = format!("PRAGMA integrity_check; SELECT count(*) FROM rows WHERE {};", wanted.join(" OR "));
    let output = root.run(share, &["sqlite3", "-cmd", ".timeout 60000", DATABASE, &query])?;
    let mut test = Test::of(name, &output);
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && printed != format!("ok\n{count}\n") {
        test.outcome =
            Outcome::Failed(format!("{count} rows were committed; the check printed {printed:?}; --seed {seed}"));
    }
    Ok(test)
}
