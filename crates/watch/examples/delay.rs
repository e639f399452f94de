//! Measures how long after a change's system call has returned a reader has its event.
//!
//! usage: `cargo run --release -p transom-watch --example delay -- DIR [CHANGES]`
//!
//! One thread creates and removes directories in DIR, at pauses of a millisecond, and a second one reads as the daemon
//! does, with the filter of a tree. "idle" is that alone; "loaded" has two more threads that create and remove files as
//! fast as they can. An event that is there before the call returns has a delay of 0.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use transom_watch::{Change, ChangeKind, Consumer, Options, Strength, Tree, Watch, WatchError, Watcher};

/// The pause between two changes.
const PAUSE: Duration = Duration::from_millis(1);
/// How long an event may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);
const LOAD_THREADS: usize = 2;

/// What the reader has seen, and when.
enum Seen {
    Created(Vec<u8>, Instant),
    Overflow,
    Ended(WatchError),
}

struct Stopwatch(mpsc::Sender<Seen>);

impl Consumer for Stopwatch {
    fn changed(&mut self, change: &Change<'_>) {
        let now = Instant::now();
        if let (ChangeKind::Created, Some(place)) = (change.kind, change.place)
            && place.name.starts_with(b"measured-")
        {
            let _ = self.0.send(Seen::Created(place.name.into(), now));
        }
    }

    fn overflowed(&mut self) {
        let _ = self.0.send(Seen::Overflow);
    }

    fn ended(&mut self, error: WatchError) {
        let _ = self.0.send(Seen::Ended(error));
    }
}

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(dir) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: delay DIR [CHANGES]");
        return ExitCode::FAILURE;
    };
    let count = arguments.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(2000);
    for load in [0, LOAD_THREADS] {
        if let Err(error) = measure(&dir, count, load) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(dir: &Path, count: usize, load: usize) -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in(dir)?;
    let root = fs::File::open(dir.path())?;
    let mut watch = Watch::open(&root, &Options::default())?;
    if watch.strength() != Strength::FileSystem {
        watch.hold(1, dir.path())?;
    }
    let what = watch.strength();
    let (sender, seen) = mpsc::channel();
    let _watcher = Watcher::start(watch, Tree::new(&root).ok(), Stopwatch(sender))?;

    let is_over = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> =
        (0..load).map(|number| spawn_load(dir.path().join(format!("load{number}")), &is_over)).collect();
    let (mut delays, mut overflows, mut at) = (Vec::new(), 0, 0);
    while delays.len() < count {
        at += 1;
        let path = dir.path().join(format!("measured-{at}"));
        fs::create_dir(&path)?;
        let returned = Instant::now();
        match seen.recv_timeout(PATIENCE)? {
            Seen::Created(name, when) if path.file_name().is_some_and(|it| it.as_encoded_bytes() == name) => {
                delays.push(when.saturating_duration_since(returned));
            }
            Seen::Created(..) => {}
            Seen::Overflow => overflows += 1,
            Seen::Ended(error) => return Err(error.into()),
        }
        fs::remove_dir(&path)?;
        thread::sleep(PAUSE);
    }
    is_over.store(true, Relaxed);
    let changes: u64 = loads.into_iter().map(|load| load.join().unwrap_or_default()).sum();

    delays.sort_unstable();
    let quantile = |share: f64| delays[((count - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{}: {count} changes, delay p50 {:.0} us, p90 {:.0} us, p99 {:.0} us, max {:.0} us; {overflows} overflows, \
         {changes} changes by others ({what})",
        if load == 0 { "idle" } else { "loaded" },
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(1.0),
    );
    Ok(())
}

/// Creates and removes files until it is over. Returns the number of changes.
fn spawn_load(dir: PathBuf, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    let is_over = is_over.clone();
    thread::spawn(move || {
        let mut changes = 0;
        if fs::create_dir(&dir).is_err() {
            return 0;
        }
        while !is_over.load(Relaxed) {
            let path = dir.join((changes % 64).to_string());
            changes += u64::from(fs::write(&path, b"x").is_ok()) + u64::from(fs::remove_file(&path).is_ok());
        }
        changes
    })
}
