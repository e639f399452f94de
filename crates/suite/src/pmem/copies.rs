//! Captures what a crash would leave, without one: stops the machine, copies its NVDIMM's file, and lets the machine
//! continue.
//!
//! A stopped QEMU changes nothing in memory, so the copy contains exactly what a kill at that moment would have left in
//! the file. It is mounted here, through a loop device, so that this system's own file system replays the log. That
//! needs root.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::{
    fs::{SeekFrom, seek},
    process::geteuid,
};

use tempfile::NamedTempFile;

use super::nvdimm;
use crate::job::FileSystem;

/// Bytes that are copied at a time.
const PIECE_LEN: u64 = 1 << 20;

/// How long a mount may be in use.
const UNMOUNT_MAX: Duration = Duration::from_secs(60);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Where copies are mounted.
pub(super) struct Copies {
    dir: PathBuf,
    at: PathBuf,
    on: FileSystem,
}

impl Copies {
    /// In `dir`, which is empty; `None` where this process may not mount, or cannot mount such a file system.
    pub(super) fn new(dir: &Path, on: FileSystem) -> io::Result<Option<Self>> {
        let known = fs::read_to_string("/proc/filesystems")?;
        let is_known = known.lines().any(|line| line.split_whitespace().last() == Some(on.name()));
        if !geteuid().is_root() || !is_known || !Path::new("/dev/loop-control").exists() {
            return Ok(None);
        }
        let at = dir.join("mounted");
        fs::create_dir(&at)?;
        Ok(Some(Self { dir: dir.to_owned(), at, on }))
    }

    /// Copies the NVDIMM's file, of a machine that is stopped.
    ///
    /// Each copy is a file of its own: while a mount namespace that somebody has just made still has the last one
    /// mounted, mount(8) would take its loop device for the same file, with what it has cached.
    pub(super) fn take(&self, nvdimm: &Path) -> anyhow::Result<NamedTempFile> {
        let (from, copy) = (File::open(nvdimm)?, NamedTempFile::new_in(&self.dir)?);
        let to = copy.as_file();
        to.set_len(nvdimm::LEN)?;
        let mut piece = vec![0; PIECE_LEN as usize];
        let mut at = 0;
        loop {
            at = match seek(&from, SeekFrom::Data(at)) {
                Err(rustix::io::Errno::NXIO) => return Ok(copy),
                at => at?,
            };
            let end = seek(&from, SeekFrom::Hole(at))?;
            while at < end {
                let len = (end - at).min(PIECE_LEN);
                let piece = &mut piece[..len as usize];
                from.read_exact_at(piece, at)?;
                to.write_all_at(piece, at)?;
                at += len;
            }
        }
    }

    /// Mounts a copy, which replays the log, and has `look` look at what is there.
    pub(super) fn look<T>(&self, copy: &Path, look: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let more = if self.on == FileSystem::Xfs { ",nouuid" } else { "" };
        let options = format!("loop,offset={}{more}", nvdimm::DATA_OFFSET);
        ran(Command::new("mount").args(["-t", self.on.name(), "-o", &options]).args([copy, &self.at]))?;
        let found = look(&self.at);
        self.unmount()?;
        found
    }

    /// Unmounts the copy. A process that another thread has begun to start has its descriptors until it executes.
    fn unmount(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + UNMOUNT_MAX;
        loop {
            match ran(Command::new("umount").arg(&self.at)) {
                Err(_) if Instant::now() < deadline => thread::sleep(BETWEEN_TRIES),
                outcome => return outcome,
            }
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // Where nothing is mounted, it fails.
        let _ = Command::new("umount").arg(&self.at).stdin(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn ran(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(())
}
