//! Packages of this machine's distribution, from any of its releases, without touching the system and without root.
//!
//! [`Packages::fetch`] finds the machine's own mirror (`mirror.rs`, `sources.rs`), lets apt resolve, verify and
//! download in a separate directory (`apt.rs`), and unpacks the files into a [`Prefix`] of the [`Cache`]. Fetched
//! packages are used without a network from then on, unless [`Freshness::Newest`] is requested. Locks: one lock on the
//! cache's apt folder, held while apt works and while a prefix is put in place.

mod apt;
pub(crate) mod cache;
mod capture;
mod error;
pub mod kernels;
mod mirror;
mod prefix;
mod report;
mod sources;
pub mod toolchain;

use std::path::PathBuf;

use apt::Apt;
pub use cache::Cache;
pub(crate) use cache::checkout_of;
pub use error::{Error, Result};
pub use prefix::Prefix;
pub use report::{OnStderr, Quiet, Report};

/// Fetches packages into a cache.
#[derive(Clone, Copy)]
pub struct Packages<'a> {
    cache: &'a Cache,
    report: &'a dyn Report,
}

/// What to fetch.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The release: a code name or `stable`, `testing`, `unstable`, `<name>-backports`; [`Packages::own_suite`] for
    /// the machine's.
    pub suite: &'a str,
    /// Names of packages or metapackages.
    pub packages: &'a [&'a str],
    /// Whether to fetch dependencies.
    pub closure: Closure,
    /// Whether to use cached packages.
    pub freshness: Freshness,
}

/// Which dependencies to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closure {
    /// No dependencies.
    Only,
    /// All dependencies, down to the C library, as for an empty system, but no recommendations.
    WithDependencies,
    /// All dependencies except these packages, which the machine has, and their own dependencies.
    Without(&'static [&'static str]),
    /// Only dependencies whose names contain this text, recursively: the parts of a metapackage.
    Parts(&'static str),
}

/// Whether to use cached packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// Use the cached version, whichever it is; fetch only missing packages.
    #[default]
    Cached,
    /// Fetch the mirror's current version.
    Newest,
}

impl<'a> Packages<'a> {
    /// Creates a fetcher that keeps packages in `cache` and reports progress to `report`.
    pub fn new(cache: &'a Cache, report: &'a dyn Report) -> Self {
        Self { cache, report }
    }

    /// Returns the cache.
    pub fn cache(&self) -> &'a Cache {
        self.cache
    }

    /// Returns the receiver of progress.
    pub fn report(&self) -> &'a dyn Report {
        self.report
    }

    /// Returns the code name of the machine's release, such as `bookworm`.
    pub fn own_suite() -> Result<String> {
        mirror::own_suite()
    }

    /// Returns the directory with the unpacked packages, fetching them if necessary. Blocks until they are there.
    ///
    /// # Errors
    ///
    /// See [`Error`]. A failed fetch does not change the cache.
    pub fn fetch(&self, request: &Request<'_>) -> Result<Prefix> {
        let folder = self.folder(request);
        if request.freshness == Freshness::Cached
            && let Some(prefix) = Prefix::existing(&folder)?
        {
            return Ok(prefix);
        }
        let _lock = self.cache.lock("apt", self.report)?;
        // Another run may have fetched the packages while this one waited.
        if request.freshness == Freshness::Cached
            && let Some(prefix) = Prefix::existing(&folder)?
        {
            return Ok(prefix);
        }
        let apt = Apt::prepare(self.cache, request.suite, self.report)?;
        let files = apt.resolve(request)?;
        if let Some(prefix) = Prefix::existing(&folder)?.filter(|prefix| prefix.files == apt::names(&files)) {
            self.report.say(&format!("{} of {} is up to date", request.packages.join(", "), request.suite));
            return Ok(prefix);
        }
        let archives = apt::names(&files).into_iter().zip(apt.download(&files)?).collect::<Vec<_>>();
        Prefix::unpack(&folder, &archives, self.report)
    }

    /// Returns the directory if [`Self::fetch`] would not have to fetch. Never uses the network.
    pub fn cached(&self, request: &Request<'_>) -> Result<Option<Prefix>> {
        Prefix::existing(&self.folder(request))
    }

    /// Returns the current version of `package` in `suite` and its dependencies, or `None` if the suite does not have
    /// it.
    ///
    /// Asks the mirror at most once a day.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub(crate) fn candidate(&self, suite: &str, package: &str) -> Result<Option<apt::Candidate>> {
        let _lock = self.cache.lock("apt", self.report)?;
        Apt::prepare(self.cache, suite, self.report)?.candidate(package)
    }

    fn folder(&self, request: &Request<'_>) -> PathBuf {
        let mut name = request.packages.join("+");
        match request.closure {
            Closure::Only => {}
            Closure::WithDependencies => name.push_str("+dependencies"),
            Closure::Without(others) => {
                name.push_str("+dependencies-without-");
                name.push_str(&others.join("-"));
            }
            Closure::Parts(word) => {
                name.push_str("+parts-");
                name.push_str(word);
            }
        }
        self.cache.dir().join("packages").join(request.suite).join(cache::short(&name))
    }
}
