//! The names of machines that are kept, and their files in a directory that only this user can access.
//!
//! A keeper holds a lock on `NAME.lock` as long as it lives, listens at `NAME.socket`, and writes what it has to say to
//! `NAME.log` once nobody waits for its start. However it ends, the kernel releases the lock: the next command that
//! meets the name removes the files.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};

use super::ended;
use crate::{Error, Result};

/// Long enough for a word, and short enough for a socket's path.
const NAME_LEN_MAX: usize = 48;
/// What the keeper writes to standard output once the machine is ready.
pub const READY: &[u8] = b"\n";

/// A name that this process holds. Dropping it frees the name.
#[derive(Debug)]
pub struct Claim {
    files: Files,
    /// The log of a machine of this name that has ended by itself.
    log_before: Option<String>,
    _lock: File,
    /// Those who wait for the end of the machine.
    waiters: Mutex<Vec<UnixStream>>,
}

/// The files of a name.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    name: String,
    dir: PathBuf,
}

/// What has a name.
#[derive(Debug)]
pub(crate) enum Holder {
    Nobody,
    /// A keeper that has ended, with what it has written to its log.
    Ended(String),
    /// A keeper whose machine is not ready.
    Starting,
    Running(UnixStream),
}

impl Claim {
    /// Takes `name` for this process.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid or in use.
    pub fn take(name: &str) -> Result<Self> {
        let files = Files::of(name)?;
        let lock = files.lock().map_err(Error::io(format!("cannot take the name {name}")))?;
        let lock = lock.ok_or_else(|| {
            Error::Usage(format!(
                "there is a machine {name} already: `transom stop {name}` ends it, or use another name"
            ))
        })?;
        let log_before = files.log().ok();
        files.remove_but_lock();
        Ok(Self { files, log_before, _lock: lock, waiters: Mutex::default() })
    }

    /// Returns the error for a machine of this name that has ended by itself and that nobody has been told of.
    pub fn ended_before(&self) -> Option<Error> {
        self.log_before.as_ref().map(|log| ended(self.name(), log))
    }

    /// Listens for requests, and tells the process that waits for the machine. From now on, what this process writes to
    /// standard error goes to the log.
    ///
    /// # Errors
    ///
    /// Returns an error if nobody waits any more.
    pub(crate) fn ready(&self) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(self.files.path("socket"))?;
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(self.files.path("log"))?;
        let mut stdout = io::stdout();
        stdout.write_all(READY).and_then(|()| stdout.flush())?;
        // Paths are resolved by now; no directory is kept busy.
        env::set_current_dir("/")?;
        rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        rustix::stdio::dup2_stderr(log)?;
        Ok(listener)
    }

    /// Adds one that waits for the end.
    pub(crate) fn await_end(&self, waiter: UnixStream) {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.files.name
    }

    /// Frees the name, and tells those who wait what the log says. If the machine was ready and nobody waits, the log
    /// is left for the next command that meets the name.
    pub fn end(&self) {
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
        let log = fs::read(self.files.path("log"));
        if waiters.is_empty() && log.is_ok() {
            return;
        }
        self.files.remove();
        let log = log.unwrap_or_default();
        for mut waiter in waiters {
            // One that has gone needs no answer.
            let _ = waiter.write_all(&log);
        }
    }
}

impl Files {
    /// Returns the files of `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid, or the directory cannot be made or is accessible to others.
    pub(crate) fn of(name: &str) -> Result<Self> {
        check(name)?;
        Ok(Self { name: name.to_owned(), dir: directory()? })
    }

    /// Returns the names that are there, sorted.
    pub(crate) fn names() -> Result<Vec<String>> {
        let dir = directory()?;
        let entries = fs::read_dir(&dir).map_err(Error::io(format!("cannot read {dir:?}")))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".lock").map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Looks who has the name. If the keeper has ended, removes the files.
    pub(crate) fn holder(&self) -> Result<Holder> {
        let failed = || Error::io(format!("cannot look for the machine {}", self.name));
        if !self.path("lock").exists() {
            return Ok(Holder::Nobody);
        }
        if let Some(_lock) = self.lock().map_err(failed())? {
            let log = self.log().unwrap_or_default();
            self.remove();
            return Ok(Holder::Ended(log));
        }
        match UnixStream::connect(self.path("socket")) {
            Ok(stream) => Ok(Holder::Running(stream)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(Holder::Starting)
            }
            Err(error) => Err(failed()(error)),
        }
    }

    /// Locks the name, or returns `None` if somebody has it.
    fn lock(&self) -> io::Result<Option<File>> {
        let path = self.path("lock");
        loop {
            let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Whoever held it before may have removed the file: then the lock is on nothing.
            let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
            if fs::metadata(&path).map(inode).ok() == Some(inode(lock.metadata()?)) {
                return Ok(Some(lock));
            }
        }
    }

    /// Returns what a keeper has written to its log.
    fn log(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.path("log"))?).into_owned())
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.dir.join(format!("{}.{kind}", self.name))
    }

    /// Removes the files. This process must have the lock.
    fn remove(&self) {
        self.remove_but_lock();
        let _ = fs::remove_file(self.path("lock"));
    }

    fn remove_but_lock(&self) {
        for kind in ["socket", "log"] {
            let _ = fs::remove_file(self.path(kind));
        }
    }
}

fn check(name: &str) -> Result<()> {
    let is_valid = name.len() <= NAME_LEN_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if is_valid {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{name:?} is no name of a machine: up to {NAME_LEN_MAX} letters, digits, '.', '_' and '-', of which the first \
         is a letter or a digit"
    )))
}

/// Returns the directory of the names, which is made if it is missing.
fn directory() -> Result<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    let dir = match runtime {
        Some(runtime) => runtime.join("transom"),
        None => env::temp_dir().join(format!("transom-{}", geteuid().as_raw())),
    };
    private(&dir)?;
    Ok(dir)
}

/// Makes `dir`, unless it is there and only this user can access it.
fn private(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io(format!("cannot create {dir:?}"))(error));
        }
        _ => {}
    }
    let metadata = fs::symlink_metadata(dir).map_err(Error::io(format!("cannot read {dir:?}")))?;
    let is_private =
        metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.permissions().mode() & 0o077 == 0;
    if is_private {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{dir:?} is not a directory that only this user can access: remove it, or set XDG_RUNTIME_DIR to another one"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path, name: &str) -> Files {
        Files { name: name.into(), dir: dir.into() }
    }

    #[test]
    fn names_are_words_that_stay_in_the_directory() {
        for name in ["a", "build-1", "A.b_c", "0"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "-a", "a/b", "a b", "ä", "a\0", &"a".repeat(49)] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_is_taken_once_and_free_after_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), "a");
        assert!(matches!(files.holder().unwrap(), Holder::Nobody));
        let lock = files.lock().unwrap().unwrap();
        assert!(files.lock().unwrap().is_none());
        assert!(matches!(files.holder().unwrap(), Holder::Starting));
        let listener = UnixListener::bind(files.path("socket")).unwrap();
        assert!(matches!(files.holder().unwrap(), Holder::Running(_)));
        // A keeper that was killed leaves its files.
        drop((lock, listener));
        fs::write(files.path("log"), "why").unwrap();
        assert!(matches!(files.holder().unwrap(), Holder::Ended(log) if log == "why"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(files.lock().unwrap().is_some());
    }

    #[test]
    fn a_directory_that_others_can_access_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("transom");
        private(&dir).unwrap();
        private(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(private(&dir).is_err());
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("/root", &link).unwrap();
        assert!(private(&link).is_err());
    }
}
