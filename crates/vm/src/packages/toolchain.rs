//! A Rust compiler other than the pinned one: the distribution's, with the sources of its own version or its cargo.
//!
//! A compiler builds only the `core` of its own version, and the project's pinned toolchain comes without sources on
//! most machines. [`Packages::toolchain`] fetches a compiler with its sources from the nearest release that has one new
//! enough. With its cargo, it shows what a release can build.

use std::{fmt, path::PathBuf, str::FromStr};

use super::{Closure, Error, Freshness, Packages, Prefix, Request, Result, kernels::numbers};

/// The package of the compiler.
const RUSTC: &str = "rustc";
/// What `rustc` depends on for linking. Whoever builds this project has them.
const MACHINES_OWN: &[&str] = &["binutils", "gcc", "libc-dev"];

/// The least version of a compiler: `1.95`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtLeast(Vec<u32>);

/// What comes with a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// The sources of `core` and `alloc`.
    Sources,
    /// The cargo of its version.
    Cargo,
}

/// A fetched compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// A script that runs the compiler with the libraries that it was built for.
    pub rustc: PathBuf,
    /// A script that runs its cargo, if it was fetched.
    pub cargo: Option<PathBuf>,
    /// The version, with Debian's revision.
    pub version: String,
    /// The release that it comes from.
    pub suite: String,
}

impl AtLeast {
    fn admits(&self, version: &str) -> bool {
        numbers(version) >= self.0
    }
}

impl FromStr for AtLeast {
    type Err = Error;

    fn from_str(words: &str) -> Result<Self> {
        let parts: std::result::Result<Vec<u32>, _> = words.split('.').map(str::parse).collect();
        parts
            .map(Self)
            .map_err(|_| Error::Unexpected(format!("invalid version {words:?}: expected numbers such as 1.95")))
    }
}

impl fmt::Display for AtLeast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

impl Packages<'_> {
    /// A compiler with its `companion`, of version `least` or newer: the nearest release's that the cache has, or that
    /// the mirror has.
    ///
    /// `suite` names the only release to ask. Blocks until the compiler is there.
    ///
    /// # Errors
    /// No release has one; also see [`Error`].
    pub fn toolchain(
        &self,
        least: &AtLeast,
        companion: Companion,
        suite: Option<&str>,
        freshness: Freshness,
    ) -> Result<Toolchain> {
        let suites = suite.map_or_else(|| Ok(suites(&Self::own_suite()?)), |suite| Ok(vec![suite.to_owned()]))?;
        if freshness == Freshness::Cached {
            for suite in &suites {
                let fetched = self.cached(&companion.request(suite, freshness))?;
                if let Some(prefix) = fetched.filter(|prefix| least.admits(version_of(prefix))) {
                    return companion.toolchain_in(&prefix, suite);
                }
            }
        }
        let mut found = Vec::new();
        for suite in &suites {
            match self.candidate(suite, RUSTC) {
                Ok(Some(candidate)) if least.admits(&candidate.version) => {
                    // What the cache has of this release is too old.
                    let prefix = self.fetch(&companion.request(suite, Freshness::Newest))?;
                    return companion.toolchain_in(&prefix, suite);
                }
                Ok(Some(candidate)) => found.push(format!("{} in {suite}", candidate.version)),
                Ok(None) | Err(Error::NoSuite { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoToolchain { least: least.to_string(), found })
    }
}

impl Companion {
    fn request(self, suite: &str, freshness: Freshness) -> Request<'_> {
        let packages: &[&str] = match self {
            Self::Sources => &[RUSTC, "rust-src"],
            Self::Cargo => &[RUSTC, "cargo"],
        };
        Request { suite, packages, closure: Closure::Without(MACHINES_OWN), freshness }
    }

    /// Writes the scripts that run what is in `prefix`.
    fn toolchain_in(self, prefix: &Prefix, suite: &str) -> Result<Toolchain> {
        let root = std::path::absolute(prefix.root()).map_err(Error::io("cannot find the cache"))?;
        let script = |program: &str| {
            let path = root.join(program);
            prefix.write_script(&format!("usr/bin/{program}"), &path).map(|()| path)
        };
        let cargo = (self == Self::Cargo).then(|| script("cargo")).transpose()?;
        let version = version_of(prefix).to_owned();
        Ok(Toolchain { rustc: script("rustc")?, cargo, version, suite: suite.to_owned() })
    }
}

/// The releases that may have a compiler, near to the machine's own first: the nearer, the less it differs from the
/// pinned.
fn suites(own: &str) -> Vec<String> {
    let newer = ["stable", "stable-backports", "testing", "unstable"].map(str::to_owned);
    [own.to_owned(), format!("{own}-backports")].into_iter().chain(newer).collect()
}

fn version_of(prefix: &Prefix) -> &str {
    prefix.version_of("rustc=").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_by_number() {
        let least: AtLeast = "1.95".parse().unwrap();
        for version in ["1.95.0+dfsg1-2~bpo13+1", "1.97.1+dfsg1-1", "1.100.0", "2.0"] {
            assert!(least.admits(version), "{version}");
        }
        for version in ["1.94.9", "1.63.0+dfsg1-2", "1.9.99", ""] {
            assert!(!least.admits(version), "{version}");
        }
        assert_eq!(least.to_string(), "1.95");
        assert!("new".parse::<AtLeast>().is_err());
    }

    #[test]
    fn near_releases_are_asked_first() {
        let suites = suites("bookworm");
        assert_eq!(suites.first().map(String::as_str), Some("bookworm"));
        assert_eq!(suites.last().map(String::as_str), Some("unstable"));
    }
}
