//! Mount points of shares in the guest: which cannot be, and in which order shares are mounted.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use crate::{Error, Result, Share};

/// File systems of the guest's kernel that every guest needs.
const TAKEN: [&str; 4] = ["/proc", "/sys", "/dev", "/dev/pts"];

/// Returns `path` without `.` and repeated slashes.
///
/// # Errors
/// The reason, if the path is relative, has `..`, or is one where no share can be mounted.
pub(crate) fn checked(path: &Path) -> std::result::Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err(format!("the guest's path {path:?} is not absolute"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("the guest's path {path:?} contains \"..\""));
    }
    let plain: PathBuf = path.components().collect();
    if plain == Path::new("/") {
        return Err(
            "a share cannot be mounted over the guest's root: mount it elsewhere, as in HOST:/mnt/NAME, or use \
                    --root HOST for a root that the guest cannot change"
                .into(),
        );
    }
    if TAKEN.iter().any(|taken| plain == Path::new(taken)) {
        return Err(format!("the guest's kernel needs {plain:?} for itself"));
    }
    Ok(plain)
}

/// Returns the numbers of `shares` in the order of mounting: a share inside another comes after it.
///
/// # Errors
/// Returns an error if a share cannot be mounted at its path, or two have the same path.
pub fn order(shares: &[Share]) -> Result<Vec<usize>> {
    let mut at: HashMap<PathBuf, &Share> = HashMap::new();
    let mut numbered = Vec::new();
    for (number, share) in shares.iter().enumerate() {
        let path = checked(&share.guest).map_err(|reason| Error::Usage(format!("share {:?}: {reason}", share.host)))?;
        numbered.push((path.components().count(), number));
        if let Some(other) = at.insert(path, share) {
            return Err(Error::Usage(format!(
                "shares {:?} and {:?} would both be mounted at {:?}; choose another path for one, as in {}:/mnt/OTHER",
                other.host,
                share.host,
                share.guest,
                share.host.display()
            )));
        }
    }
    numbered.sort_unstable();
    Ok(numbered.into_iter().map(|(_, number)| number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(guest: &str) -> Share {
        Share { host: format!("/host{guest}").into(), guest: guest.into(), ..Share::default() }
    }

    #[test]
    fn a_share_inside_another_is_mounted_after_it() {
        let shares = ["/a/b/c", "/a", "/x", "/a//b/./"].map(share);
        assert_eq!(order(&shares).unwrap(), [1, 2, 3, 0]);
    }

    #[test]
    fn two_shares_at_one_path_are_refused_with_both_names() {
        let error = order(&["/mnt/src", "/mnt//src/"].map(share)).unwrap_err().to_string();
        assert!(error.contains("\"/host/mnt/src\" and \"/host/mnt//src/\""), "{error}");
    }

    #[test]
    fn a_path_where_no_share_can_be_is_refused_with_the_reason() {
        for (path, reason) in [
            ("/", "over the guest's root"),
            ("//.", "over the guest's root"),
            ("/mnt/..", "contains \"..\""),
            ("/proc/", "needs \"/proc\" for itself"),
            ("/dev", "needs \"/dev\" for itself"),
            ("mnt", "is not absolute"),
        ] {
            let error = order(&[share(path)]).unwrap_err().to_string();
            assert!(error.contains(reason), "{path}: {error}");
        }
        assert_eq!(checked(Path::new("/dev/shm/./x")).unwrap(), Path::new("/dev/shm/x"));
    }
}
