//! `transom-cases`: runs the list of file-system cases on a directory, and compares the results of two runs; [`tools`]
//! are its other commands.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod tools;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use transom_conformance::report::{self, Report, Summary};
use transom_conformance::runner::{self, Directory, Subject};
use transom_conformance::split::{self, Mounts};
use transom_conformance::{cases, compare, pjdfstest};

/// File-system cases that run on any directory; without a command, runs them.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the differences between two runs; exit status 1 if one is not in the allow list.
    Compare(Compare),
    /// Runs the pjdfstest suite on a directory, as root, and prints its results in the same form.
    Pjdfstest(Suite),
    /// Does random things to one file and compares it with a model; exit status 1 if they differ.
    Fsx(tools::Fsx),
    /// Runs random programs of two callers on a mount and in a bare directory, as root; exit status 1 if they differ.
    TwoCallers(tools::Programs),
    /// One of the two: serves requests from standard input. For two-callers.
    #[command(hide = true)]
    Caller {
        /// User and group.
        id: u32,
    },
    #[command(flatten)]
    Tool(tools::Tool),
}

#[derive(Args)]
struct Run {
    /// The directory under test; cases run in a fresh directory under it.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The same directory by another mount: each case acts in `--dir` and looks here.
    #[arg(long, value_name = "DIR")]
    looking_dir: Option<PathBuf>,
    /// What was done must be seen at once, not within some seconds.
    #[arg(long, requires = "looking_dir")]
    strict: bool,
    /// Only cases whose name contains this; may be given several times.
    #[arg(long, value_name = "SUBSTR")]
    filter: Vec<String>,
    /// Prints the names of the cases and runs none.
    #[arg(long)]
    list: bool,
    /// Prints a JSON object for each case instead of a line.
    #[arg(long)]
    json: bool,
    /// How many cases run at the same time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// The bound on the time of a case, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
}

#[derive(Args)]
struct Suite {
    /// The directory under test.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The suite's executable.
    #[arg(long, value_name = "FILE", conflicts_with = "cache")]
    executable: Option<PathBuf>,
    /// Builds the suite into this folder unless it is there.
    #[arg(long, value_name = "DIR", required_unless_present = "executable")]
    cache: Option<PathBuf>,
    /// Builds only, and prints the executable's path.
    #[arg(long, requires = "cache")]
    install: bool,
    /// In a minimal guest: adds the users that the suite needs to /etc/passwd and /etc/group.
    #[arg(long)]
    add_users: bool,
}

#[derive(Args)]
struct Compare {
    /// Results from the bare directory.
    oracle: PathBuf,
    /// Results from a client of it.
    result: PathBuf,
    /// Known differences, a line each: `CASE WHAT REASON`; may be given several times.
    #[arg(long, value_name = "FILE")]
    allow: Vec<PathBuf>,
    /// The second run was filtered: cases that it lacks are no difference.
    #[arg(long)]
    part: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Compare(args)) => compare(&args),
        Some(Command::Pjdfstest(args)) => suite(&args),
        Some(Command::Fsx(args)) => tools::fsx(&args),
        Some(Command::TwoCallers(args)) => tools::programs(&args),
        Some(Command::Caller { id }) => transom_conformance::programs::serve(id).map(|()| true),
        Some(Command::Tool(tool)) => tools::run(&tool),
        None => run(&cli.run),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("transom-cases: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Run) -> anyhow::Result<bool> {
    let is_chosen = |name: &str| args.filter.is_empty() || args.filter.iter().any(|part| name.contains(part.as_str()));
    let chosen: Vec<_> = cases::all().filter(|case| is_chosen(case.name)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no case has a name like that");
    if args.list {
        chosen.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    prepare_process();
    let place = tempfile::Builder::new().prefix("transom-cases-").tempdir_in(&args.dir);
    let place = place.with_context(|| format!("a directory in {}", args.dir.display()))?;
    let (subject, chosen, mut reports): (Arc<dyn Subject>, _, _) = match &args.looking_dir {
        None => (Arc::new(Directory::new(place.path())?), chosen, Vec::new()),
        Some(looking) => {
            let looking = looking.join(place.path().file_name().context("a temporary directory has a name")?);
            let (chosen, whole) = split::divide(chosen);
            (Arc::new(Mounts::new(place.path(), &looking, args.strict)?), chosen, whole)
        }
    };
    reports.iter().for_each(|report| tell(report, args.json));
    reports.extend(runner::run(&subject, &chosen, args.jobs, Duration::from_secs(args.limit), &mut |report| {
        tell(report, args.json);
    }));
    let summary = Summary::of(&reports);
    if args.json {
        let Summary { passed, failed, skipped } = summary;
        println!("{}", serde_json::json!({ "passed": passed, "failed": failed, "skipped": skipped }));
    } else {
        println!("{summary}");
    }
    if summary.failed == 0 {
        place.close().context("removing what the cases left")?;
    }
    Ok(summary.failed == 0)
}

fn suite(args: &Suite) -> anyhow::Result<bool> {
    let executable = match (&args.executable, &args.cache) {
        (Some(executable), _) => executable.clone(),
        (None, Some(cache)) => pjdfstest::install(cache)?,
        (None, None) => anyhow::bail!("neither --executable nor --cache"),
    };
    if args.install {
        println!("{}", executable.display());
        return Ok(true);
    }
    if args.add_users {
        pjdfstest::add_users()?;
    }
    let reports = pjdfstest::run_in(&executable, &args.dir)?;
    reports.iter().for_each(|report| tell(report, false));
    let summary = Summary::of(&reports);
    println!("{summary}");
    Ok(summary.failed == 0)
}

fn tell(report: &Report, is_json: bool) {
    let line = if is_json {
        serde_json::to_string(report).expect("a report is strings, which JSON can hold")
    } else {
        report.to_string()
    };
    let mut out = std::io::stdout().lock();
    // A reader that has gone away is no reason to stop: the exit status tells the result too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Room for a thousand open files in each of several cases, and no core files of children that die on purpose.
fn prepare_process() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let files = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: files.maximum, maximum: files.maximum };
    // A lower limit shows in the one case that needs more, by name.
    let _ = setrlimit(Resource::Nofile, wanted);
    let cores = getrlimit(Resource::Core);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: cores.maximum });
}

fn compare(args: &Compare) -> anyhow::Result<bool> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let parse = |path| report::parse(&read(path)?).with_context(|| path.display().to_string());
    let mut allowed = Vec::new();
    for path in &args.allow {
        allowed.extend(compare::parse_allowed(&read(path)?).with_context(|| path.display().to_string())?);
    }
    let (oracle, result) = (parse(&args.oracle)?, parse(&args.result)?);
    let differences = compare::differences(&oracle, &result, &allowed, args.part);
    for difference in &differences {
        let verdict = if difference.allowed.is_some() { "ALLOWED" } else { "DIFFERENT" };
        println!("{verdict} {} {}", difference.case, difference.what);
        println!("    expected: {}", difference.expected);
        println!("    found:    {}", difference.found);
        if let Some(reason) = &difference.allowed {
            println!("    because:  {reason}");
        }
    }
    let different = differences.iter().filter(|difference| difference.allowed.is_none()).count();
    println!("{} compared, {different} different, {} allowed", oracle.len(), differences.len() - different);
    Ok(different == 0)
}
