//! The errors of a run. Messages name what was needed, what was found, and what to do.

use std::{io, path::PathBuf, time::Duration};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a run. A failure of the command itself is not an error but an exit status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is invalid.
    #[error("{0}")]
    Usage(String),
    /// A file, program or directory that the run needs does not exist.
    #[error("{what} {path:?} does not exist\n  {advice}")]
    Missing {
        /// What it is.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// What the user can do.
        advice: String,
    },
    /// A module is neither built into the kernel nor in the directory of its modules.
    #[error(
        "kernel {kernel:?} has no module {module:?}, neither built in nor below {folder:?}\n  \
         use a kernel with virtio-fs, such as Debian's linux-image-cloud-amd64"
    )]
    NoModule {
        /// The module's name.
        module: String,
        /// The kernel image.
        kernel: PathBuf,
        /// The directory of its modules.
        folder: PathBuf,
    },
    /// A process of the run ended too early.
    #[error("{what} ended early ({status}){}", quoted(.output))]
    Died {
        /// Which process.
        what: String,
        /// Its exit status.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked{}", quoted(.console))]
    Panicked {
        /// The end of its console output.
        console: String,
    },
    /// The guest ended before the command did.
    #[error("the guest ended before the command did{}", quoted(.console))]
    GuestEnded {
        /// The end of its console output.
        console: String,
    },
    /// The agent in the guest failed.
    #[error("in the guest: {0}")]
    Guest(String),
    /// A signal stopped the run.
    #[error("stopped by signal {0}")]
    Interrupted(i32),
    /// The guest did not start the command in time.
    #[error("the guest did not start the command within {} s{}", .after.as_secs(), quoted(.console))]
    NotStarted {
        /// The time limit.
        after: Duration,
        /// The end of its console output.
        console: String,
    },
    /// A machine was not resumed from a snapshot; booting it may work.
    #[error("cannot start the machine from a snapshot: {why}")]
    NotResumed {
        /// The reason.
        why: String,
    },
    /// A machine that was kept has been ended without waiting for the guest.
    #[error("the machine was stopped by force; what its programs had not written yet is lost")]
    Forced,
    /// The command exceeded the timeout.
    #[error("the command did not end within {} s; the guest was stopped", .0.as_secs_f32())]
    TimedOut(Duration),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What failed, with its object, as in "cannot read FILE".
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Returns a function for `map_err` that makes an error of this crate from a system error; `doing` says what
    /// failed.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source: source.into() }
    }
}

/// Formats the output of another program as indented lines.
fn quoted(text: &str) -> String {
    if text.trim().is_empty() {
        return String::from(", without output");
    }
    let lines: Vec<_> = text.trim_end().lines().map(|line| format!("  | {line}")).collect();
    format!(", with the output:\n{}", lines.join("\n"))
}
