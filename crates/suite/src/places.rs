//! Paths of the suite: a directory on the host's disk for shares and results, and the executables next to this one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use anyhow::Context as _;
use tempfile::TempDir;
use transom_conformance::report::Report;

use crate::job::Job;

/// A file system on the disk, with ACLs and all; its path is short, since that of a socket has 107 bytes at the most.
const DISK: &str = "/var/tmp";

/// What all scenarios have in common; its directory is removed with everything in it.
pub(crate) struct Common {
    dir: TempDir,
    keep: Option<PathBuf>,
    seed: u64,
    /// How many programs of two callers, if not as many as the scenario says.
    programs: Option<u64>,
    search: Search,
    executables: PathBuf,
    /// The list of cases on the bare directory.
    cases: Once,
    /// pjdfstest on the bare directory.
    pjdfstest: Once,
    /// The same on overlayfs of this host.
    cases_on_overlayfs: Once,
    pjdfstest_on_overlayfs: Once,
    /// Held by who fetches or builds something for the cache.
    fetching: Mutex<()>,
}

/// How to look for stale answers.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// How long, if not for as many rounds as the scenario says.
    pub(crate) hours: Option<f64>,
    /// How often after each change, if not as often as suits `make test`.
    pub(crate) looks: Option<u64>,
    /// The file with the figures of all runs.
    pub(crate) sum: Option<PathBuf>,
}

/// Results that are computed on first use.
#[derive(Default)]
struct Once {
    reports: OnceLock<Vec<Report>>,
    work: Mutex<()>,
}

impl Once {
    fn get_or_try(&self, work: impl FnOnce() -> anyhow::Result<Vec<Report>>) -> anyhow::Result<&[Report]> {
        let _turn = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reports) = self.reports.get() {
            return Ok(reports);
        }
        let reports = work()?;
        Ok(self.reports.get_or_init(|| reports))
    }
}

impl Common {
    /// Errors: the directory beside the executables, or the one to keep results in, cannot be made.
    pub(crate) fn new(
        keep: Option<PathBuf>,
        seed: Option<u64>,
        programs: Option<u64>,
        search: Search,
    ) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("finding this executable")?;
        let executables = this.parent().context("this executable has no directory")?.to_owned();
        let on_disk = if Path::new(DISK).is_dir() { DISK.into() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("ts").tempdir_in(&on_disk);
        let dir = dir.with_context(|| format!("a directory in {}", on_disk.display()))?;
        if let Some(keep) = &keep {
            fs::create_dir_all(keep).with_context(|| keep.display().to_string())?;
        }
        Ok(Self {
            dir,
            keep,
            seed: seed.unwrap_or_else(|| fastrand::u64(..)),
            programs,
            search,
            executables,
            cases: Once::default(),
            pjdfstest: Once::default(),
            cases_on_overlayfs: Once::default(),
            pjdfstest_on_overlayfs: Once::default(),
            fetching: Mutex::new(()),
        })
    }

    /// What a signal removes.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The places of one scenario, which nobody else uses.
    pub(crate) fn places(&self, number: usize) -> anyhow::Result<Places<'_>> {
        let dir = self.dir.path().join(number.to_string());
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(Places { common: self, dir })
    }
}

/// Directories and executables of one scenario.
pub(crate) struct Places<'a> {
    common: &'a Common,
    dir: PathBuf,
}

impl Drop for Places<'_> {
    /// What a scenario leaves is as large as its files; nobody misses it.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Places<'_> {
    /// The results of the list of cases on the bare directory; `work` runs once.
    pub(crate) fn cases_oracle(&self, work: impl FnOnce() -> anyhow::Result<Vec<Report>>) -> anyhow::Result<&[Report]> {
        self.common.cases.get_or_try(work)
    }

    /// The results of pjdfstest on the bare directory; `work` runs once.
    pub(crate) fn pjdfstest_oracle(
        &self,
        work: impl FnOnce() -> anyhow::Result<Vec<Report>>,
    ) -> anyhow::Result<&[Report]> {
        self.common.pjdfstest.get_or_try(work)
    }

    /// The results of the list of cases, or of pjdfstest, on overlayfs of this host; `work` runs once for each.
    pub(crate) fn overlay_oracle(
        &self,
        job: Job,
        work: impl FnOnce() -> anyhow::Result<Vec<Report>>,
    ) -> anyhow::Result<&[Report]> {
        match job {
            Job::Pjdfstest => self.common.pjdfstest_on_overlayfs.get_or_try(work),
            _ => self.common.cases_on_overlayfs.get_or_try(work),
        }
    }

    /// Fetches or builds for the cache, while nobody else does.
    pub(crate) fn fetch<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let _turn = self.common.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// What is random follows from it.
    pub(crate) fn seed(&self) -> u64 {
        self.common.seed
    }

    /// How many programs of two callers were asked for.
    pub(crate) fn programs(&self) -> Option<u64> {
        self.common.programs
    }

    /// How to look for stale answers.
    pub(crate) fn search(&self) -> &Search {
        &self.common.search
    }

    /// The path of an executable that was built with this one.
    pub(crate) fn executable(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.common.executables.join(name);
        anyhow::ensure!(path.exists(), "{} is not built: `cargo build --workspace` does", path.display());
        Ok(path)
    }

    /// A fresh directory on the disk that holds the oracle's too, so that both are of one file system.
    pub(crate) fn fresh(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name.replace('/', "."));
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// A directory with copies of these executables, to be shared with a guest.
    pub(crate) fn tools(&self, names: &[&Path]) -> anyhow::Result<PathBuf> {
        let tools = self.fresh("tools")?;
        for from in names {
            let name = from.file_name().context("an executable has a name")?;
            fs::copy(from, tools.join(name)).with_context(|| format!("copying {}", from.display()))?;
        }
        Ok(tools)
    }

    /// Writes a scenario's output where it is to be kept.
    pub(crate) fn keep(&self, scenario: &str, text: &[u8]) -> anyhow::Result<()> {
        let Some(keep) = &self.common.keep else { return Ok(()) };
        let path = keep.join(format!("{}.txt", scenario.replace('/', ".")));
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}
