//! Parses apt's output: packages, files, progress and failures. Writes the list of installed packages that apt reads.

use std::path::Path;

use crate::packages::Error;

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::packages) struct File {
    pub(in crate::packages) package: String,
    pub(in crate::packages) version: String,
    pub(in crate::packages) size_bytes: u64,
}

/// An installable version of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The version, with Debian's revision.
    pub(crate) version: String,
    /// The names of its dependencies, with the first of each set of alternatives.
    pub(crate) dependencies: Vec<String>,
    pub(in crate::packages) size_bytes: u64,
}

impl File {
    /// Returns whether apt would name this file `file_name`: package, version with `%3a` for a colon, architecture.
    pub(in crate::packages) fn is_named(&self, file_name: &str) -> bool {
        let version = self.version.replace(':', "%3a");
        file_name.strip_prefix(&format!("{}_{version}_", self.package)).is_some_and(|rest| rest.ends_with(".deb"))
    }
}

/// Parses the first paragraph of `apt-cache show`.
pub(super) fn candidate(text: &str) -> Option<Candidate> {
    let paragraph = text.split("\n\n").next()?;
    let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let dependencies = ["Pre-Depends", "Depends"].iter().filter_map(|name| field(name));
    Some(Candidate {
        version: field("Version")?.to_owned(),
        dependencies: dependencies.flat_map(|list| list.split(',')).filter_map(first_alternative).collect(),
        size_bytes: field("Size").and_then(|size| size.parse().ok()).unwrap_or(0),
    })
}

/// Returns `name` from `name:any (>= 1) | other`.
fn first_alternative(dependency: &str) -> Option<String> {
    let name = dependency.split(['|', '(', ':', ' ']).find(|word| !word.is_empty())?;
    Some(name.to_owned())
}

/// Parses a line of `apt-get --print-uris`: address, file name, size, hash.
pub(super) fn uri_line(line: &str) -> Option<File> {
    let mut words = line.split_whitespace();
    words.next().filter(|uri| uri.starts_with('\''))?;
    let (mut parts, size) = (words.next()?.strip_suffix(".deb")?.split('_'), words.next()?);
    Some(File {
        package: parts.next()?.to_owned(),
        version: parts.next()?.replace("%3a", ":"),
        size_bytes: size.parse().ok()?,
    })
}

/// Returns dpkg's status file of a system that has only `packages`, with a version newer than any that may be required.
pub(super) fn status(packages: &[&str]) -> String {
    let stanza = |package: &&str| {
        format!(
            "Package: {package}\nStatus: install ok installed\nMaintainer: none\nArchitecture: all\n\
             Multi-Arch: foreign\nVersion: 999:0\nDescription: the machine's own\n\n"
        )
    };
    packages.iter().map(stanza).collect()
}

/// Parses a status line of apt: `dlstatus:<number>:<percent>:<text>`.
pub(super) fn percent(line: &str) -> Option<f32> {
    line.strip_prefix("dlstatus:")?.split(':').nth(1)?.parse().ok()
}

/// Returns the error for a failure of apt, based on its output.
pub(super) fn failure(suite: &str, cache_dir: &Path, doing: &str, status: String, output: String) -> Error {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| output.contains(phrase));
    let suite = suite.to_owned();
    if says(&["No space left on device", "enough free space"]) {
        Error::DiskFull { dir: cache_dir.to_owned(), output }
    } else if says(&["Unable to locate package", "No packages found", "no installation candidate"]) {
        let named = output.split("Unable to locate package ").nth(1).or(doing.rsplit(' ').next());
        let package = named.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
        Error::NoPackage { suite, package: package.to_owned() }
    } else if says(&["unmet dependencies", "held broken packages", "unable to correct problems"]) {
        Error::Unresolved { suite, output }
    } else if says(&[
        "Could not resolve",
        "Temporary failure",
        "Could not connect",
        "Cannot initiate the connection",
        "Unable to connect",
        "Network is unreachable",
        "Connection timed out",
        "Connection failed",
    ]) {
        Error::Network { output }
    } else if says(&["does not have a Release file", "NO_PUBKEY", "is not signed", "404  Not Found"]) {
        Error::NoSuite { suite, output }
    } else {
        Error::Failed { doing: doing.to_owned(), status, output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_gives_version_and_dependencies() {
        let text = "Package: a\nVersion: 1:2.3-4\nPre-Depends: base (>= 4)\n\
                    Depends: b (= 2.3-4), c | d, e:any (>= 1)\nSize: 77\n\nPackage: a\nVersion: 1\n";
        let candidate = candidate(text).unwrap();
        assert_eq!(candidate.version, "1:2.3-4");
        assert_eq!(candidate.dependencies, ["base", "b", "c", "e"]);
        assert_eq!(candidate.size_bytes, 77);
        assert_eq!(super::candidate(""), None);
    }

    #[test]
    fn a_line_of_addresses_gives_package_version_and_size() {
        let line = "'http://mirror.example/pool/q/qemu_11.1_amd64.deb' qemu_1%3a11.1+ds-3_amd64.deb 123 SHA256:00";
        let file = uri_line(line).unwrap();
        assert_eq!(file, File { package: "qemu".into(), version: "1:11.1+ds-3".into(), size_bytes: 123 });
        assert!(file.is_named("qemu_1%3a11.1+ds-3_amd64.deb"));
        assert!(!file.is_named("qemu-data_1%3a11.1+ds-3_amd64.deb"));
        assert_eq!(uri_line("NOTE: something"), None);
    }

    #[test]
    fn progress_is_a_percentage() {
        assert_eq!(percent("dlstatus:1:20.5:Retrieving file 1 of 1"), Some(20.5));
        assert_eq!(percent("Get:1 http://mirror.example"), None);
    }

    #[test]
    fn failures_are_told_apart() {
        let fails = |output: &str| failure("x", Path::new("/c"), "resolving y", "exit 100".into(), output.into());
        assert!(
            matches!(fails("E: Unable to locate package qemu\n"), Error::NoPackage { package, .. } if package == "qemu")
        );
        assert!(matches!(fails("E: No packages found\n"), Error::NoPackage { package, .. } if package == "y"));
        assert!(matches!(fails("W: Could not resolve 'mirror.example'\n"), Error::Network { .. }));
        assert!(matches!(
            fails("E: The repository 'http://mirror.example x Release' does not have a Release file."),
            Error::NoSuite { .. }
        ));
        assert!(matches!(fails("E: Write error - write (28: No space left on device)"), Error::DiskFull { .. }));
        assert!(matches!(fails("E: held broken packages"), Error::Unresolved { .. }));
        assert!(matches!(fails("E: what"), Error::Failed { .. }));
    }
}
