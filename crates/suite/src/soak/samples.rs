//! The samples of a soak: a CSV file that a later run continues, the bound that they must keep, and a plot.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::processes::Usage;

/// What a daemon may use beyond the most that it used in the first tenth of the run: arenas of the allocator, tables
/// that grow once, files that are kept open for speed (256 where handles stand in for them).
pub(super) const SLACK: Usage = Usage { memory_kib: 8 << 10, descriptors: 320, threads: 8 };
/// Fewer samples of a rig show nothing.
const SAMPLES_MIN: usize = 20;

const HEADER: &str = "seconds,rig,memory_kib,descriptors,threads,events,steps\n";

/// A rig's daemon at a moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Since the soak began, in all of its runs.
    pub(super) seconds: f64,
    pub(super) rig: String,
    pub(super) usage: Usage,
    /// Deaths so far.
    pub(super) events: u64,
    /// Steps of its load so far.
    pub(super) steps: u64,
}

/// The file of samples, and all that it holds.
pub(super) struct Samples {
    file: File,
    path: PathBuf,
    pub(super) all: Vec<Sample>,
}

impl Samples {
    /// Opens the file in `dir`, or begins it. Errors: it cannot be read or written.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("samples.csv");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.with_context(|| path.display().to_string())?;
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if text.is_empty() {
            file.write_all(HEADER.as_bytes()).context("writing samples")?;
        } else if !text.ends_with('\n') {
            // The last run was killed as it wrote.
            file.write_all(b"\n").context("writing samples")?;
        }
        Ok(Self { file, path, all: text.lines().filter_map(parse).collect() })
    }

    /// Seconds that earlier runs took.
    pub(super) fn seconds(&self) -> f64 {
        self.all.last().map_or(0.0, |sample| sample.seconds)
    }

    /// Events and steps of a rig so far.
    pub(super) fn counts(&self, rig: &str) -> (u64, u64) {
        let last = self.all.iter().rev().find(|sample| sample.rig == rig);
        last.map_or((0, 0), |sample| (sample.events, sample.steps))
    }

    pub(super) fn add(&mut self, sample: Sample) -> anyhow::Result<()> {
        self.file.write_all(line(&sample).as_bytes()).context("writing samples")?;
        self.all.push(sample);
        Ok(())
    }

    /// Compares each rig's samples with those of the first tenth. Returns a line for each rig, and whether all are
    /// flat.
    pub(super) fn judge(&self, rigs: &[&str]) -> (Vec<String>, bool) {
        let end = self.seconds();
        let mut is_flat = true;
        let lines = rigs.iter().map(|rig| {
            let of_rig: Vec<&Sample> = self.all.iter().filter(|sample| sample.rig == *rig).collect();
            let tenth = of_rig.iter().take_while(|sample| sample.seconds <= end / 10.0).count();
            let (first, later) = of_rig.split_at(tenth.max(of_rig.len() / 10));
            let (events, steps) = self.counts(rig);
            let (base, most) = (most(first), most(later));
            let verdict = if of_rig.len() < SAMPLES_MIN {
                "too few samples to judge"
            } else if most.memory_kib <= base.memory_kib + SLACK.memory_kib
                && most.descriptors <= base.descriptors + SLACK.descriptors
                && most.threads <= base.threads + SLACK.threads
            {
                "flat"
            } else {
                is_flat = false;
                "GROWS"
            };
            format!(
                "{rig:8} {events:5} deaths {steps:9} steps; memory {} then {} KiB, descriptors {} then {}, threads {} \
                 then {}: {verdict}",
                base.memory_kib, most.memory_kib, base.descriptors, most.descriptors, base.threads, most.threads
            )
        });
        (lines.collect(), is_flat)
    }

    /// Writes the plot beside the file: one picture above the other for memory, descriptors and threads.
    pub(super) fn plot(&self, rigs: &[&str]) -> anyhow::Result<PathBuf> {
        let path = self.path.with_extension("svg");
        fs::write(&path, svg(&self.all, rigs)).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

fn most(samples: &[&Sample]) -> Usage {
    let of = |value: fn(&Usage) -> u64| samples.iter().map(|sample| value(&sample.usage)).max().unwrap_or(0);
    Usage {
        memory_kib: of(|usage| usage.memory_kib),
        descriptors: of(|usage| usage.descriptors),
        threads: of(|usage| usage.threads),
    }
}

fn line(sample: &Sample) -> String {
    let Sample { seconds, rig, usage, events, steps } = sample;
    let Usage { memory_kib, descriptors, threads } = usage;
    format!("{seconds:.1},{rig},{memory_kib},{descriptors},{threads},{events},{steps}\n")
}

/// Reads a line; `None` for the header, and for one that a killed run left unfinished.
fn parse(line: &str) -> Option<Sample> {
    let words: Vec<&str> = line.split(',').collect();
    let [seconds, rig, memory_kib, descriptors, threads, events, steps] = words.as_slice() else { return None };
    let usage = Usage {
        memory_kib: memory_kib.parse().ok()?,
        descriptors: descriptors.parse().ok()?,
        threads: threads.parse().ok()?,
    };
    let (seconds, rig) = (seconds.parse().ok()?, (*rig).to_owned());
    Some(Sample { seconds, rig, usage, events: events.parse().ok()?, steps: steps.parse().ok()? })
}

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 180.0;
const MARGIN: f64 = 60.0;
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];

/// What is drawn of a daemon's usage, by its title.
type Quantity = (&'static str, fn(&Usage) -> u64);

const QUANTITIES: [Quantity; 3] = [
    ("memory of the daemon, MiB", |usage| usage.memory_kib / 1024),
    ("descriptors", |usage| usage.descriptors),
    ("threads", |usage| usage.threads),
];

fn svg(samples: &[Sample], rigs: &[&str]) -> String {
    let (width, height) = (WIDTH + 2.0 * MARGIN, 3.0 * (HEIGHT + MARGIN));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let end = samples.last().map_or(1.0, |sample| sample.seconds.max(1.0));
    for (index, (title, value)) in QUANTITIES.iter().enumerate() {
        let top = 30.0 + index as f64 * (HEIGHT + MARGIN);
        let most = samples.iter().map(|sample| value(&sample.usage)).max().unwrap_or(0).max(1);
        let _ = write!(
            text,
            "<text x=\"{MARGIN}\" y=\"{}\">{title}</text>\n\
             <rect x=\"{MARGIN}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most}</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">0</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0} min</text>\n",
            top - 6.0,
            MARGIN - 6.0,
            top + 12.0,
            MARGIN - 6.0,
            top + HEIGHT,
            MARGIN + WIDTH,
            top + HEIGHT + 16.0,
            end / 60.0
        );
        for (rig, colour) in rigs.iter().zip(COLOURS) {
            let mut points = String::new();
            for sample in samples.iter().filter(|sample| sample.rig == *rig) {
                let (x, y) = (sample.seconds / end, value(&sample.usage) as f64 / most as f64);
                let _ = write!(points, "{:.1},{:.1} ", MARGIN + x * WIDTH, top + HEIGHT - y * HEIGHT);
            }
            let _ = writeln!(text, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>", points.trim_end());
        }
    }
    for (index, (rig, colour)) in rigs.iter().zip(COLOURS).enumerate() {
        let x = MARGIN + WIDTH - 240.0 + 90.0 * index as f64;
        let _ = writeln!(text, "<text x=\"{x}\" y=\"24\" fill=\"{colour}\">{rig}</text>");
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u32, memory_kib: u64) -> Sample {
        let usage = Usage { memory_kib, descriptors: 20, threads: 9 };
        Sample { seconds: seconds.into(), rig: "mount".into(), usage, events: 1, steps: 2 }
    }

    fn samples(memory_kib: impl Fn(u32) -> u64) -> (tempfile::TempDir, Samples) {
        let dir = tempfile::tempdir().unwrap();
        let mut samples = Samples::open(dir.path()).unwrap();
        (0..100).for_each(|second| samples.add(sample(second, memory_kib(second))).unwrap());
        (dir, samples)
    }

    #[test]
    fn what_does_not_grow_after_the_first_tenth_is_flat() {
        let (_dir, flat) = samples(|second| 10_000 + u64::from(second.min(8)) * 1000);
        assert!(flat.judge(&["mount"]).1);
        let (_dir, grows) = samples(|second| 10_000 + u64::from(second) * 200);
        let (lines, is_flat) = grows.judge(&["mount"]);
        assert!(!is_flat && lines[0].ends_with("GROWS"), "{lines:?}");
    }

    #[test]
    fn a_later_run_continues_and_ignores_an_unfinished_line() {
        let (dir, first) = samples(|_| 10_000);
        drop(first);
        let path = dir.path().join("samples.csv");
        let text = fs::read_to_string(&path).unwrap() + "99.5,mount,12";
        fs::write(&path, text).unwrap();
        let mut second = Samples::open(dir.path()).unwrap();
        assert_eq!((second.seconds(), second.counts("mount"), second.all.len()), (99.0, (1, 2), 100));
        second.add(sample(100, 1)).unwrap();
        assert_eq!(Samples::open(dir.path()).unwrap().all.len(), 101);
    }

    #[test]
    fn the_plot_has_a_line_for_each_rig_and_quantity() {
        let (_dir, samples) = samples(|_| 10_000);
        let text = fs::read_to_string(samples.plot(&["mount", "library"]).unwrap()).unwrap();
        assert_eq!(text.matches("<polyline").count(), 6);
    }
}
