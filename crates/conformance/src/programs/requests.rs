//! Which requests of a FUSE mount the daemon has not answered, as the kernel counts them.

use std::{
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
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
    /// fusectl.
    control: OwnedFd,
    /// The file in it that counts the requests which are not answered, those that nobody waits for included.
    waiting: String,
}

impl Requests {
    /// Those of the mount at `dir`, if it is one of FUSE.
    ///
    /// fusectl is looked at where it is not mounted, so that nothing is left of it. Errors: the kernel does not show
    /// it.
    pub(super) fn of(dir: &Path) -> anyhow::Result<Option<Self>> {
        let at = || dir.display().to_string();
        if rustix::fs::statfs(dir).with_context(at)?.f_type as u64 != FUSE_SUPER_MAGIC {
            return Ok(None);
        }
        let connection = rustix::fs::minor(std::fs::metadata(dir).with_context(at)?.dev());
        let control = control().context("fusectl, which counts the requests of a mount")?;
        Ok(Some(Self { control, waiting: format!("{connection}/waiting") }))
    }

    /// Waits until none is left.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        while self.count().with_context(|| format!("reading {} of fusectl", self.waiting))?.trim_ascii() != b"0" {
            anyhow::ensure!(Instant::now() < deadline, "requests wait for {} s", WAIT_MAX.as_secs());
            thread::yield_now();
        }
        Ok(())
    }

    /// The number as the kernel writes it; a file of fusectl is read once.
    fn count(&self) -> rustix::io::Result<Vec<u8>> {
        let waiting = openat(&self.control, &self.waiting, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = vec![0; 16];
        let len = rustix::io::read(&waiting, &mut text)?;
        text.truncate(len);
        Ok(text)
    }
}

fn control() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}
