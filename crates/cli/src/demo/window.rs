//! The second part of the demonstration: two guests and the host share one directory through DAX windows.
//!
//! The first guest reads a file with and without the window. Then both guests and the host map one file, add to the
//! same number concurrently, and each finds the messages of the others. [`inside`] runs in the guests, and [`shared`]
//! is the mapping of each side.

mod inside;
mod shared;

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use transom_vm::{
    Accelerator, Dax, GuestSpec, Qemu, Root, RunOutcome, Share, Stdio,
    packages::{Cache, OnStderr},
    run as run_guest,
    tools::Tools,
};

use super::{Row, STEP, tree};
pub(crate) use inside::DemoInside;
use inside::Findings;
use shared::{ADDITIONS, PARTIES, Shared};

const WINDOW_LEN: u64 = 64 << 20;
/// Length of the file that is read: enough to be visible in the size of the page cache.
const FILE_LEN: usize = 32 << 20;
/// Mount points of the directory in the guests, with and without the window.
const WITH: &str = "/mnt/window";
const WITHOUT: &str = "/mnt/plain";
const FILE: &str = "file";
const SHARED: &str = "shared";
/// The host's index among the parties; the guests have the following ones.
const HOST: usize = 0;

/// Runs the guests, with `daemon` serving the shares, and returns the rows of the table.
pub(super) fn rows(daemon: &Path) -> Result<Vec<Row>> {
    let folder = tempfile::Builder::new().prefix("transom-demo-").tempdir_in(on_disk())?;
    let sum = make_files(folder.path())?;
    let cache = Cache::locate()?;
    let report = OnStderr::default();
    let tools = Tools::new(&cache, &report);
    let program = tools.qemu_with_window(None)?;
    let kernel = tools.kernel(None)?;
    let accelerator = Accelerator::best(&program, &kernel, tools.cache());
    let vmm = Qemu::new(program, accelerator, tools.cache());
    let spec = |party: usize| -> Result<GuestSpec> {
        let share =
            |guest: &str, dax| Share { host: folder.path().to_owned(), guest: guest.into(), dax, ..Share::default() };
        let dax = Dax { window_len: WINDOW_LEN, mode: Default::default() };
        Ok(GuestSpec {
            kernel: kernel.clone(),
            agent: env::current_exe().context("cannot find this program's path")?,
            events: None,
            daemon: daemon.to_owned(),
            busybox: None,
            root: Root::Minimal,
            shares: vec![share(WITH, Some(dax)), share(WITHOUT, None)],
            command: ["/init".into(), inside::NAME.into(), party.to_string().into()].into(),
            env: Vec::new(),
            memory_mib: 512,
            cpus: 1,
            scratch: None,
            stdio: Stdio::default(),
            timeout: Some(2 * shared::WAIT_MAX),
            console: None,
            snapshots: None,
            directory: None,
            user: None,
            network: transom_vm::network::Network::Off,
            is_foreground: true,
        })
    };
    let specs = [spec(HOST + 1)?, spec(HOST + 2)?];

    let begun = Instant::now();
    let bar = ProgressBar::new_spinner();
    bar.set_message("two guests are reading and mapping files of one directory");
    bar.enable_steady_tick(STEP);
    // Each guest has its own thread, because the guest's processes die with the thread that started them.
    let (outcomes, host) = thread::scope(|scope| {
        let guests = specs.each_ref().map(|spec| scope.spawn(|| run_guest(spec, &vmm)));
        let host = Shared::open(&folder.path().join(SHARED))
            .and_then(|shared| shared.take_part(HOST, || guests.iter().any(|guest| guest.is_finished())));
        (guests.map(|guest| guest.join()), host)
    });
    bar.finish_and_clear();
    let time = begun.elapsed();
    let mut findings = Vec::new();
    for outcome in outcomes {
        let Ok(outcome) = outcome else { bail!("a guest's thread panicked") };
        findings.push(understood(&outcome.context("a guest with a window failed")?)?);
    }
    host.context("the host's mapping failed")?;
    compared(&findings, &sum, time, folder.path())
}

/// Parses what a guest printed.
fn understood(outcome: &RunOutcome) -> Result<Findings> {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    ensure!(
        outcome.exit_code == 0,
        "the command in a guest with a window failed with status {}: {stderr}",
        outcome.exit_code
    );
    serde_json::from_slice(&outcome.stdout).context("invalid output from the guest")
}

fn compared(findings: &[Findings], sum: &str, time: Duration, folder: &Path) -> Result<Vec<Row>> {
    let reader = findings.iter().find_map(|guest| guest.reading.as_ref()).context("no guest read the file")?;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let [with, without] = [&reader.with_window, &reader.without];
    let ratio = without.time.as_secs_f64() / with.time.as_secs_f64();
    let cached = |bytes| format!("equal to the host's; the guest's page cache grew by {}", mib(bytes));
    let what = |how| format!("read {} page by page, {how}", mib(FILE_LEN as u64));
    let mut rows = vec![
        Row::compared(&what("without DAX"), without.time, without.sum == sum, cached(without.cached_growth)),
        Row::compared(
            &what("with DAX"),
            with.time,
            with.sum == sum && with.cached_growth < without.cached_growth,
            format!("{}, {ratio:.1} times as fast", cached(with.cached_growth)),
        ),
    ];
    let shared = Shared::open(&folder.join(SHARED))?;
    let wanted = PARTIES as u64 * ADDITIONS;
    let is_right = shared.sum() == wanted;
    rows.push(Row::compared(
        "two guests and the host map one file, including boot",
        time,
        is_right,
        format!("{wanted} of {wanted} atomic additions counted, every side saw the others' stores"),
    ));
    Ok(rows)
}

/// Creates the file to read and the file to map; returns the checksum of the former.
fn make_files(folder: &Path) -> Result<String> {
    let mut state = 1_u64;
    let mut content = Vec::with_capacity(FILE_LEN);
    while content.len() < FILE_LEN {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        content.extend_from_slice(&state.to_le_bytes());
    }
    fs::write(folder.join(FILE), &content)?;
    File::create(folder.join(SHARED))?.set_len(shared::FILE_LEN)?;
    Ok(tree::checksum(&content))
}

/// Returns a directory on a disk, because files of some in-memory file systems cannot be mapped into a guest.
fn on_disk() -> PathBuf {
    let usual = Path::new("/var/tmp");
    if usual.is_dir() { usual.to_owned() } else { env::temp_dir() }
}
