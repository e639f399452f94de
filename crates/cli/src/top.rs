//! `transom top`: shows what daemons do, in a live table or once.

mod screen;
mod source;
mod table;

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Error, Result};
use clap::Args;
use source::Source;
use table::Sort;

const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// A shorter interval would mainly measure the cost of reading.
const INTERVAL_MIN_S: f64 = 0.1;
const INTERVAL_MAX_S: f64 = 3600.0;

/// Watch what daemons do: requests, throughput and latencies by operation
///
/// Rates are those of the last interval; totals and latencies are those since the daemon started. Keys: s sorts by the
/// next column, q quits. If the output is not a terminal, one table is printed.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Top {
    /// The metrics socket of a daemon, as passed to its --metrics-socket; may be repeated
    #[arg(value_name = "SOCKET", required = true)]
    sockets: Vec<PathBuf>,

    /// Seconds between two readings; fractions are allowed [default: 1]
    #[arg(long, short = 'i', value_name = "SECONDS", value_parser = parse_interval)]
    interval: Option<Duration>,

    /// Print one table and exit; without --interval, rates are averages since the daemon started
    #[arg(long, short = '1')]
    once: bool,

    /// Print all metrics as one line of JSON for each socket, and exit
    #[arg(long, conflicts_with = "interval")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  A daemon reports metrics if it has a metrics socket:
    transomd --socket-path /run/share.sock --shared-dir /srv/share --metrics-socket /run/share.metrics &
    transom top /run/share.metrics

  The daemon of a guest that `transom run` starts:
    transom run --share DIR --daemon-arg --metrics-socket=/tmp/metrics -- COMMAND

  One table with the rates of the next ten seconds:
    transom top --once --interval 10 /run/share.metrics

  The time spent in each operation:
    transom top --json /run/share.metrics | jq '.report.operations[] | {operation, duration_sum_ns}'

Only root and the user that runs the daemon can read the socket. docs/metrics.md describes the metrics.";

impl Top {
    pub(crate) fn execute(self) -> ExitCode {
        let mut sources: Vec<_> = self.sockets.iter().map(|path| Source::new(path)).collect();
        let result = if self.json {
            print_json(&mut sources)
        } else if self.once {
            print_table(&mut sources, self.interval)
        } else if io::stdout().is_terminal() {
            first_reading(&mut sources)
                .and_then(|()| screen::watch(&mut sources, self.interval.unwrap_or(INTERVAL_DEFAULT)))
        } else {
            print_table(&mut sources, Some(self.interval.unwrap_or(INTERVAL_DEFAULT)))
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            // As in `transom top … | head -1`: the reader needs no more.
            Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("transom: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Reads every daemon once. An error now is more likely a wrong path than a daemon that is about to start.
fn first_reading(sources: &mut [Source]) -> Result<()> {
    sources.iter_mut().try_for_each(|source| source.read().map(drop))
}

/// Prints one table for each of `sources`, with rates over `interval`, or since the start of its daemon.
fn print_table(sources: &mut [Source], interval: Option<Duration>) -> Result<()> {
    first_reading(sources)?;
    if let Some(interval) = interval {
        thread::sleep(interval);
        first_reading(sources)?;
    }
    let mut out = io::stdout().lock();
    for (index, source) in sources.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        for line in table::block(source, Sort::default()) {
            writeln!(out, "{}", line.text)?;
        }
    }
    Ok(())
}

fn print_json(sources: &mut [Source]) -> Result<()> {
    let mut out = io::stdout().lock();
    for source in sources {
        let line = serde_json::json!({ "socket": source.path().to_string_lossy(), "report": source.read()? });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn is_broken_pipe(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (INTERVAL_MIN_S..=INTERVAL_MAX_S).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected a number of seconds from {INTERVAL_MIN_S} to {INTERVAL_MAX_S}")),
    }
}
