//! Reads and writes of 4 KiB through the window, beside requests and beside the host's own file.
//!
//!     cargo build --release -p transom-daemon && cargo run --release -p transom-user --example dax -- [DIRECTORY [ROUNDS]]
//!
//! Two tables: files that fit the window, by one and four threads with a file each; and one file over windows of 1/16 to twice
//! its length, with what became of the windows. Each figure is a median over rounds, and each round goes to all subjects one after the other.

use std::{
    env,
    error::Error,
    fs,
    hint::black_box,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use transom_user::{
    daemon::Program,
    guest::{
        cache::{CacheMode, CacheOptions},
        dax::{Dax, DaxOptions},
        fs::{File, Fs, OpenOptions},
        session::Wishes,
    },
    mount::Mount,
    platform::Process,
};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
/// Of each of the files of the first table, and of the one of the second.
const FILE_BYTES: [u64; 2] = [64 * MIB, 128 * MIB];
const THREADS: [usize; 2] = [1, 4];
const BURST: Duration = Duration::from_millis(150);
/// A window settles before it is measured.
const SETTLE: Duration = Duration::from_millis(600);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Clone, Copy)]
struct Work {
    is_random: bool,
    is_write: bool,
}

impl Work {
    const ALL: [Self; 4] = [
        Self { is_random: false, is_write: false },
        Self { is_random: false, is_write: true },
        Self { is_random: true, is_write: false },
        Self { is_random: true, is_write: true },
    ];

    fn name(self) -> &'static str {
        match (self.is_random, self.is_write) {
            (false, false) => "sequential read",
            (false, true) => "sequential write",
            (true, false) => "random read",
            (true, true) => "random write",
        }
    }
}

/// Whom a table compares.
enum Subject {
    Host,
    Guest(Fs<Process>, #[allow(dead_code, reason = "keeps the daemon")] Mount),
}

enum Opened {
    Host(fs::File),
    Guest(File<Process>),
}

impl Opened {
    fn once(&self, work: Work, at: u64, block: &mut [u8]) {
        let done = match (self, work.is_write) {
            (Self::Host(file), false) => file.read_at(block, at).ok(),
            (Self::Host(file), true) => file.write_at(block, at).ok(),
            (Self::Guest(file), false) => file.read_at(at, block).ok(),
            (Self::Guest(file), true) => file.write_at(at, block).ok(),
        };
        assert_eq!(done, Some(BLOCK), "{} at {at}", work.name());
        black_box(block);
    }
}

impl Subject {
    fn guest(dir: &Path, window_bytes: Option<u64>) -> Result<Self> {
        let mut program = Program::transomd();
        // With a window the daemon has one by default.
        program.args.push(format!("--num-request-queues={}", THREADS[1]).into());
        if let Some(bytes) = window_bytes {
            let bytes = bytes.to_string();
            // A front end that maps beyond the end of a file and needs no barrier, as this one.
            let args = ["--tag=share", "--front-end=alioth", "--dax-policy=always", "--dax-window", &bytes];
            program.args.extend(args.map(Into::into));
        }
        let mount = Mount::builder().shared_dir(dir).daemon(program).connect()?;
        let options = CacheOptions { mode: CacheMode::None, ..CacheOptions::default() };
        let volume = mount.volume(Wishes::default(), options, DaxOptions { dax: Dax::Always, size_min_bytes: 0 })?;
        Ok(Self::Guest(Fs::new(Arc::new(volume)), mount))
    }

    fn open(&self, dir: &Path, name: &str, queue: usize) -> Result<Opened> {
        Ok(match self {
            Self::Host => Opened::Host(fs::File::options().read(true).write(true).open(dir.join(name))?),
            Self::Guest(fs, _) => {
                let options = OpenOptions::new().read(true).write(true);
                Opened::Guest(fs.with_queue(queue as u16).open(name, &options)?)
            }
        })
    }
}

/// Operations in a second by one thread for each file, each from a place of its own on.
fn burst(files: &[Opened], work: Work, file_bytes: u64, is_shared: bool, duration: Duration) -> f64 {
    let (barrier, blocks) = (Barrier::new(files.len()), file_bytes / BLOCK as u64);
    let run = |number: usize| {
        let (mut block, mut count) = (vec![0x42; BLOCK], 0_u64);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
        let mut next = if is_shared { blocks / files.len() as u64 * number as u64 } else { 0 };
        barrier.wait();
        let begun = Instant::now();
        while count % 16 != 0 || begun.elapsed() < duration {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            next = if work.is_random { random % blocks } else { (next + 1) % blocks };
            files[number].once(work, next * BLOCK as u64, &mut block);
            count += 1;
        }
        count as f64 / begun.elapsed().as_secs_f64()
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..files.len()).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it has asserted nothing")).sum()
    })
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The first table.
fn files_that_fit(dir: &Path, rounds: usize) -> Result<()> {
    let names: Vec<_> = (0..THREADS[1]).map(|number| format!("file{number}")).collect();
    for name in &names {
        fs::write(dir.join(name), vec![0x42; FILE_BYTES[0] as usize])?;
    }
    let subjects =
        [Subject::Host, Subject::guest(dir, None)?, Subject::guest(dir, Some(2 * THREADS[1] as u64 * FILE_BYTES[0]))?];
    println!("| 4 KiB | threads | host, op/s | requests, op/s | DAX, op/s | DAX / requests | host / DAX |");
    println!("|---|---|---|---|---|---|---|");
    for threads in THREADS {
        let opened = subjects.iter().map(|subject| {
            names[..threads].iter().enumerate().map(|(n, name)| subject.open(dir, name, n)).collect::<Result<Vec<_>>>()
        });
        let opened = opened.collect::<Result<Vec<_>>>()?;
        for work in Work::ALL {
            let mut figures = [(); 3].map(|()| Vec::new());
            for round in 0..=rounds {
                for (files, figures) in opened.iter().zip(&mut figures) {
                    let figure = burst(files, work, FILE_BYTES[0], false, BURST);
                    // The first round maps.
                    if round > 0 {
                        figures.push(figure);
                    }
                }
            }
            let [host, requests, dax] = figures.map(median);
            let name = work.name();
            let (gain, behind) = (dax / requests, host / dax);
            println!("| {name} | {threads} | {host:.0} | {requests:.0} | {dax:.0} | {gain:.1} | {behind:.2} |");
        }
    }
    Ok(())
}

/// The second table.
fn working_set(dir: &Path, rounds: usize) -> Result<()> {
    fs::write(dir.join("set"), vec![0x42; FILE_BYTES[1] as usize])?;
    let parts = [16, 4, 2, 1];
    let windows = parts.map(|part| FILE_BYTES[1] / part).into_iter().chain([2 * FILE_BYTES[1]]);
    let subjects: Vec<_> =
        [None].into_iter().chain(windows.map(Some)).map(|window| Subject::guest(dir, window)).collect::<Result<_>>()?;
    println!("\n| 4 KiB | threads | requests, op/s | 1/16 | 1/4 | 1/2 | 1 | 2 |\n|---|---|---|---|---|---|---|---|");
    for threads in THREADS {
        for work in Work::ALL {
            let mut figures = vec![Vec::new(); subjects.len()];
            let open =
                |subject: &Subject| (0..threads).map(|n| subject.open(dir, "set", n)).collect::<Result<Vec<_>>>();
            let opened = subjects.iter().map(open).collect::<Result<Vec<_>>>()?;
            for round in 0..=rounds {
                for (files, figures) in opened.iter().zip(&mut figures) {
                    let duration = if round == 0 { SETTLE } else { BURST };
                    let figure = burst(files, work, FILE_BYTES[1], true, duration);
                    if round > 0 {
                        figures.push(figure);
                    }
                }
            }
            let medians: Vec<_> = figures.into_iter().map(median).collect();
            let ratios: Vec<_> = medians[1..].iter().map(|figure| format!("{:.2}", figure / medians[0])).collect();
            println!("| {} | {threads} | {:.0} | {} |", work.name(), medians[0], ratios.join(" | "));
        }
    }
    println!();
    for subject in &subjects {
        if let Subject::Guest(fs, _) = subject
            && let Some(window) = fs.volume().window()
        {
            println!("{:?}", window.counts());
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let parent = args.next().unwrap_or_else(|| "/dev/shm".to_owned());
    let rounds = args.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let dir = tempfile::tempdir_in(parent)?;
    files_that_fit(dir.path(), rounds)?;
    working_set(dir.path(), rounds)
}
