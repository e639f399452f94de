//! [`Cache`]: the directory for fetched packages, kernels, and files built from them.

use std::{
    env,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{Error, Report, Result};

/// The environment variable with the cache's path, which takes precedence.
const VARIABLE: &str = "TRANSOM_CACHE";
/// Leaves room for a suffix within the 255 bytes of a file name.
const NAME_MAX: usize = 120;

/// A directory whose contents can be fetched or built again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    dir: PathBuf,
}

/// A lock held by one run at a time; released when dropped, and when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Cache {
    /// Returns the default cache: `$TRANSOM_CACHE`, or else `target/cache` if the current directory is in a checkout of
    /// this project, or else `transom` in `$XDG_CACHE_HOME` or `~/.cache`.
    ///
    /// # Errors
    ///
    /// Returns an error if none of these is known, because `$HOME` is not set.
    pub fn locate() -> Result<Self> {
        let current = env::current_dir().ok();
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        located(current.as_deref(), variable).map(|dir| Self { dir }).ok_or(Error::NoCache)
    }

    /// Returns the cache in `dir`, which is created when it is first used.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes the lock `name`. If another run has it, reports that and blocks.
    pub(crate) fn lock(&self, name: &str, report: &dyn Report) -> Result<Lock> {
        let path = self.dir.join(format!("{name}.lock"));
        let doing = || format!("cannot lock {path:?}");
        fs::create_dir_all(&self.dir).map_err(Error::io(format!("cannot create the cache {:?}", self.dir)))?;
        let file = File::create(&path).map_err(Error::io(doing()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                report.say(&format!("waiting for another run, which holds {path:?}"));
                file.lock().map_err(Error::io(doing()))?;
            }
            Err(TryLockError::Error(error)) => return Err(Error::io(doing())(error)),
        }
        Ok(Lock { _file: file })
    }
}

fn located(current: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(named) = variable(VARIABLE) {
        return Some(named);
    }
    if let Some(checkout) = current.and_then(checkout_of) {
        return Some(checkout.join("target/cache"));
    }
    // The XDG specification says to ignore relative paths.
    let user = variable("XDG_CACHE_HOME").filter(|dir| dir.is_absolute());
    user.or_else(|| Some(variable("HOME")?.join(".cache"))).map(|dir| dir.join("transom"))
}

/// Returns the root of this project's sources, if `path` is in them.
pub(crate) fn checkout_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| is_checkout(dir))
}

/// Returns whether `dir` is the root of this project's sources.
fn is_checkout(dir: &Path) -> bool {
    dir.join("crates/vm/Cargo.toml").is_file()
        && fs::read_to_string(dir.join("Cargo.toml")).is_ok_and(|text| text.contains("[workspace]"))
}

/// Returns `name`, or its beginning and a hash if it is too long for a file name.
pub(super) fn short(name: &str) -> String {
    if name.len() <= NAME_MAX {
        return name.to_owned();
    }
    let beginning: String = name.chars().take(NAME_MAX / 4).collect();
    format!("{beginning}-{}", digest(&[name.as_bytes()]))
}

/// Returns the first 64 bits of the SHA-256 of `parts` and their lengths, in hexadecimal.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<PathBuf> {
        move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into())
    }

    #[test]
    fn the_variable_wins_over_the_checkout() {
        let here = env::current_dir().unwrap();
        let path = located(Some(&here), variables(&[("TRANSOM_CACHE", "/big/disk"), ("HOME", "/home/me")]));
        assert_eq!(path.unwrap(), Path::new("/big/disk"));
    }

    #[test]
    fn a_checkout_keeps_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("crates/vm/src");
        fs::create_dir_all(&deep).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        fs::write(folder.path().join("crates/vm/Cargo.toml"), "[package]\n").unwrap();
        let path = located(Some(&deep), variables(&[("HOME", "/home/me")]));
        assert_eq!(path.unwrap(), folder.path().join("target/cache"));
    }

    #[test]
    fn elsewhere_it_is_the_users_cache() {
        let found = |pairs| located(Some(Path::new("/")), variables(pairs));
        assert_eq!(found(&[("HOME", "/home/me")]).unwrap(), Path::new("/home/me/.cache/transom"));
        assert_eq!(
            found(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/var/me")]).unwrap(),
            Path::new("/var/me/transom")
        );
        assert_eq!(
            found(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "here")]).unwrap(),
            Path::new("/home/me/.cache/transom")
        );
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_digest_depends_on_where_parts_end() {
        assert_eq!(digest(&[b"ab", b"c"]), digest(&[b"ab", b"c"]));
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_eq!(digest(&[b""]).len(), 16);
    }

    #[test]
    fn a_lock_is_for_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let lock = cache.lock("x", &super::super::Quiet).unwrap();
        let second = File::open(folder.path().join("x.lock")).unwrap();
        assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        assert!(second.try_lock().is_ok());
    }
}
