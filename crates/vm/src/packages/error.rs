//! The errors of fetching and building. Messages name what was needed, what was found, and what to do.

use std::{io, path::PathBuf};

/// A result of fetching or building.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of fetching or building.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The location of the cache is unknown.
    #[error("no cache directory: set TRANSOM_CACHE or HOME")]
    NoCache,
    /// apt is not installed.
    #[error(
        "cannot run {program}, which is needed to fetch packages ({source})\n  \
        provide the file yourself, or run on Debian"
    )]
    NoApt {
        /// The missing program.
        program: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The machine's release is unknown.
    #[error("{0:?} does not name this machine's release (VERSION_CODENAME)")]
    NoRelease(PathBuf),
    /// None of apt's sources serves the machine's distribution.
    #[error(
        "none of apt's sources serves {suite:?} of this distribution\n  looked in {}\n  \
         other releases are fetched from the mirror of this machine's own release",
        .files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoMirror {
        /// The machine's own release.
        suite: String,
        /// The files that were read.
        files: Vec<PathBuf>,
    },
    /// The mirror does not have the release, or it is signed with an unknown key.
    #[error("suite {suite:?} cannot be used{}", quoted(.output))]
    NoSuite {
        /// The release.
        suite: String,
        /// The output of apt.
        output: String,
    },
    /// The release has no such package.
    #[error("suite {suite:?} has no package {package:?}")]
    NoPackage {
        /// The release.
        suite: String,
        /// The package.
        package: String,
    },
    /// The release has the package, but not its dependencies.
    #[error("cannot resolve dependencies in suite {suite:?}{}", quoted(.output))]
    Unresolved {
        /// The release.
        suite: String,
        /// The output of apt.
        output: String,
    },
    /// The mirror could not be reached.
    #[error("cannot reach the mirror{}\n  check the network and apt's proxy settings", quoted(.output))]
    Network {
        /// The output of apt.
        output: String,
    },
    /// A program made no progress, and was killed.
    #[error(
        "{program} has made no progress for {seconds} seconds, and was killed\n  \
         check the network, apt's proxy settings and the space in the cache, then run this again"
    )]
    Stalled {
        /// The program.
        program: &'static str,
        /// How long it stood still.
        seconds: u64,
    },
    /// The disk is full.
    #[error("no space left in {dir:?}{}\n  set TRANSOM_CACHE to a directory on a larger disk", quoted(.output))]
    DiskFull {
        /// The cache.
        dir: PathBuf,
        /// What the program said.
        output: String,
    },
    /// No release has a kernel of the requested series.
    #[error("no kernel of series {series}; available: {}", .found.join(", "))]
    NoKernel {
        /// The requested series.
        series: String,
        /// Available versions, with their releases.
        found: Vec<String>,
    },
    /// No release has a Rust compiler of the requested version.
    #[error("no Rust compiler of version {least} or newer; available: {}", .found.join(", "))]
    NoToolchain {
        /// The minimum version.
        least: String,
        /// Available versions, with their releases.
        found: Vec<String>,
    },
    /// The patch for kernels that read version tables is missing.
    #[error(
        "the patch of the kernel is not installed: looked for {}\n  \
         install the project, run this in its sources, or name a kernel that has the patch with --kernel",
        .places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoPatch {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// Programs that a build needs are missing.
    #[error("building {what} needs {}\n  {advice}", .missing.join(", "))]
    NoTools {
        /// What to build.
        what: &'static str,
        /// The missing programs.
        missing: Vec<String>,
        /// What the user can do.
        advice: String,
    },
    /// A program failed.
    #[error("{doing} failed ({status}){}", quoted(.output))]
    Failed {
        /// What failed.
        doing: String,
        /// Its exit status.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// The result of fetching or building is not as expected.
    #[error("{0}")]
    Unexpected(String),
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
    /// Returns a function for `map_err` that makes an error of this module from a system error; `doing` says what
    /// failed.
    pub(crate) fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source: source.into() }
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Formats the output of another program as indented lines.
fn quoted(text: &str) -> String {
    const LAST_LINES: usize = 15;
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() {
        return String::new();
    }
    format!(":\n{}", last.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n"))
}
