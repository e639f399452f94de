//! What the guest library executes for one operation, over a daemon that stands still meanwhile.
//!
//! The library runs in a process of its own, which [`serve`] is: it does the operation once for each byte on its
//! standard input. That process and the daemon are both traced and take turns: the daemon runs while all threads of
//! the library wait. So neither the machine's load nor the daemon's speed decides whether the library waits.

use std::{
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, ensure};
use clap::ValueEnum as _;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use tempfile::TempDir;
use transom_frontend::message::HANG_AFTER;
use transom_user::share::Share;
use transom_vm::CacheMode;

use super::{
    Counts, PLACEMENT, Row, TRACED_WARM_UP, WARM_UP,
    trace::{Progress, Tracer},
    with_fixed_addresses,
};
use crate::{
    daemon::{Candidate, Daemon},
    guests::user::settings,
    library::{self, Operation, Subject as _, ThroughLibrary},
    process::on_core,
    progress,
};

/// Memory that the library shares with the daemon.
const ARENA_BYTES: usize = 32 << 20;
/// Orders to [`serve`].
const OPERATE: u8 = b'o';
/// What an order itself costs is counted by this one.
const DO_NOTHING: u8 = b'n';

/// Does `operation` over the daemon at `socket` for each [`OPERATE`] on standard input, and answers each order with a
/// byte.
pub fn serve(socket: &Path, operation: Operation) -> anyhow::Result<()> {
    let share = Share::builder().socket(socket).arena_len_bytes(ARENA_BYTES).settings(settings(PLACEMENT));
    let library = ThroughLibrary::new(share.connect()?)?;
    let mut worker = library.worker(operation, 0)?;
    let mut order = [0];
    while rustix::io::read(rustix::stdio::stdin(), &mut order)? > 0 {
        if order == [OPERATE] {
            worker.once()?;
        }
        rustix::io::write(rustix::stdio::stdout(), &order)?;
    }
    Ok(())
}

/// What to count.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The program with the library, which has the command `bench cost-library`.
    pub program: &'a Path,
    /// The daemon.
    pub candidate: Candidate,
    /// What the library does.
    pub operations: Vec<Operation>,
    /// Each operation is counted so often; the medians are told.
    pub rounds: u32,
}

/// Returns what can be counted: all but the copy of a mebibyte, whose loop would be traced word by word.
pub fn operations() -> Vec<Operation> {
    Operation::value_variants().iter().copied().filter(|operation| *operation != Operation::Read1mCopied).collect()
}

/// Counts what `plan` says, in a fresh directory below `parent`.
pub fn measure(plan: &Plan<'_>, parent: &Path) -> anyhow::Result<Vec<Row>> {
    let Plan { program, candidate, operations, rounds } = plan;
    let bar = progress::bar(operations.len() as u64);
    let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    library::populate(shared.path())?;
    let mut rows = Vec::new();
    for &operation in operations {
        bar.set_message(format!("guest library {}", operation.name()));
        let mut run = Run::start(program, candidate, shared.path(), operation)?;
        let counts = run
            .count(*rounds)
            .with_context(|| format!("guest library {}; the daemon wrote: {}", operation.name(), run.daemon.log()))?;
        rows.push(Row { operation: operation.name(), daemon: "guest library".to_owned(), depth: 1, counts });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// The library's process and its daemon.
struct Run {
    library: Child,
    answers: ChildStdout,
    // Dropped after the library has ended.
    daemon: Daemon,
    _dir: TempDir,
}

/// Both under control.
struct Tracers {
    library: Tracer,
    daemon: Tracer,
}

impl Run {
    fn start(program: &Path, candidate: &Candidate, shared: &Path, operation: Operation) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let placement = PLACEMENT.where_possible();
        let daemon =
            with_fixed_addresses(|| Daemon::start(candidate, shared, CacheMode::Auto, placement, dir.path()))??;
        let mut command = Command::new(program);
        command.args(["bench", "cost-library"]).arg(&daemon.socket).arg(operation.name());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = || on_core(placement.guest_core(), || command.spawn());
        let mut library = with_fixed_addresses(start)??.with_context(|| format!("starting {}", program.display()))?;
        let answers = library.stdout.take().context("the library's standard output")?;
        Ok(Self { library, answers, daemon, _dir: dir })
    }

    fn count(&mut self, rounds: u32) -> anyhow::Result<Counts> {
        for _ in 0..WARM_UP {
            self.order(OPERATE)?;
            self.answers.read_exact(&mut [0]).context("the library ended")?;
        }
        fcntl_setfl(&self.answers, fcntl_getfl(&self.answers)? | OFlags::NONBLOCK)?;
        let mut tracers =
            Tracers { library: Tracer::attach(self.library.id())?, daemon: Tracer::attach(self.daemon.process.id())? };
        for _ in 0..TRACED_WARM_UP {
            self.traced(DO_NOTHING, &mut tracers)?;
            self.traced(OPERATE, &mut tracers)?;
        }
        let mut all = Vec::new();
        for _ in 0..rounds.max(1) {
            let nothing = self.traced(DO_NOTHING, &mut tracers)?;
            all.push(self.traced(OPERATE, &mut tracers)?.without(&nothing));
        }
        Ok(Counts::medians(&all))
    }

    /// Has one order carried out, and returns what the library executed for it.
    fn traced(&mut self, order: u8, tracers: &mut Tracers) -> anyhow::Result<Counts> {
        let before = tracers.library.counts().clone();
        let begun = Instant::now();
        self.order(order)?;
        loop {
            while tracers.library.run()? != Progress::Waits {}
            match rustix::io::read(&self.answers, &mut [0]) {
                Ok(1..) => return Ok(tracers.library.counts().since(&before)),
                Ok(0) => anyhow::bail!("the library ended"),
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error).context("reading the library's answer"),
            }
            while tracers.daemon.run()? != Progress::Waits {}
            ensure!(begun.elapsed() < 10 * HANG_AFTER, "no answer for {} s", 10 * HANG_AFTER.as_secs());
        }
    }

    fn order(&mut self, order: u8) -> anyhow::Result<()> {
        let stdin = self.library.stdin.as_mut().context("the library's standard input")?;
        stdin.write_all(&[order]).context("the library ended")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It ends with its input. A library that hangs is killed.
        drop(self.library.stdin.take());
        let _ = self.library.kill();
        let _ = self.library.wait();
    }
}
