//! Why something could not be fetched or built, for a person to read: what was wanted, what was found, what to do.

use std::{io, path::PathBuf};

/// A result of fetching or building.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be fetched or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No place for the cache is known.
    #[error("no folder to keep fetched packages in: set TRANSOM_CACHE, or HOME")]
    NoCache,
    /// The machine has no apt.
    #[error(
        "this machine has no {program}, which fetches packages here ({source})\n  give the file yourself, or run on Debian"
    )]
    NoApt {
        /// Which program is missing.
        program: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The machine's release is not known.
    #[error("{0:?} does not say which release this is (VERSION_CODENAME)")]
    NoRelease(PathBuf),
    /// None of the machine's sources is its distribution's.
    #[error(
        "none of apt's sources serves {suite:?} of this distribution\n  looked in {}\n  \
         packages of another release are fetched from the mirror of this machine's own",
        .files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoMirror {
        /// The machine's own release.
        suite: String,
        /// The files that were read.
        files: Vec<PathBuf>,
    },
    /// The mirror has no such release, or it is signed with a key that this machine does not have.
    #[error("suite {suite:?} cannot be used{}", quoted(.output))]
    NoSuite {
        /// The release.
        suite: String,
        /// What apt said.
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
    /// The release has the package, but not what it depends on.
    #[error("packages of suite {suite:?} do not fit together{}", quoted(.output))]
    Unresolved {
        /// The release.
        suite: String,
        /// What apt said.
        output: String,
    },
    /// The mirror could not be reached.
    #[error("the mirror cannot be reached{}\n  check the network, and the proxy in apt's configuration", quoted(.output))]
    Network {
        /// What apt said.
        output: String,
    },
    /// No space for it.
    #[error("no space left in {dir:?}{}\n  set TRANSOM_CACHE to a folder on a larger disk", quoted(.output))]
    DiskFull {
        /// The cache.
        dir: PathBuf,
        /// What the program said.
        output: String,
    },
    /// A kernel of a series was asked for that no release has.
    #[error("no kernel of the series {series}; there are {}", .found.join(", "))]
    NoKernel {
        /// What was asked for.
        series: String,
        /// What there is: version and release.
        found: Vec<String>,
    },
    /// A Rust compiler was asked for that no release has.
    #[error("no Rust compiler of version {least} or newer; there are {}", .found.join(", "))]
    NoToolchain {
        /// The least version.
        least: String,
        /// What there is: version and release.
        found: Vec<String>,
    },
    /// Programs that a build needs.
    #[error("building {what} needs {}\n  {advice}", .missing.join(", "))]
    NoTools {
        /// What was to be built.
        what: &'static str,
        /// The programs.
        missing: Vec<String>,
        /// What to do.
        advice: String,
    },
    /// A program failed.
    #[error("{doing} failed ({status}){}", quoted(.output))]
    Failed {
        /// What it was doing.
        doing: String,
        /// How it ended.
        status: String,
        /// The last of what it said.
        output: String,
    },
    /// What was fetched or built is not as expected.
    #[error("{0}")]
    Unexpected(String),
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

/// Lines of another program, set off from ours.
fn quoted(text: &str) -> String {
    const LAST_LINES: usize = 15;
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() {
        return String::new();
    }
    format!(":\n{}", last.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n"))
}
