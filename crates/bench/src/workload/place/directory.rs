//! A directory accessed by system calls: in a guest, on a mount, or the host's own.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::{super::map_how::MapHow, How, Opened, Storage};
use crate::workload::mapping::Mapping;

/// A directory of this machine.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
    forget: Forget,
}

/// How to drop the kernel's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Forget {
    /// Not at all: cold workloads run with warm caches. For the bare directory.
    Nothing,
    /// Names, inodes and their data, on the whole machine; needs root. For a mount on this machine.
    Names,
    /// Everything; for a guest, which does nothing else.
    All,
    /// Impossible: cold workloads are refused.
    Impossible,
}

impl Directory {
    /// Creates a place at the directory `root`.
    pub fn new(root: impl Into<PathBuf>, forget: Forget) -> Self {
        Self { root: root.into(), forget }
    }
}

impl Storage for Directory {
    fn for_job(&self, _: u16) -> Box<dyn Storage + '_> {
        Box::new(self.clone())
    }

    fn open(&self, path: &str, how: How) -> io::Result<Box<dyn Opened + '_>> {
        let How { is_write, is_new, is_append, is_direct } = how;
        let file = OpenOptions::new()
            .read(!is_write)
            .write(is_write && !is_append)
            .create(is_new)
            .truncate(is_new)
            .append(is_append)
            .custom_flags(if is_direct { libc::O_DIRECT } else { 0 })
            .open(self.root.join(path))?;
        Ok(Box::new(OpenedFile { file, is_append }))
    }

    fn stat(&self, path: &str) -> io::Result<()> {
        fs::symlink_metadata(self.root.join(path)).map(drop)
    }

    fn read_dir(&self, path: &str, each: &mut dyn FnMut(&str, bool) -> io::Result<()>) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(path))? {
            let entry = entry?;
            each(&entry.file_name().to_string_lossy(), entry.file_type()?.is_dir())?;
        }
        Ok(())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        DirBuilder::new().create(self.root.join(path))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.root.join(path))
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn set_mode(&self, path: &str, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.root.join(path), Permissions::from_mode(mode))
    }

    fn map(&self, path: &str, len_bytes: usize, how: MapHow) -> io::Result<Mapping> {
        let file = OpenOptions::new().read(true).write(how.is_shared).open(self.root.join(path))?;
        Mapping::of(&file, len_bytes, how)
    }

    fn forget(&self) -> io::Result<()> {
        let what = match self.forget {
            Forget::Nothing => return Ok(()),
            Forget::Names => "2",
            Forget::All => "3",
            Forget::Impossible => {
                let message = "emptying the kernel's caches needs root";
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
        };
        rustix::fs::syncfs(File::open(&self.root)?)?;
        fs::write("/proc/sys/vm/drop_caches", what)
    }
}

struct OpenedFile {
    file: File,
    is_append: bool,
}

impl Opened for OpenedFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.is_append {
            true => io::Write::write_all(&mut &self.file, bytes),
            false => self.file.write_all_at(bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
