//! What a later daemon needs is where the first one found it: whatever this process and the mount do to paths.

use std::{fs, path::Path};

use crate::MountError;
use transom_user::share::Builder;

/// `source` for as long as `mountpoint` is mounted on.
///
/// Errors: what it needs lies at or beneath the mountpoint, where it would be hidden by the mount, and be looked for by way of the
/// daemon that is gone.
pub(crate) fn reachable(source: Builder, mountpoint: &Path) -> Result<Builder, MountError> {
    let source = source.anchored();
    // What cannot be found is told by who needs it.
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
    fn what_the_mount_would_hide_is_refused_and_what_it_lies_in_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, link) = (dir.path().join("one/two"), dir.path().join("link"));
        fs::create_dir_all(&inner).unwrap();
        std::os::unix::fs::symlink(dir.path().join("one"), &link).unwrap();
        let share = |path: &Path| Share::builder().shared_dir(path);
        for (shared, mountpoint) in [(&inner, &inner), (&inner, &dir.path().join("one")), (&inner, &link)] {
            let error = reachable(share(shared), mountpoint).err().unwrap();
            assert!(matches!(&error, MountError::Hidden { path, .. } if path == shared), "{error}");
        }
        // The mount may lie in the share, or beside it under a name that begins alike.
        assert!(reachable(share(dir.path()), &inner).is_ok());
        fs::create_dir(dir.path().join("one/twofold")).unwrap();
        assert!(reachable(share(&dir.path().join("one/twofold")), &inner).is_ok());
        // The same for the daemon itself, where one is started.
        let program = inner.join("daemon");
        fs::write(&program, "").unwrap();
        assert!(reachable(share(dir.path()).daemon(Program::new(&program)), &inner).is_err());
        assert!(reachable(Share::builder().socket("/nonexistent").daemon(Program::new(&program)), &inner).is_ok());
    }
}
