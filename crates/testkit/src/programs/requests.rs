//! Which requests of a FUSE mount the daemon has not answered, as the kernel counts them.

use std::{
    fs::File,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// What statfs(2) says of a FUSE mount.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// A bound on a hang, far above what a request takes.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The requests of one mount.
#[derive(Debug)]
pub(super) struct Requests {
    /// `waiting` of the connection: the requests that are not answered, those that nobody waits for included.
    waiting: File,
}

impl Requests {
    /// Those of the mount at `dir`, if it is one of FUSE.
    ///
    /// fusectl is looked at where it is not mounted, so that nothing is left of it. Errors: the kernel does not show it.
    pub(super) fn of(dir: &Path) -> anyhow::Result<Option<Self>> {
        let at = || dir.display().to_string();
        if rustix::fs::statfs(dir).with_context(at)?.f_type as u64 != FUSE_SUPER_MAGIC {
            return Ok(None);
        }
        let connection = rustix::fs::minor(std::fs::metadata(dir).with_context(at)?.dev());
        let control = control().context("fusectl, which counts the requests of a mount")?;
        let waiting = openat(control, format!("{connection}/waiting"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Some(Self { waiting: waiting.with_context(|| format!("FUSE connection {connection}"))?.into() }))
    }

    /// Waits until none is left.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut text = [0; 16];
        loop {
            let len = self.waiting.read_at(&mut text, 0).context("reading the number of requests")?;
            if text[..len].trim_ascii() == b"0" {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "requests wait for {} s", WAIT_MAX.as_secs());
            thread::yield_now();
        }
    }
}

fn control() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}
