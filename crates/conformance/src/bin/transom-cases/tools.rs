//! The commands beside the list of cases: the exerciser of one file, and the tools of coherence tests.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use transom_conformance::{
    compare,
    fsx::{self, Limits, Settings},
    programs, tools,
};

#[derive(Args)]
pub(crate) struct Fsx {
    /// Directories that show the same files, as two mounts of one share do
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Ends after so many seconds
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Ends after so many operations
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    operations: u64,
    /// Repeats an earlier run [default: a new one]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Leaves an operation out; may be given several times
    #[arg(long, value_name = "OPERATION", value_parser = fsx::NAMES)]
    without: Vec<String>,
    /// Maps nothing in the N-th directory, counted from 1; may be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    unmapped: Vec<u64>,
    /// The largest file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 5 << 20,
        value_parser = clap::value_parser!(u64).range(1 << 16..=1 << 30))]
    size_max: u64,
    /// The largest read or write, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 17,
        value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    len_max: u64,
    /// Prints each operation before it is done
    #[arg(long)]
    verbose: bool,
}

#[derive(Args)]
pub(crate) struct Programs {
    /// The bare directory, on the file system of the share
    #[arg(long, value_name = "DIR")]
    bare: PathBuf,
    /// The shared directory on the host
    #[arg(long, value_name = "DIR")]
    share: PathBuf,
    /// Where the share is mounted
    #[arg(value_name = "DIR")]
    client: PathBuf,
    /// Runs so many programs
    #[arg(long, value_name = "N", default_value_t = 1000)]
    programs: u64,
    /// The number of the first program
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Repeats an earlier run [default: a new one]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Known differences, a line each: `CASE WHAT REASON`; may be given several times
    #[arg(long, value_name = "FILE")]
    allow: Vec<PathBuf>,
}

/// A number in a file.
#[derive(Args)]
pub(crate) struct SubjectArgs {
    /// A file that reaches beyond the offset
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the number of 8 bytes lies, a multiple of 8
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Gives up after so many seconds
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
}

/// Data in a file.
#[derive(Args)]
pub(crate) struct Stretch {
    /// A file that reaches beyond the data
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the data begin
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// How many bytes
    #[arg(long, value_name = "BYTES")]
    len: u64,
    /// Which data
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Programs for both sides of a mapping.
#[derive(Subcommand)]
#[expect(clippy::enum_variant_names, reason = "the names of the commands")]
pub(crate) enum Tool {
    /// Adds 1 to a number in a shared mapping, atomically, N times; prints the last value
    MapCounter {
        #[command(flatten)]
        place: SubjectArgs,
        /// How often
        #[arg(long, value_name = "N")]
        count: u64,
    },
    /// Waits until a number in a shared mapping is at least N; prints it
    MapWatch {
        #[command(flatten)]
        place: SubjectArgs,
        /// The number
        #[arg(long, value_name = "N")]
        value: u64,
    },
    /// Sets a number through a shared mapping
    MapSet {
        #[command(flatten)]
        place: SubjectArgs,
        /// The number
        #[arg(long, value_name = "N")]
        value: u64,
    },
    /// Takes N turns with another side through a shared mapping; prints nanoseconds for each round
    MapPingPong {
        #[command(flatten)]
        place: SubjectArgs,
        /// How many rounds; the number begins as 0
        #[arg(long, value_name = "N")]
        rounds: u64,
        /// Begins; the other side waits
        #[arg(long)]
        first: bool,
    },
    /// Stores data through a shared mapping
    MapFill(Stretch),
    /// Compares, through a shared mapping, what map-fill stored; exit status 1 if it differs
    MapVerify(Stretch),
}

/// A seed, which has to differ from the last one, no more.
fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64 >> 10)
}

/// Runs programs of two callers; false where they differ from the bare directory.
pub(crate) fn programs(args: &Programs) -> anyhow::Result<bool> {
    let mut allowed = Vec::new();
    for path in &args.allow {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        allowed.extend(compare::parse_allowed(&text).with_context(|| path.display().to_string())?);
    }
    let this = std::env::current_exe().context("finding this executable")?;
    let settings = programs::Settings {
        bare: args.bare.canonicalize().with_context(|| args.bare.display().to_string())?,
        client: args.client.canonicalize().with_context(|| args.client.display().to_string())?,
        share: args.share.canonicalize().with_context(|| args.share.display().to_string())?,
        programs: args.programs,
        first: args.first,
        seed: args.seed.unwrap_or_else(seed),
        allowed,
        caller: vec![this.to_string_lossy().into_owned(), "caller".to_owned()],
    };
    // First, for the case that a signal ends the run.
    println!("two-callers: seed {}", settings.seed);
    let summary = programs::run(&settings, &mut |finding| println!("{finding}"))?;
    println!("{summary}, seed {}", settings.seed);
    Ok(summary.findings.is_empty())
}

/// Runs the exerciser; false where file and model differ.
pub(crate) fn fsx(args: &Fsx) -> anyhow::Result<bool> {
    let settings = Settings {
        directories: args.directories.clone(),
        seed: args.seed.unwrap_or_else(seed),
        time: Duration::from_secs(args.seconds),
        operations: args.operations,
        without: args.without.clone(),
        unmapped: args.unmapped.iter().map(|&number| number as usize - 1).collect(),
        limits: Limits { size_max: args.size_max, len_max: args.len_max.min(args.size_max) },
        is_verbose: args.verbose,
    };
    // First, for the case that a signal ends the run.
    println!("fsx: seed {}", settings.seed);
    match fsx::run(&settings) {
        Ok(summary) => {
            println!("fsx: {summary}");
            Ok(true)
        }
        Err(error) => match error.downcast::<fsx::Mismatch>() {
            Ok(mismatch) => {
                println!("fsx: {mismatch}");
                Ok(false)
            }
            Err(error) => Err(error),
        },
    }
}

/// Runs one program; false where data differ.
pub(crate) fn run(tool: &Tool) -> anyhow::Result<bool> {
    let limit = |place: &SubjectArgs| Duration::from_secs(place.seconds);
    match tool {
        Tool::MapCounter { place, count } => println!("{}", tools::count(&place.file, place.offset, *count)?),
        Tool::MapWatch { place, value } => {
            println!("{}", tools::watch(&place.file, place.offset, *value, limit(place))?);
        }
        Tool::MapSet { place, value } => tools::set(&place.file, place.offset, *value)?,
        Tool::MapPingPong { place, rounds, first } => {
            println!("{}", tools::ping_pong(&place.file, place.offset, *rounds, *first, limit(place))?.as_nanos());
        }
        Tool::MapFill(Stretch { file, offset, len, seed }) => tools::fill(file, *offset, *len, *seed)?,
        Tool::MapVerify(Stretch { file, offset, len, seed }) => {
            if let Err(error) = tools::verify(file, *offset, *len, *seed) {
                println!("{}: {error:#}", file.display());
                return Ok(false);
            }
        }
    }
    Ok(true)
}
