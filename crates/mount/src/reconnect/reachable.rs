//! Checks that a later daemon can find what the first one found, once the share is mounted.

use std::{fs, path::Path};

use crate::MountError;
use transom_user::share::Builder;

/// Returns `source` with absolute paths.
///
/// # Errors
/// A path that it needs lies at or below `mountpoint`. The mount would hide it, and looking it up would need the daemon
/// that is gone.
pub(crate) fn ensure_reachable(source: Builder, mountpoint: &Path) -> Result<Builder, MountError> {
    let source = source.anchored();
    // A path that does not exist is reported by whoever needs it.
    let Ok(mountpoint) = fs::canonicalize(mountpoint) else { return Ok(source) };
    let is_hidden = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path.starts_with(&mountpoint));
    if let Some(path) = source.needed_paths().find(|path| is_hidden(path)) {
        return Err(MountError::Hidden { path: path.to_owned(), mountpoint: mountpoint.clone() });
    }
    Ok(source.forget_dir_if(is_hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_user::{daemon::Program, share::Share};

    #[test]
    fn a_path_that_the_mount_would_hide_is_refused_and_one_that_contains_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, link) = (dir.path().join("one/two"), dir.path().join("link"));
        fs::create_dir_all(&inner).unwrap();
        std::os::unix::fs::symlink(dir.path().join("one"), &link).unwrap();
        let share = |path: &Path| Share::builder().shared_dir(path);
        for (shared, mountpoint) in [(&inner, &inner), (&inner, &dir.path().join("one")), (&inner, &link)] {
            let error = ensure_reachable(share(shared), mountpoint).err().unwrap();
            assert!(matches!(&error, MountError::Hidden { path, .. } if path == shared), "{error}");
        }
        // The mount point may lie in the share, or beside it under a name with the same beginning.
        assert!(ensure_reachable(share(dir.path()), &inner).is_ok());
        fs::create_dir(dir.path().join("one/twofold")).unwrap();
        assert!(ensure_reachable(share(&dir.path().join("one/twofold")), &inner).is_ok());
        // The same for the daemon itself, where one is started.
        let program = inner.join("daemon");
        fs::write(&program, "").unwrap();
        assert!(ensure_reachable(share(dir.path()).daemon(Program::new(&program)), &inner).is_err());
        assert!(
            ensure_reachable(Share::builder().socket("/nonexistent").daemon(Program::new(&program)), &inner).is_ok()
        );
    }
}
