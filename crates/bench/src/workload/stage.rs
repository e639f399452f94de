//! Where a workload is performed: the directory, the parameters, the watch, and the lines that go out.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::{Params, laps::Laps, line::Line};

/// The stage of one run.
pub(super) struct Stage<W> {
    dir: PathBuf,
    pub(super) params: Params,
    out: W,
}

impl<W: io::Write> Stage<W> {
    pub(super) fn new(dir: PathBuf, params: Params, out: W) -> Self {
        Self { dir, params, out }
    }

    /// A path in the directory.
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Random numbers, the same in every run; `stream` tells apart the workloads.
    pub(super) fn random(&self, stream: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.params.seed.wrapping_add(stream))
    }

    /// Times `body`, which calls [`Laps::lap`] after each operation.
    ///
    /// Its failure becomes a line: one workload that a file system refuses says nothing about the others.
    pub(super) fn measure(&mut self, name: &str, body: impl FnOnce(&mut Laps) -> io::Result<()>) -> io::Result<()> {
        self.say(&Line::Begin { workload: name.to_owned() })?;
        thread::sleep(Duration::from_millis(self.params.settle_ms));
        let mut laps = Laps::begin();
        let result = body(&mut laps);
        let timing = laps.timing(name);
        self.say(&match result {
            Ok(()) => Line::Result(timing),
            Err(error) => Line::Refused { workload: name.to_owned(), reason: error.to_string() },
        })
    }

    /// Empties the kernel's caches of data, names and attributes, if the parameters say so.
    pub(super) fn forget_all(&self) -> io::Result<()> {
        if self.params.drop_caches {
            rustix::fs::sync();
            fs::write("/proc/sys/vm/drop_caches", "3")?;
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.say(&Line::End)
    }

    fn say(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.out.write_all(&text)?;
        self.out.flush()
    }
}
