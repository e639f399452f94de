//! Debian's cloud kernels by series, from the machine's release and from others.
//!
//! A metapackage depends on the newest kernel of a release; its dependencies are read, not assumed. Newer releases
//! split a kernel into several packages.

use std::{
    env::consts::ARCH,
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{Closure, Error, Freshness, Packages, Prefix, Request, Result};
use crate::Kernel;

/// Found in the names of a kernel's parts, but not in those of its other dependencies.
const PART: &str = "-cloud-";

/// A kernel series, or the newest kernel of a major version: `6.1`, `7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    major: u32,
    minor: Option<u32>,
}

/// A fetched kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The image and its modules.
    pub kernel: Kernel,
    /// The release as reported by `uname -r`.
    pub release: String,
}

impl Series {
    /// Returns the series `major.minor`.
    pub const fn exactly(major: u32, minor: u32) -> Self {
        Self { major, minor: Some(minor) }
    }

    /// Returns the newest series of a major version.
    pub const fn newest(major: u32) -> Self {
        Self { major, minor: None }
    }

    /// Returns whether a version such as `6.1.192-2`, or a release such as `6.1.0-56-cloud-amd64`, belongs to this
    /// series.
    fn has(&self, version: &str) -> bool {
        let numbers = numbers(version);
        numbers.first() == Some(&self.major) && self.minor.is_none_or(|minor| numbers.get(1) == Some(&minor))
    }

    /// Returns the releases to ask in order: those near the machine's own first, unless the newest kernel is requested.
    fn suites(self, own: &str) -> Vec<String> {
        let mut suites = vec![
            own.to_owned(),
            format!("{own}-backports"),
            "stable".into(),
            "oldstable".into(),
            "testing".into(),
            "unstable".into(),
        ];
        if self.minor.is_none() {
            suites.reverse();
        }
        suites
    }
}

impl FromStr for Series {
    type Err = Error;

    fn from_str(words: &str) -> Result<Self> {
        let unclear =
            || Error::Unexpected(format!("invalid kernel series {words:?}: expected a version such as 6.12 or 7"));
        let (major, minor) = match words.split_once('.') {
            None => (words, None),
            Some((major, minor)) => (major, Some(minor.parse().map_err(|_| unclear())?)),
        };
        Ok(Self { major: major.parse().map_err(|_| unclear())?, minor })
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}.{minor}", self.major),
            None => write!(f, "{}.x", self.major),
        }
    }
}

impl Packages<'_> {
    /// Returns a kernel of `series` from the cache, or from the first release of the distribution that has one.
    ///
    /// # Errors
    ///
    /// Returns an error if no release has one; also see [`Error`].
    pub fn kernel(&self, series: Series, freshness: Freshness) -> Result<Fetched> {
        let package = package();
        if freshness == Freshness::Cached
            && let Some(found) = self.cached_kernel(series, &package)?
        {
            return Ok(found);
        }
        let mut seen = Vec::new();
        for suite in series.suites(&Self::own_suite()?) {
            let version = match self.candidate(&suite, &package) {
                Ok(Some(candidate)) => candidate.version,
                Ok(None) => continue,
                Err(Error::NoSuite { .. }) => continue,
                Err(error) => return Err(error),
            };
            if series.has(&version) {
                return kernel_in(&self.fetch(&request(&suite, &[&package], freshness))?);
            }
            seen.push(format!("{version} in {suite}"));
        }
        Err(Error::NoKernel { series: series.to_string(), found: seen })
    }

    /// Returns the newest kernel of `series` in the cache.
    fn cached_kernel(&self, series: Series, package: &str) -> Result<Option<Fetched>> {
        let suites = fs::read_dir(self.cache.dir().join("packages")).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for suite in suites {
            let suite = suite.file_name().to_string_lossy().into_owned();
            let folder = self.folder(&request(&suite, &[package], Freshness::Cached));
            if let Some(prefix) = Prefix::existing(&folder)? {
                found.push(kernel_in(&prefix)?);
            }
        }
        found.retain(|kernel| series.has(&kernel.release));
        Ok(found.into_iter().max_by_key(|kernel| numbers(&kernel.release)))
    }
}

/// Returns the metapackage for this machine's architecture.
fn package() -> String {
    let architecture = match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux-image-cloud-{architecture}")
}

fn request<'a>(suite: &'a str, packages: &'a [&'a str], freshness: Freshness) -> Request<'a> {
    Request { suite, packages, closure: Closure::Parts(PART), freshness }
}

/// Returns the kernel in a prefix.
fn kernel_in(prefix: &Prefix) -> Result<Fetched> {
    let Some((image, release)) = image_in(prefix) else {
        return Err(Error::Unexpected(format!("no kernel in the packages {}", prefix.packages().join(", "))));
    };
    let kernel = Kernel::at(&image).map_err(|error| Error::Unexpected(error.to_string()))?;
    if kernel.modules.is_none() {
        return Err(Error::Unexpected(format!("the package of kernel {release} has no modules")));
    }
    Ok(Fetched { kernel, release })
}

/// Returns the image and its release: `boot/vmlinuz-<release>`, or since 7.x `usr/lib/modules/<release>/vmlinuz`.
fn image_in(prefix: &Prefix) -> Option<(PathBuf, String)> {
    let last_word = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    if let Some(image) = prefix.find("boot", "vmlinuz-").pop() {
        let release = last_word(&image)?.strip_prefix("vmlinuz-")?.to_owned();
        return Some((image, release));
    }
    let folder = prefix.find("usr/lib/modules", "").into_iter().find(|folder| folder.join("vmlinuz").is_file())?;
    Some((folder.join("vmlinuz"), last_word(&folder)?))
}

/// Returns the numbers at the beginning of a version, for comparisons.
pub(crate) fn numbers(version: &str) -> Vec<u32> {
    version.split(|letter: char| !letter.is_ascii_digit()).map_while(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_told_from_its_neighbours() {
        let series: Series = "6.1".parse().unwrap();
        assert_eq!(series, Series::exactly(6, 1));
        assert!(series.has("6.1.192-2"));
        assert!(series.has("6.1.0-56-cloud-amd64"));
        assert!(!series.has("6.12.95-1~bpo12+1"));
        assert!(Series::newest(7).has("7.2.13+deb14-cloud-amd64"));
        assert!(!Series::newest(7).has("6.7.1"));
        for words in ["", "x", "6.", "6.1.2", "-1"] {
            assert!(words.parse::<Series>().is_err(), "{words:?}");
        }
    }

    #[test]
    fn near_releases_are_asked_first_and_the_newest_last() {
        let suites = Series::exactly(6, 12).suites("bookworm");
        assert_eq!(suites[..2], ["bookworm", "bookworm-backports"]);
        assert_eq!(Series::newest(7).suites("bookworm")[0], "unstable");
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("7.2.13+deb14") > numbers("7.2.9"));
        assert_eq!(numbers("6.1.0-56-cloud-amd64"), [6, 1, 0, 56]);
    }
}
