//! Why a run failed, for a person to read: what was wanted, what was found, and what to do.

use std::{io, path::PathBuf, time::Duration};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run failed. The command's own failure is no error: it is an exit status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A share, a mode or a size was given in words that say nothing.
    #[error("{0}")]
    Usage(String),
    /// A file, a program or a directory that the run needs is not there.
    #[error("{what} {path:?} is missing\n  {advice}")]
    Missing {
        /// What it is for.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// What to do.
        advice: String,
    },
    /// A module is neither in the kernel nor in the folder of its modules.
    #[error(
        "kernel {kernel:?} has no module {module:?}, neither built in nor below {folder:?}\n  \
         take a kernel with virtio-fs, for example Debian's linux-image-cloud-amd64"
    )]
    NoModule {
        /// The module's name.
        module: String,
        /// The kernel image.
        kernel: PathBuf,
        /// Where its modules were looked for.
        folder: PathBuf,
    },
    /// A process of the run ended before its time.
    #[error("{what} ended early ({status}){}", quoted(.output))]
    Died {
        /// Which process.
        what: String,
        /// How it ended.
        status: String,
        /// The last of what it wrote.
        output: String,
    },
    /// The guest's kernel gave up.
    #[error("the guest's kernel panicked{}", quoted(.console))]
    Panicked {
        /// The last lines of its console.
        console: String,
    },
    /// The guest ended without a word about the command.
    #[error("the guest ended before the command did{}", quoted(.console))]
    GuestEnded {
        /// The last lines of its console.
        console: String,
    },
    /// The agent could not do its part.
    #[error("in the guest: {0}")]
    Guest(String),
    /// A signal asked this process to stop.
    #[error("stopped by signal {0}")]
    Interrupted(i32),
    /// The guest did not get as far as the command.
    #[error("the guest did not start the command within {}s{}", .after.as_secs(), quoted(.console))]
    NotStarted {
        /// How long it had.
        after: Duration,
        /// The last lines of its console.
        console: String,
    },
    /// The time given was not enough.
    #[error("the command did not end within {}s; the guest was stopped", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, with its object.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: an error of the system while doing something.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source: source.into() }
    }
}

/// Lines of another program, set off from ours.
fn quoted(text: &str) -> String {
    if text.trim().is_empty() {
        return String::from("; it wrote nothing");
    }
    let lines: Vec<_> = text.trim_end().lines().map(|line| format!("  | {line}")).collect();
    format!("; its last words:\n{}", lines.join("\n"))
}
