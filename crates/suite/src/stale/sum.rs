//! The figures of all runs, in a file: a search of hours can be stopped at any moment and goes on with the next run.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// What runs have come to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) runs: u64,
    pub(super) checks: u64,
    pub(super) changes: u64,
    pub(super) deaths: u64,
    pub(super) stale: u64,
}

/// The file, and what it said before this run.
pub(super) struct SumFile {
    path: PathBuf,
    before: Sum,
}

impl Sum {
    /// Each figure after its name; a line.
    fn text(self) -> String {
        let Self { runs, checks, changes, deaths, stale } = self;
        format!("runs {runs} checks {checks} changes {changes} deaths {deaths} stale {stale}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut sum = Self::default();
        let mut words = text.split_ascii_whitespace();
        let Self { runs, checks, changes, deaths, stale } = &mut sum;
        let fields = [("runs", runs), ("checks", checks), ("changes", changes), ("deaths", deaths), ("stale", stale)];
        for (name, figure) in fields {
            if words.next()? != name {
                return None;
            }
            *figure = words.next()?.parse().ok()?;
        }
        words.next().is_none().then_some(sum)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            checks: self.checks + other.checks,
            changes: self.changes + other.changes,
            deaths: self.deaths + other.deaths,
            stale: self.stale + other.stale,
        }
    }
}

impl SumFile {
    /// Errors: the file is there and is no such file.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let before = match fs::read_to_string(path) {
            Ok(text) => Sum::parse(&text).with_context(|| format!("{} has no figures of a search", path.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Sum::default(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        Ok(Self { path: path.to_owned(), before })
    }

    /// Says what all runs have come to, if this one has come to `sum`.
    pub(super) fn write(&self, sum: Sum) -> anyhow::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        // Whoever stops the run leaves one of both.
        fs::write(&new, self.before.plus(sum).text()).with_context(|| PathBuf::from(&new).display().to_string())?;
        fs::rename(&new, &self.path).with_context(|| self.path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_goes_on_where_the_last_one_was_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sum");
        let run = Sum { runs: 1, checks: 1000, changes: 20, deaths: 3, stale: 0 };
        let first = SumFile::open(&path).unwrap();
        first.write(Sum { checks: 10, ..run }).unwrap();
        first.write(run).unwrap();
        SumFile::open(&path).unwrap().write(run).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "runs 2 checks 2000 changes 40 deaths 6 stale 0\n");
    }

    #[test]
    fn another_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sum");
        for text in ["", "notes", "runs 1 checks 2", "runs 1 checks 2 changes 3 deaths 4 stale x", "runs 1 checks -1"] {
            fs::write(&path, text).unwrap();
            assert!(SumFile::open(&path).is_err(), "{text:?}");
        }
    }
}
