//! Who can replace the executable that an upgrade starts, outside the sandbox and with the caller's rights.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::process::{getegid, geteuid};

use super::step::Refusal;

/// The bits of a mode that let the group and others write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In a directory with this bit, only owners rename and remove files.
const STICKY: u32 = 0o1000;

/// Fails if somebody other than root and this user can replace `executable`, or a guest can.
///
/// `writable_share` is what guests can write, if they can write anything. Each directory on the way is checked, by name
/// and as links lead, since whoever renames one replaces what is below it. A directory of the share is recognised at
/// every mount, except one that is mounted again below the share.
///
/// # Errors
///
/// With the reason, which names the path.
pub(super) fn check(executable: &Path, writable_share: Option<&Path>) -> Result<(), Refusal> {
    let failed = |path: &Path, error: io::Error| format!("cannot look at {}: {error}", path.display());
    // If it is gone, the new daemon says so.
    let share = writable_share.and_then(|share| fs::metadata(share).ok());
    let target = executable.canonicalize().map_err(|error| {
        // As the attempt to start it would say.
        format!("cannot start {}: {error}", executable.display())
    })?;
    let mut paths: Vec<PathBuf> = executable.ancestors().chain(target.ancestors()).map(Path::to_owned).collect();
    paths.dedup();
    for path in paths.iter().filter(|path| !path.as_os_str().is_empty()) {
        let found = fs::metadata(path).map_err(|error| failed(path, error))?;
        if share.as_ref().is_some_and(|share| (share.dev(), share.ino()) == (found.dev(), found.ino())) {
            return Err(format!(
                "{} is in the shared directory, so a guest could replace it: install transomd elsewhere",
                executable.display()
            ));
        }
        check_owner(path, &found)?;
    }
    Ok(())
}

fn check_owner(path: &Path, found: &fs::Metadata) -> Result<(), Refusal> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let is_ours = [0, user].contains(&found.uid());
    let group_writes = found.mode() & GROUP_WRITES != 0 && ![0, group].contains(&found.gid());
    let others_write = found.mode() & OTHERS_WRITE != 0;
    let is_protected = found.is_dir() && found.mode() & STICKY != 0;
    if !is_ours || (group_writes || others_write) && !is_protected {
        return Err(format!(
            "{} can be changed by other users (owner {}, group {}, mode {:o}), who could have any program started: \
             let only root and the daemon's user write it",
            path.display(),
            found.uid(),
            found.gid(),
            found.mode() & 0o7777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A directory with `bin/program`, and a share beside it.
    fn prepared() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (bin, share) = (dir.path().join("bin"), dir.path().join("share"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir_all(share.join("below")).unwrap();
        for path in [&bin, &share, &share.join("below")] {
            set_mode(path, 0o755);
        }
        let program = bin.join("program");
        fs::write(&program, "").unwrap();
        set_mode(&program, 0o755);
        (dir, program, share)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_that_only_its_user_can_write_is_started() {
        let (_dir, program, share) = prepared();
        check(&program, Some(&share)).unwrap();
    }

    #[test]
    fn a_program_below_a_writable_share_is_refused() {
        let (dir, program, share) = prepared();
        let inside = share.join("below/program");
        fs::copy(&program, &inside).unwrap();
        assert!(check(&inside, Some(&share)).unwrap_err().contains("shared directory"));
        check(&inside, None).unwrap();
        // By a link, and into the share from outside of it.
        let link = dir.path().join("bin/link");
        symlink(&inside, &link).unwrap();
        assert!(check(&link, Some(&share)).unwrap_err().contains("shared directory"));
        // The link itself is in the share.
        let link = share.join("link");
        symlink(&program, &link).unwrap();
        assert!(check(&link, Some(&share)).unwrap_err().contains("shared directory"));
        // The share is the file itself.
        assert!(check(&program, Some(&program)).unwrap_err().contains("shared directory"));
    }

    #[test]
    fn a_program_that_others_can_write_or_replace_is_refused() {
        let (dir, program, share) = prepared();
        for path in [&program, &dir.path().join("bin"), &dir.path().to_owned()] {
            set_mode(path, 0o757);
            let refusal = check(&program, Some(&share)).unwrap_err();
            assert!(refusal.contains("other users") && refusal.contains("757"), "{refusal}");
            set_mode(path, 0o755);
        }
        // Others cannot rename what is in it.
        set_mode(&dir.path().join("bin"), 0o1777);
        check(&program, Some(&share)).unwrap();
    }

    #[test]
    fn a_program_of_another_user_or_group_is_refused() {
        use std::os::unix::fs::chown;
        const OTHER: u32 = 12_345;
        let (_dir, program, share) = prepared();
        if chown(&program, None, Some(OTHER)).is_err() {
            return eprintln!("SKIPPED: only root changes owners");
        }
        check(&program, Some(&share)).unwrap();
        set_mode(&program, 0o775);
        assert!(check(&program, Some(&share)).unwrap_err().contains("other users"));
        set_mode(&program, 0o755);
        chown(&program, Some(OTHER), None).unwrap();
        assert!(check(&program, Some(&share)).unwrap_err().contains("other users"));
    }
}
