//! Parsing of paths.

use transom_wire::{Name, NameError};

use crate::Errno;

/// Maximum length of a path in bytes: one less than Linux's PATH_MAX, which counts a NUL.
const PATH_LEN_MAX: usize = 4095;

/// The last component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last<'p> {
    /// A name, and whether slashes follow it.
    Name(&'p [u8], bool),
    /// `.`
    Here,
    /// `..`
    Above,
    /// The path has only slashes.
    Root,
}

/// Checks a whole path. Errors: ENOENT for an empty path, EINVAL for a NUL in it, ENAMETOOLONG.
pub(super) fn check(path: &[u8]) -> Result<(), Errno> {
    match path.len() {
        0 => Err(Errno::NOENT),
        1..=PATH_LEN_MAX if !path.contains(&0) => Ok(()),
        1..=PATH_LEN_MAX => Err(Errno::INVAL),
        _ => Err(Errno::NAMETOOLONG),
    }
}

/// Returns the first component after leading slashes, and the rest; `None` if there is no component left.
pub(super) fn split_first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = path.iter().position(|&byte| byte != b'/')?;
    let path = &path[begin..];
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    Some(path.split_at(end))
}

/// Returns the part before the last component, and the last component.
pub(super) fn split_last(path: &[u8]) -> (&[u8], Last<'_>) {
    let Some(end) = path.iter().rposition(|&byte| byte != b'/') else { return (path, Last::Root) };
    let is_slashed = end + 1 < path.len();
    let path = &path[..=end];
    let begin = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (before, last) = path.split_at(begin);
    let last = match last {
        b"." => Last::Here,
        b".." => Last::Above,
        name => Last::Name(name, is_slashed),
    };
    (before, last)
}

/// Returns a component as a name. Errors: ENAMETOOLONG, EINVAL for bytes that no path can contain.
pub(super) fn name(bytes: &[u8]) -> Result<Name<'_>, Errno> {
    Name::new(bytes).map_err(|error| match error {
        NameError::TooLong(_) => Errno::NAMETOOLONG,
        NameError::Empty | NameError::ForbiddenByte(_) | NameError::Dots => Errno::INVAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_at_its_last_name() {
        for (path, before, last) in [
            (&b"a"[..], &b""[..], Last::Name(b"a", false)),
            (b"a/", b"", Last::Name(b"a", true)),
            (b"/a", b"/", Last::Name(b"a", false)),
            (b"a//b///", b"a//", Last::Name(b"b", true)),
            (b"a/.", b"a/", Last::Here),
            (b"../..", b"../", Last::Above),
            (b"//", b"//", Last::Root),
            (b"...", b"", Last::Name(b"...", false)),
        ] {
            assert_eq!(split_last(path), (before, last), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn a_path_is_walked_name_by_name() {
        assert_eq!(split_first(b"//a/b/"), Some((&b"a"[..], &b"/b/"[..])));
        assert_eq!(split_first(b"/b/"), Some((&b"b"[..], &b"/"[..])));
        assert_eq!(split_first(b"/"), None);
        assert_eq!(split_first(b""), None);
    }

    #[test]
    fn what_no_path_is_is_refused() {
        assert_eq!(check(b""), Err(Errno::NOENT));
        assert_eq!(check(b"a\0b"), Err(Errno::INVAL));
        assert_eq!(check(&[b'/'; 4095]), Ok(()));
        assert_eq!(check(&[b'/'; 4096]), Err(Errno::NAMETOOLONG));
        assert_eq!(name(&[b'x'; 256]), Err(Errno::NAMETOOLONG));
    }
}
