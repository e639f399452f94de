//! The locked file `<socket>.pid`, which shows who serves a socket.
//!
//! The lock is what matters; the process id is for people and scripts. virtiofsd locks the same file in the same way,
//! so the two daemons refuse each other's sockets.

use super::ListenError;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file. It stays locked until every process that inherited it has ended.
#[derive(Debug)]
pub(super) struct PidFile {
    file: File,
    path: PathBuf,
    is_removable: bool,
}

impl PidFile {
    /// Locks the file that belongs to `socket` and writes this process's id to it.
    pub(super) fn take(socket: &Path) -> Result<Self, ListenError> {
        let mut name = OsString::from(socket);
        name.push(".pid");
        let path = PathBuf::from(name);
        let failed = |source| ListenError::Io { what: "cannot lock", path: path.clone(), source };

        let mut file = loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let fd = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed(e.into()))?;
            let mut file = File::from(fd);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let holder = holder(&mut file);
                    return Err(ListenError::InUse { path: socket.to_owned(), holder });
                }
                Err(error) => return Err(failed(error.into())),
            }
            // An ending daemon removes the file before it releases the lock: this may be that file.
            let locked = file.metadata().map_err(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|current| current.ino() == locked) {
                break file;
            }
        };
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        Ok(Self { file, path, is_removable: true })
    }

    /// Keeps the lock, but no longer removes the file.
    pub(super) fn lock_only(self) -> Self {
        Self { is_removable: false, ..self }
    }

    /// Removes the file, if it is still the one that is locked here.
    pub(super) fn remove(&self) {
        if !self.is_removable {
            return;
        }
        let ours = self.file.metadata().map(|metadata| metadata.ino());
        let there = fs::metadata(&self.path).map(|metadata| metadata.ino());
        if matches!((ours, there), (Ok(ours), Ok(there)) if ours == there) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // A process id has few digits; anything more is not read.
    let read = file.take(16).read_to_string(&mut text);
    match read.ok().and_then(|_| text.trim().parse::<u32>().ok()) {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}
