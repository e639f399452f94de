//! The C virtiofsd that QEMU had up to 7.2, as Debian 12 still packages it.
//!
//! Its options differ, so it is started by a script that translates virtiofsd 1.x's options. It runs only as root, and
//! does not offer `VHOST_USER_PROTOCOL_F_CONFIG`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::packages::{Closure, Error, Freshness, Packages, Request, Result};

/// The release that has it, and the package.
const SUITE: &str = "bookworm";
const PACKAGE: &str = "qemu-system-common";
/// The path of the program in the package.
const PROGRAM: &str = "usr/lib/qemu/virtiofsd";
/// The version of an installed daemon must begin so, because later packages have another daemon at the same path.
const VERSION: &str = "virtiofsd version 7.";

const TRANSLATION: &str = include_str!("c_daemon.sh");

/// Returns a program that starts the C daemon with virtiofsd 1.x's options, fetching the daemon if necessary.
///
/// # Errors
///
/// Returns an error if it cannot be fetched; see [`Error`].
pub fn c_virtiofsd(packages: &Packages<'_>) -> Result<PathBuf> {
    let own = Path::new("/").join(PROGRAM);
    let start = match super::says(&own, |text| text.starts_with(VERSION)) {
        true => format!("VIRTIOFSD_C='{}'\n", own.display()),
        false => fetched(packages)?,
    };
    let folder = packages.cache().dir().join("peer/virtiofsd-c");
    fs::create_dir_all(&folder).map_err(Error::io(format!("cannot create {folder:?}")))?;
    let script = std::path::absolute(folder.join("virtiofsd-c")).map_err(Error::io("cannot find the cache"))?;
    let (first, rest) = TRANSLATION.split_once('\n').expect("the script has lines");
    let text = format!("{first}\n{start}{rest}");
    if fs::read_to_string(&script).is_ok_and(|there| there == text) {
        return Ok(script);
    }
    // Renamed into place, because another run may be starting the script.
    let new = script.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, &script))
        .map_err(Error::io(format!("cannot write {script:?}")))?;
    Ok(script)
}

/// The line that names a program in the cache, with the libraries of its own release.
fn fetched(packages: &Packages<'_>) -> Result<String> {
    let freshness = Freshness::Cached;
    let request = Request { suite: SUITE, packages: &[PACKAGE], closure: Closure::WithDependencies, freshness };
    let prefix = packages.fetch(&request)?;
    let script = prefix.root().join("virtiofsd-c");
    prefix.write_script(PROGRAM, &script)?;
    Ok(format!("VIRTIOFSD_C='{}'\n", script.display()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn translated(words: &[&str]) -> (bool, String) {
        let output = Command::new("sh").args(["-c", TRANSLATION, "sh"]).args(words).env("VIRTIOFSD_C", "echo").output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    #[test]
    fn options_are_put_into_the_old_ones_and_others_pass() {
        let words = ["--fd=3", "--shared-dir", "/a b", "--cache", "never", "--sandbox=namespace", "--xattr"];
        let expected = "--fd=3 -o source=/a b -o cache=none -o sandbox=namespace --xattr";
        assert_eq!(translated(&words), (true, expected.to_owned()));
    }

    #[test]
    fn what_it_cannot_do_is_refused_and_told() {
        let (is_started, text) = translated(&["--cache=metadata"]);
        assert!(!is_started && text.contains("metadata"), "{text}");
    }
}
