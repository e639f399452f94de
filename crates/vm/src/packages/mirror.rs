//! Which of the machine's sources is its distribution's own, and which suites make up a release.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Error, Result,
    sources::{Entry, parse_deb822, parse_one_line},
};

/// The machine's own mirror.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    main: Entry,
    security: Option<Entry>,
    architecture: String,
}

/// The sources for one release, as text in the newer format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sources {
    /// With updates and security fixes, which some releases do not have.
    pub(super) full: String,
    /// The release alone.
    pub(super) least: String,
    /// The release must be asked for by name, since apt prefers others.
    pub(super) is_not_automatic: bool,
}

/// The code name of the machine's release.
pub(super) fn own_suite() -> Result<String> {
    let files = ["/etc/os-release", "/usr/lib/os-release"];
    let text = files.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    code_name(&text).ok_or_else(|| Error::NoRelease(files[0].into()))
}

fn code_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let name = value.trim().trim_matches(['"', '\'']);
    (!name.is_empty()).then(|| name.to_owned())
}

impl Mirror {
    /// The mirror of the sources in `list` and in the folder `parts`.
    ///
    /// Errors: the machine's release is not known, or no source serves it.
    pub(super) fn find(list: &Path, parts: &Path, architecture: &str) -> Result<Self> {
        let own = own_suite()?;
        let mut files = vec![list.to_owned()];
        let mut named: Vec<PathBuf> =
            fs::read_dir(parts).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        named.sort();
        files.extend(named);
        let mut entries = Vec::new();
        for file in &files {
            // A file that this user may not read is a source that this user cannot use.
            let Ok(text) = fs::read_to_string(file) else { continue };
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => entries.extend(parse_one_line(&text)),
                Some("sources") => entries.extend(parse_deb822(&text)),
                _ => {}
            }
        }
        Self::among(&entries, &own, architecture).ok_or(Error::NoMirror { suite: own, files })
    }

    /// The mirror of the release `own` among `entries`.
    fn among(entries: &[Entry], own: &str, architecture: &str) -> Option<Self> {
        // A machine that follows a moving release names that one.
        let names = [own, "stable", "testing", "unstable", "sid"];
        let serves = |entry: &Entry, suffixes: &[&str]| {
            entry.suites.iter().any(|suite| {
                names.iter().any(|name| suite.strip_prefix(name).is_some_and(|rest| suffixes.contains(&rest)))
            })
        };
        let has_main = |entry: &&Entry| entry.components.iter().any(|component| component == "main");
        let best = |suffixes: &[&str]| {
            let fitting = entries.iter().filter(has_main).filter(|entry| serves(entry, suffixes));
            // Of equal ones the first.
            fitting.rev().max_by_key(|entry| likeness(entry)).cloned()
        };
        Some(Self {
            main: best(&[""])?,
            security: best(&["-security", "/updates"]),
            architecture: architecture.to_owned(),
        })
    }

    /// The sources for `suite`.
    pub(super) fn sources(&self, suite: &str) -> Sources {
        let moving = ["sid", "unstable"].contains(&suite);
        let backports = ["-backports", "-backports-sloppy"].iter().find_map(|suffix| suite.strip_suffix(suffix));
        let base = match suite {
            "experimental" | "rc-buggy" => "unstable",
            _ => backports.unwrap_or(suite),
        };
        let mut least = vec![base.to_owned()];
        if base != suite {
            least.push(suite.to_owned());
        }
        let least_text = self.main.with_suites(&least, &self.architecture);
        let mut full = least.clone();
        let mut security = String::new();
        if !moving && base != "unstable" {
            full.push(format!("{base}-updates"));
            if let Some(entry) = &self.security {
                security = "\n".to_owned() + &entry.with_suites(&[format!("{base}-security")], &self.architecture);
            }
        }
        Sources {
            full: self.main.with_suites(&full, &self.architecture) + &security,
            least: least_text,
            is_not_automatic: base != suite,
        }
    }
}

/// How much an entry looks like the distribution's own, rather than another party's for the same release.
fn likeness(entry: &Entry) -> u32 {
    let key = entry.option("Signed-By");
    let has_archive_key = key.is_some_and(|key| key.contains("-archive-"));
    let path_fits = entry
        .uris
        .iter()
        .any(|uri| ["/debian", "/debian-security"].iter().any(|p| uri.trim_end_matches('/').ends_with(p)));
    // Without a key of its own an entry is checked with the distribution's.
    2 * u32::from(has_archive_key) + u32::from(key.is_none()) + u32::from(path_fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "deb http://mirror.example/debian bookworm main contrib\n\
                          deb http://mirror.example/debian bookworm-updates main\n\
                          deb http://security.example/debian-security bookworm-security main\n";

    fn mirror(list: &str) -> Option<Mirror> {
        Mirror::among(&parse_one_line(list), "bookworm", "amd64")
    }

    #[test]
    fn a_newer_release_comes_from_the_same_mirror_with_its_updates() {
        let sources = mirror(DEBIAN).unwrap().sources("trixie");
        assert!(sources.full.contains("URIs: http://mirror.example/debian\nSuites: trixie trixie-updates\n"));
        assert!(sources.full.contains("URIs: http://security.example/debian-security\nSuites: trixie-security\n"));
        assert!(sources.least.contains("Suites: trixie\n"));
        assert!(!sources.least.contains("security"));
        assert!(!sources.is_not_automatic);
    }

    #[test]
    fn the_moving_release_has_no_updates_beside_it() {
        let sources = mirror(DEBIAN).unwrap().sources("sid");
        assert_eq!(sources.full, sources.least);
        assert!(sources.full.contains("Suites: sid\n"));
    }

    #[test]
    fn backports_come_with_their_release() {
        let sources = mirror(DEBIAN).unwrap().sources("bookworm-backports");
        assert!(sources.least.contains("Suites: bookworm bookworm-backports\n"), "{}", sources.least);
        assert!(sources.full.contains("Suites: bookworm bookworm-backports bookworm-updates\n"));
        assert!(sources.is_not_automatic);
    }

    #[test]
    fn another_partys_source_for_the_same_release_is_not_taken() {
        let other = "deb [signed-by=/etc/apt/keyrings/other.gpg] http://other.example/apt bookworm main\n";
        for list in [format!("{other}{DEBIAN}"), format!("{DEBIAN}{other}")] {
            assert_eq!(mirror(&list).unwrap().main.uris, ["http://mirror.example/debian"]);
        }
        let docker = "deb http://other.example/linux/debian bookworm stable\n";
        assert!(mirror(docker).is_none());
    }

    #[test]
    fn a_machine_that_follows_testing_has_a_mirror() {
        let mirror = mirror("deb http://mirror.example/debian testing main\n").unwrap();
        assert!(mirror.security.is_none());
        assert!(mirror.sources("trixie").full.contains("Suites: trixie trixie-updates\n"));
    }

    #[test]
    fn the_code_name_is_read_with_and_without_quotes() {
        assert_eq!(code_name("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(), Some("bookworm"));
        assert_eq!(code_name("VERSION_CODENAME=\"trixie\"").as_deref(), Some("trixie"));
        assert_eq!(code_name("ID=arch\n"), None);
    }
}
