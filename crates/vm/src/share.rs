//! Shares on the command line: `HOST[:GUEST][,ro][,overlay[=WHO]][,cache=MODE][,dax=SIZE][,dax-mode=MODE]`.
//!
//! [`ShareArg`] is the parsed argument. A colon or comma within a path is escaped with a backslash.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::AsRawFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use crate::{CacheMode, Dax, DaxMode, Directory, Error, MountedBy, Result, Share, mount_points};

/// A share as written, before the directory is checked and the mount point is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareArg {
    /// The directory on the host.
    pub host: PathBuf,
    /// The mount point in the guest, if given.
    pub guest: Option<PathBuf>,
    /// Whether `ro` was given.
    pub is_read_only: bool,
    /// `overlay`, with who mounts it, if given.
    pub overlay: Option<OverlayArg>,
    /// `cache=MODE`, if given.
    pub cache: Option<CacheMode>,
    /// `dax=SIZE` and `dax-mode=MODE`, if given.
    pub dax: Option<Dax>,
    /// `image=NAME`, if given: the image of several that the guest gets as its root.
    pub image: Option<String>,
}

/// Who mounts the overlay of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayArg {
    /// The host's kernel, or the guest's where the host's cannot.
    Auto,
    /// `overlay=host`, `overlay=guest`.
    By(MountedBy),
}

/// Length of the smallest window in bytes: the unit in which Linux maps.
const WINDOW_LEN_MIN: u64 = 2 << 20;

impl ShareArg {
    /// Parses `HOST[:GUEST][,ro][,overlay[=WHO]][,cache=MODE][,dax=SIZE][,dax-mode=MODE]`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no host directory, nothing can be mounted at the guest's path, an option is
    /// unknown or invalid, or a read-only share has a window or an overlay.
    pub fn parse(words: &OsStr) -> Result<Self> {
        let mut fields = split(words.as_bytes(), b',').into_iter();
        let paths = fields.next().unwrap_or_default();
        let mut paths = split(&paths, b':').into_iter().map(|path| PathBuf::from(OsString::from_vec(unescaped(&path))));
        let unclear = |reason: String| Error::Usage(format!("share {words:?}: {reason}"));

        let host = paths.next().filter(|path| !path.as_os_str().is_empty());
        let mut share = Self {
            host: host.ok_or_else(|| unclear("no host directory given".into()))?,
            guest: paths.next(),
            is_read_only: false,
            overlay: None,
            cache: None,
            dax: None,
            image: None,
        };
        let mut mode = None;
        if let Some(rest) = paths.next() {
            return Err(unclear(format!("unexpected third path {rest:?}; write a colon within a path as \\:")));
        }
        share.guest = share.guest.as_deref().map(mount_points::checked).transpose().map_err(unclear)?;
        for field in fields {
            let field = String::from_utf8_lossy(&field).into_owned();
            match field.split_once('=') {
                None if field == "ro" => share.is_read_only = true,
                None if field == "overlay" => share.overlay = Some(OverlayArg::Auto),
                Some(("overlay", "host")) => share.overlay = Some(OverlayArg::By(MountedBy::Daemon)),
                Some(("overlay", "guest")) => share.overlay = Some(OverlayArg::By(MountedBy::Guest)),
                Some(("overlay", who)) => {
                    return Err(unclear(format!("overlay={who}: expected overlay, overlay=host or overlay=guest")));
                }
                None if field == "rw" => share.is_read_only = false,
                Some(("cache", mode)) => share.cache = Some(mode.parse().map_err(|error| unclear(format!("{error}")))?),
                Some(("dax", size)) => {
                    let window_len = window_len(size).map_err(unclear)?;
                    share.dax = Some(Dax { window_len, mode: DaxMode::default() });
                }
                Some(("image", name)) => share.image = Some(name.to_owned()),
                Some(("dax-mode", word)) => mode = Some(word.parse().map_err(|error| unclear(format!("{error}")))?),
                _ => {
                    return Err(unclear(format!(
                        "unknown option {field:?}: expected ro, rw, overlay, cache=MODE, dax=SIZE or dax-mode=MODE; \
                         write a comma within a path as \\,"
                    )));
                }
            }
        }
        match (&mut share.dax, mode) {
            (Some(dax), Some(mode)) => dax.mode = mode,
            (None, Some(_)) => return Err(unclear("dax-mode requires dax=SIZE".into())),
            (_, None) => {}
        }
        if share.overlay.is_some() && share.is_read_only {
            return Err(unclear("ro and overlay exclude each other: an overlay is for what the guest changes".into()));
        }
        if share.dax.is_some() && share.is_read_only {
            return Err(unclear("a read-only share cannot have a DAX window, because QEMU maps files writable".into()));
        }
        Ok(share)
    }

    /// Checks the directory and returns the share; `guest_path` returns the default mount point.
    ///
    /// # Errors
    ///
    /// Returns an error if the path does not exist or is not a directory.
    pub fn resolve(self, guest_path: impl FnOnce(&Path) -> PathBuf) -> Result<Share> {
        let missing = |advice: String| Error::Missing { what: "the shared directory", path: self.host.clone(), advice };
        let host = fs::canonicalize(&self.host).map_err(|error| missing(error.to_string()))?;
        if !host.is_dir() {
            return Err(Error::Usage(format!(
                "share {:?}: it is not a directory; share the one that contains it",
                self.host
            )));
        }
        let guest = self.guest.unwrap_or_else(|| guest_path(&host));
        let Self { is_read_only, cache, dax, .. } = self;
        Ok(Share { host, guest, is_read_only, cache, dax, ..Share::default() })
    }
}

impl ShareArg {
    /// As [`resolve`](Self::resolve), for a directory whose path somebody may change meanwhile: opens it once. The
    /// share's path is where it was then.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub fn open(self, guest_path: impl FnOnce(&Path) -> PathBuf) -> Result<Share> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat2(CWD, &self.host, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Ok(directory) => directory,
            // It says why.
            Err(errno) => {
                let advice = errno.to_string();
                let path = self.host.clone();
                self.resolve(guest_path)?;
                return Err(Error::Missing { what: "the shared directory", path, advice });
            }
        };
        let opened = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let share = Self { host: opened, ..self }.resolve(guest_path)?;
        Ok(Share { directory: Some(Directory(Arc::new(directory))), ..share })
    }
}

impl CacheMode {
    /// Returns the name of the mode on the daemon's command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Metadata => "metadata",
            Self::Auto => "auto",
            Self::Always => "always",
        }
    }
}

impl FromStr for CacheMode {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "never" | "none" => Ok(Self::Never),
            "metadata" => Ok(Self::Metadata),
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            _ => Err(Error::Usage(format!("unknown cache mode {word:?}: expected never, metadata, auto or always"))),
        }
    }
}

impl FromStr for DaxMode {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "inode" => Ok(Self::Inode),
            "always" => Ok(Self::Always),
            _ => Err(Error::Usage(format!("unknown DAX mode {word:?}: expected inode or always"))),
        }
    }
}

/// Parses the size of a window: a power of two of 2 MiB or more.
fn window_len(words: &str) -> std::result::Result<u64, String> {
    match transom_size::parse(words).map_err(|error| format!("window size: {error}"))? {
        bytes if bytes.is_power_of_two() && bytes >= WINDOW_LEN_MIN => Ok(bytes),
        _ => Err(format!("window size {words:?} is not a power of two of 2M or more")),
    }
}

/// Splits at each `separator` that is not escaped; keeps the backslashes.
fn split(bytes: &[u8], separator: u8) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut is_escaped = false;
    for &byte in bytes {
        if byte == separator && !is_escaped {
            parts.push(Vec::new());
            continue;
        }
        is_escaped = byte == b'\\' && !is_escaped;
        if let Some(part) = parts.last_mut() {
            part.push(byte);
        }
    }
    parts
}

/// Removes the backslash before a colon, a comma or a backslash.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut bytes = bytes.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match bytes.peek() {
            Some(&next) if byte == b'\\' && matches!(next, b':' | b',' | b'\\') => {
                plain.push(next);
                bytes.next();
            }
            _ => plain.push(byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<ShareArg> {
        ShareArg::parse(OsStr::new(words))
    }

    #[test]
    fn a_path_alone_is_a_writable_share() {
        let share = parse("/srv/data").unwrap();
        assert_eq!(
            share,
            ShareArg {
                host: "/srv/data".into(),
                guest: None,
                is_read_only: false,
                overlay: None,
                cache: None,
                dax: None,
                image: None,
            }
        );
    }

    #[test]
    fn guest_path_and_options_are_understood_in_any_order() {
        let expected = ShareArg {
            host: ".".into(),
            guest: Some("/mnt/x".into()),
            is_read_only: true,
            overlay: None,
            cache: Some(CacheMode::Always),
            dax: None,
            image: None,
        };
        assert_eq!(parse(".:/mnt/x,ro,cache=always").unwrap(), expected);
        assert_eq!(parse(".:/mnt/x,cache=always,ro").unwrap(), expected);
        assert_eq!(parse("d,overlay").unwrap().overlay, Some(OverlayArg::Auto));
        assert_eq!(parse("d,overlay=guest").unwrap().overlay, Some(OverlayArg::By(MountedBy::Guest)));
        assert_eq!(parse("d,cache=none").unwrap().cache, Some(CacheMode::Never));
    }

    #[test]
    fn a_window_has_a_size_and_a_mode() {
        let dax = |window_len, mode| Some(Dax { window_len, mode });
        assert_eq!(parse("a,dax=256M").unwrap().dax, dax(256 << 20, DaxMode::Inode));
        assert_eq!(parse("a,dax-mode=always,dax=1g").unwrap().dax, dax(1 << 30, DaxMode::Always));
        assert_eq!(parse("a,dax=2097152,dax-mode=inode").unwrap().dax, dax(2 << 20, DaxMode::Inode));
    }

    #[test]
    fn a_backslash_keeps_separators_within_a_path() {
        let share = parse(r"/a\:b\,c\\d:/e").unwrap();
        assert_eq!((share.host.to_str(), share.guest), (Some(r"/a:b,c\d"), Some("/e".into())));
        assert_eq!(parse(r"/a\b").unwrap().host, Path::new(r"/a\b"));
    }

    #[test]
    fn what_says_nothing_is_refused_with_the_reason() {
        for (words, reason) in [
            ("", "no host directory"),
            (":/mnt", "no host directory"),
            ("a:b", "is not absolute"),
            ("a:/", "over the guest's root"),
            ("a:/b:/c", "unexpected third path"),
            ("a,readonly", "\"readonly\": expected"),
            ("/srv/a,b", "a comma within a path as \\,"),
            ("a,ro,overlay", "exclude each other"),
            ("a,overlay=me", "expected overlay, overlay=host or overlay=guest"),
            ("a,cache=most", "\"most\": expected"),
            ("a,dax", "\"dax\": expected"),
            ("a,dax=1M", "not a power of two of 2M or more"),
            ("a,dax=3M", "not a power of two of 2M or more"),
            ("a,dax=99999999999G", "exceeds 64 bits"),
            ("a,dax=big", "unknown unit \"BIG\""),
            ("a,dax=G", "\"G\" is not a size"),
            ("a,dax=4M,dax-mode=never", "\"never\": expected"),
            ("a,dax-mode=always", "requires dax=SIZE"),
            ("a,ro,dax=4M", "read-only share cannot have a DAX window"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(reason), "{words:?}: {error}");
        }
    }

    #[test]
    fn a_share_must_be_a_directory_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let resolve = |path: PathBuf| {
            let words = ShareArg::parse(OsStr::new("x")).unwrap();
            ShareArg { host: path, ..words }.resolve(|_| "/mnt/x".into())
        };
        assert_eq!(resolve(folder.path().into()).unwrap().guest, Path::new("/mnt/x"));
        assert!(matches!(resolve(folder.path().join("file")), Err(Error::Usage(_))));
        assert!(matches!(resolve(folder.path().join("none")), Err(Error::Missing { .. })));
    }
}
