//! Packages of this machine's distribution, from any of its releases, without touching the system and without root.
//!
//! [`Packages::fetch`] finds the machine's own mirror (`mirror.rs`, `sources.rs`), lets apt resolve, verify and
//! download in a folder of its own (`apt.rs`), and unpacks the files into a [`Prefix`] of the [`Cache`]. What was
//! fetched once is used from then on without a network, until [`Freshness::Newest`] is asked for.
//! Locks: one lock on the cache's apt folder, held while apt works and while a prefix is put in place.

mod apt;
pub(crate) mod cache;
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
pub use error::{Error, Result};
pub use prefix::Prefix;
pub use report::{OnStderr, Quiet, Report};

/// Fetches packages into a cache.
#[derive(Clone, Copy)]
pub struct Packages<'a> {
    cache: &'a Cache,
    report: &'a dyn Report,
}

/// What is fetched.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The release: a code name or `stable`, `testing`, `unstable`, `<name>-backports`; [`Packages::own_suite`] for
    /// the machine's.
    pub suite: &'a str,
    /// Names of packages; real ones or metapackages.
    pub packages: &'a [&'a str],
    /// Whether what they depend on comes too.
    pub closure: Closure,
    /// Whether what the cache has will do.
    pub freshness: Freshness,
}

/// How much is fetched beside the packages named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closure {
    /// Nothing.
    Only,
    /// Everything that they depend on, down to the C library, as for an empty system; nothing merely recommended.
    WithDependencies,
    /// The same without these packages, which the machine has, and without what only they depend on.
    Without(&'static [&'static str]),
    /// The dependencies whose names hold this word, and theirs: the parts that a metapackage stands for.
    Parts(&'static str),
}

/// Whether what was fetched before will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// What the cache has, of whatever version; the network is used only for what it lacks.
    #[default]
    Cached,
    /// What the mirror has now.
    Newest,
}

impl<'a> Packages<'a> {
    /// Packages kept in `cache`; `report` hears what is fetched and how far it is.
    pub fn new(cache: &'a Cache, report: &'a dyn Report) -> Self {
        Self { cache, report }
    }

    /// The cache.
    pub fn cache(&self) -> &'a Cache {
        self.cache
    }

    /// Who hears of the progress.
    pub fn report(&self) -> &'a dyn Report {
        self.report
    }

    /// The code name of the machine's own release, `bookworm` for example.
    pub fn own_suite() -> Result<String> {
        mirror::own_suite()
    }

    /// The folder into which the requested packages are unpacked, fetched if need be. Blocks until it is there.
    ///
    /// Errors: see [`Error`]; a failed fetch leaves what the cache had.
    pub fn fetch(&self, request: &Request<'_>) -> Result<Prefix> {
        let folder = self.folder(request);
        if request.freshness == Freshness::Cached
            && let Some(prefix) = Prefix::existing(&folder)?
        {
            return Ok(prefix);
        }
        let _lock = self.cache.lock("apt", self.report)?;
        // Another run may have fetched it while this one waited.
        if request.freshness == Freshness::Cached
            && let Some(prefix) = Prefix::existing(&folder)?
        {
            return Ok(prefix);
        }
        let apt = Apt::prepare(self.cache, request.suite, self.report)?;
        let files = apt.resolve(request)?;
        if let Some(prefix) = Prefix::existing(&folder)?.filter(|prefix| prefix.files == apt::names(&files)) {
            self.report.say(&format!("{} of {} is the newest", request.packages.join(", "), request.suite));
            return Ok(prefix);
        }
        let archives = apt::names(&files).into_iter().zip(apt.download(&files)?).collect::<Vec<_>>();
        Prefix::unpack(&folder, &archives, self.report)
    }

    /// The folder that [`Self::fetch`] left earlier; `None` where it would have to fetch. Never uses the network.
    pub fn cached(&self, request: &Request<'_>) -> Result<Option<Prefix>> {
        Prefix::existing(&self.folder(request))
    }

    /// The version of `package` that `suite` has now, and what it depends on; `None` if it has none.
    ///
    /// Asks the mirror, at most once a day. Errors: see [`Error`].
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
