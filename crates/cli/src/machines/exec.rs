//! `transom exec`: a command in a machine that stays.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::json;
use transom_vm::{
    Error, Result,
    keep::{self, CallOptions, Called, CallerStreams, Machine},
};

use crate::{
    run::values::{Tty, parse_seconds, parse_user, parse_variable, parse_workdir},
    tell::tell,
    usage::RUN_FAILED,
};

/// The exit status of a command that took too long.
const TIMED_OUT: u8 = 124;

/// Run a command in a machine that `transom run --keep` has started
///
/// Passes standard input, standard output, standard error and the exit status through. Without COMMAND, starts a shell.
/// Several commands can run at once. What COMMAND leaves running goes on until the machine is stopped; its output is
/// thrown away. Ctrl-C ends the command, not the machine.
#[derive(Debug, Args)]
#[command(after_long_help = STATUSES)]
pub(crate) struct Exec {
    /// The machine
    name: String,

    /// The working directory, which is made if it is missing [default: that of the machine]
    #[arg(long, short = 'w', value_name = "PATH", value_parser = parse_workdir)]
    workdir: Option<PathBuf>,

    /// Run the command as this user of the guest [default: the user of the machine]
    ///
    /// Numbers, or, in a machine with --root, names of the root's /etc/passwd and /etc/group. Without GROUP, the user's
    /// own. If an ordinary user of the host has started the machine, other users than that of the machine can change
    /// nothing in its shares.
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,

    /// Set an environment variable, beside those of the machine; may be repeated
    ///
    /// NAME alone passes on the value that it has here.
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,

    /// Give the command a terminal; -t alone means always, `auto` does if standard input and output are terminals
    #[arg(long, short = 't', value_enum, num_args = 0..=1, require_equals = true, value_name = "WHEN")]
    #[arg(default_value_t = Tty::Auto, default_missing_value = "always")]
    tty: Tty,

    /// Kill the command after this many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,

    /// At the end, write a JSON object with status, errors and time to FILE, or to standard output
    ///
    /// `status` is the exit status, `error` this program's own failure, or null, `warnings` says why a command could
    /// not be started, and `seconds` is how long it took.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// The command and its arguments; options of this program come before it
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

const STATUSES: &str = "\
Exit status:
  0-123    the command's own
  124      --timeout has passed
  125      this program failed: a usage error, no such machine, a machine that ended
  126      the command cannot be run
  127      the command was not found
  128+N    signal N ended the command: 130 after Ctrl-C
Signals reach the command and what belongs to its process group; a second one, or three seconds, kill it.
Ctrl-] three times in a row, on a terminal, ends a command that Ctrl-C does not end.
A command can end with these too; then no error is printed after `transom:` on standard error.";

impl Exec {
    /// Runs the command; returns its exit status, or one of this program's own.
    pub(crate) fn execute(self) -> ExitCode {
        match self.prepare() {
            Ok(exec) => run_in(&self.name, exec, self.tty, self.timeout, self.json.as_deref()),
            Err(error) => {
                tell(error);
                ExitCode::from(RUN_FAILED)
            }
        }
    }

    fn prepare(&self) -> Result<keep::Exec> {
        let mut exec = keep::Exec::new(self.command.clone());
        exec.directory = self.workdir.clone();
        exec.env = self.env.iter().map(|pair| parse_variable(pair)).collect::<Result<_>>()?;
        if let Some(words) = &self.user {
            let root = Machine::connect(&self.name)?.status()?.root;
            let user = parse_user(words, root.as_deref())?;
            exec.user = Some((user.uid, user.gid));
        }
        Ok(exec)
    }
}

/// Runs a command in the machine `name`, and tells how it ended; returns the exit status.
pub(crate) fn run_in(
    name: &str,
    mut exec: keep::Exec,
    tty: Tty,
    timeout: Option<Duration>,
    json: Option<&Path>,
) -> ExitCode {
    let begun = Instant::now();
    let is_terminal = tty.is_wanted();
    if is_terminal && let Some(kind) = env::var_os("TERM") {
        // The machine has the one of the terminal where it was started.
        exec.env.insert(0, ("TERM".into(), kind));
    }
    let streams =
        CallerStreams { stdin: Box::new(io::stdin()), stdout: Box::new(io::stdout()), stderr: Box::new(io::stderr()) };
    let called = Machine::connect(name)
        .and_then(|machine| keep::call(machine, exec, streams, CallOptions { is_terminal, timeout }));
    let status = match &called {
        Ok(Called { exit_code, .. }) => u8::try_from(*exit_code).unwrap_or(RUN_FAILED),
        Err(Error::Interrupted(signal)) => u8::try_from(128 + signal).unwrap_or(RUN_FAILED),
        Err(Error::TimedOut(_)) => TIMED_OUT,
        Err(_) => RUN_FAILED,
    };
    let (error, warning) = match called {
        Ok(Called { error, .. }) => (None, error),
        Err(Error::TimedOut(timeout)) => {
            (Some(format!("the command did not end within {} s; it was killed", timeout.as_secs_f32())), None)
        }
        Err(error) => (Some(error.to_string()), None),
    };
    for text in error.iter().chain(&warning) {
        tell(text);
    }
    if let Some(path) = json {
        let warnings: Vec<_> = warning.into_iter().collect();
        let seconds = begun.elapsed().as_secs_f64();
        let object = json!({ "status": status, "error": error, "warnings": warnings, "seconds": seconds });
        let line = format!("{object}\n");
        let written = match path == Path::new("-") {
            true => io::Write::write_all(&mut io::stdout(), line.as_bytes()),
            false => fs::write(path, line),
        };
        if let Err(error) = written {
            eprintln!("transom: cannot write {}: {error}", path.display());
            return ExitCode::from(RUN_FAILED);
        }
    }
    ExitCode::from(status)
}
