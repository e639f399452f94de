//! Where the suite works: a directory on the host's disk for shares and results, and the executables beside this one.

use std::{
    cell::OnceCell,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tempfile::TempDir;
use transom_testkit::report::Report;

/// A file system on the disk, with ACLs and all; its path is short, since that of a socket has 107 bytes at the most.
const DISK: &str = "/var/tmp";

/// Directories and executables; removed with everything in it unless results are to be kept.
pub(crate) struct Places {
    dir: TempDir,
    keep: Option<PathBuf>,
    executables: PathBuf,
    /// The list of cases, run on the bare directory once.
    pub(crate) oracle: OnceCell<Vec<Report>>,
    /// pjdfstest on the bare directory, once.
    pub(crate) pjdfstest_oracle: OnceCell<Vec<Report>>,
}

impl Places {
    /// Errors: the directory beside the executables, or the one to keep results in, cannot be made.
    pub(crate) fn new(keep: Option<PathBuf>) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("finding this executable")?;
        let executables = this.parent().context("this executable has no directory")?.to_owned();
        let on_disk = if Path::new(DISK).is_dir() { DISK.into() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("ts").tempdir_in(&on_disk);
        let dir = dir.with_context(|| format!("a directory in {}", on_disk.display()))?;
        if let Some(keep) = &keep {
            fs::create_dir_all(keep).with_context(|| keep.display().to_string())?;
        }
        Ok(Self { dir, keep, executables, oracle: OnceCell::new(), pjdfstest_oracle: OnceCell::new() })
    }

    /// The path of an executable that was built with this one.
    pub(crate) fn executable(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.executables.join(name);
        anyhow::ensure!(path.exists(), "{} is not built: `cargo build --workspace` does", path.display());
        Ok(path)
    }

    /// A fresh directory on the disk that holds the oracle's too, so that both are of one file system.
    pub(crate) fn fresh(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join(name.replace('/', "."));
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
        let Some(keep) = &self.keep else { return Ok(()) };
        let path = keep.join(format!("{}.txt", scenario.replace('/', ".")));
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}
