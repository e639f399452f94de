//! The directory of all overlays of this user: where it is, the names in it, and the locks.

use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    process::geteuid,
};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// How often a command looks whether another has left the overlay.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns the directory of all overlays of this user.
pub(crate) fn state() -> Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let state = state.ok_or_else(|| {
        Error::Place("neither XDG_STATE_HOME nor HOME is set, and changes are kept there: set one".into())
    })?;
    Ok(resolved(&state).join("transom/overlays"))
}

/// Returns an absolute path of which the part that exists has no symbolic links.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = path.ancestors().find_map(|above| Some((fs::canonicalize(above).ok()?, above)));
    match existing.and_then(|(real, above)| Some((real, path.strip_prefix(above).ok()?))) {
        Some((real, rest)) if rest.as_os_str().is_empty() => real,
        Some((real, rest)) => real.join(rest),
        None => path,
    }
}

/// Makes the directory of all overlays, which must be this user's alone.
pub(crate) fn prepare(place: &Path) -> Result<()> {
    let failed = || format!("cannot make {place:?}");
    private().recursive(true).create(place).map_err(Error::io(failed))?;
    check_private(place)
}

/// Checks that nobody else can put anything there. Root would follow it.
pub(crate) fn check_private(place: &Path) -> Result<()> {
    let meta = fs::metadata(place).map_err(Error::io(|| format!("cannot look at {place:?}")))?;
    if meta.uid() != geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(Error::Place(format!(
            "{} belongs to another user, or others can reach it: changes are kept there, so `chown` and `chmod 700` \
             it, or set XDG_STATE_HOME",
            place.display()
        )));
    }
    Ok(())
}

pub(crate) fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

pub(crate) fn canonical(directory: &Path) -> Result<PathBuf> {
    let failed = || format!("cannot find {directory:?}");
    let real = fs::canonicalize(directory).map_err(Error::io(failed))?;
    match real.is_dir() {
        true => Ok(real),
        false => Err(Error::io(failed)(io::Error::from(io::ErrorKind::NotADirectory))),
    }
}

/// Returns the name of the overlay of `directory`: its own, as far as it is short and plain, and a digest of its path.
pub(crate) fn key(directory: &Path) -> String {
    /// Enough to recognise it.
    const NAME_MAX: usize = 40;
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
    let name: String = name.chars().filter(is_plain).take(NAME_MAX).collect();
    let digest = Sha256::digest(directory.as_os_str().as_bytes());
    let digest: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("{name}+{digest}")
}

pub(crate) fn beside(state: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(state);
    name.push(ending);
    name.into()
}

/// Takes the lock of the overlay at `state`; waits for others for `wait`.
pub(crate) fn lock(state: &Path, directory: &Path, wait: Duration) -> Result<File> {
    let path = beside(state, ".lock");
    let failed = || format!("cannot lock {path:?}");
    const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .open(&path);
    let file = file.map_err(Error::io(failed))?;
    let deadline = Instant::now() + wait;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Err(Errno::WOULDBLOCK) => return Err(Error::InUse(directory.to_owned())),
            Err(errno) => return Err(Error::io(failed)(errno)),
        }
    }
}
