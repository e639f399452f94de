//! The source of Linux: fetched, unpacked, changed and patched.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};

use super::{patch::Patch, target::Change, tools::Tools};
use crate::packages::{Closure, Error, Freshness, Packages, Prefix, Request, Result, kernels::numbers};

/// The first major version that sends a valid memory table.
const MAJOR_MIN: u32 = 7;
/// The series that the patch is for.
const PATCHED_SERIES: [u32; 2] = [7, 2];
/// Releases to ask for the source, in order.
const SUITES: [&str; 3] = ["testing", "unstable", "stable"];
/// Most of the source is for hardware and not unpacked, except its Kconfig files and Makefiles, which are always read.
const NOT_UNPACKED: [&str; 11] = [
    "*/Documentation/*/*",
    "*/arch/[!ux]*/*.[chS]",
    "*/boot/dts/*",
    "*/tools/testing/*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/infiniband/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/net/ethernet/*.[ch]",
    "*/drivers/net/wireless/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/sound/*/*.[ch]",
];

/// Returns the archive of the source that the patch is for.
///
/// # Errors
///
/// Returns an error if it is not available; see [`Error`].
pub fn source_for_patch(packages: &Packages<'_>) -> Result<PathBuf> {
    archive(&source(packages, Freshness::Cached, true)?)
}

/// Returns the package with the source.
pub(super) fn source(packages: &Packages<'_>, freshness: Freshness, is_for_patch: bool) -> Result<Prefix> {
    let fits = |version: &str| match is_for_patch {
        true => numbers(version).starts_with(&PATCHED_SERIES),
        false => numbers(version).first() >= Some(&MAJOR_MIN),
    };
    let mut seen = Vec::new();
    for suite in SUITES {
        let package = "linux-source";
        match packages.candidate(suite, package) {
            Ok(Some(found)) if fits(&found.version) => {
                let closure = Closure::Parts("linux-source-");
                return packages.fetch(&Request { suite, packages: &[package], closure, freshness });
            }
            Ok(Some(found)) => seen.push(format!("{} in {suite}", found.version)),
            Ok(None) | Err(Error::NoSuite { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let [major, minor] = PATCHED_SERIES;
    let series = if is_for_patch { format!("{major}.{minor}, as source") } else { format!("{MAJOR_MIN}.x, as source") };
    Err(Error::NoKernel { series, found: seen })
}

fn archive(source: &Prefix) -> Result<PathBuf> {
    let archive =
        source.find("usr/src", "linux-source-").into_iter().find(|path| path.to_string_lossy().contains(".tar."));
    archive.ok_or_else(|| Error::Unexpected(format!("no source archive in {:?}", source.packages())))
}

/// Unpacks what a build needs.
pub(super) fn unpack(source: &Prefix, dir: &Path, tools: &Tools) -> Result<()> {
    let archive = archive(source)?;
    let doing = || format!("cannot unpack {archive:?}");
    let open = File::open(&archive).map_err(Error::io(doing()))?;
    let mut xz = tools.command("xz");
    xz.args(["-dc", "-T0"]).stdin(open).stdout(Stdio::piped());
    let mut xz = xz.spawn().map_err(Error::io("cannot start xz"))?;
    let mut tar = tools.command("tar");
    tar.arg("-x").arg("-C").arg(dir).args(["--strip-components=1", "--no-same-owner"]);
    tar.args(NOT_UNPACKED.map(|pattern| format!("--exclude={pattern}")));
    if let Some(pipe) = xz.stdout.take() {
        tar.stdin(pipe);
    }
    let output = tar.stderr(Stdio::piped()).output().map_err(Error::io("cannot start tar"))?;
    let status = xz.wait().map_err(Error::io(doing()))?;
    if output.status.success() && status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("No space left on device") {
        return Err(Error::DiskFull { dir: dir.to_owned(), output: words });
    }
    Err(Error::Failed { doing: doing(), status: output.status.to_string(), output: words })
}

/// Changes the source.
pub(super) fn change(dir: &Path, [file, beginning, new]: &Change) -> Result<()> {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).map_err(Error::io(format!("cannot read {path:?}")))?;
    let Some(changed) = with_line(&text, beginning, new) else {
        return Err(Error::Unexpected(format!("expected exactly one line in {path:?} that begins with {beginning:?}")));
    };
    fs::write(&path, changed).map_err(Error::io(format!("cannot write {path:?}")))
}

/// Returns `text` with its only line that begins with `beginning` replaced by `new`.
fn with_line(text: &str, beginning: &str, new: &str) -> Option<String> {
    let is_it = |line: &&str| line.starts_with(beginning);
    if text.lines().filter(is_it).count() != 1 {
        return None;
    }
    Some(text.lines().flat_map(|line| [if is_it(&line) { new } else { line }, "\n"]).collect())
}

/// Applies the patch to the source in `dir`.
pub(super) fn apply(patch: &Patch, dir: &Path, tools: &Tools) -> Result<()> {
    let doing = || format!("applying {:?} to the source of Linux", patch.path);
    let mut command = tools.command("patch");
    command.current_dir(dir).args(["-p1", "--batch", "--forward", "-i"]).arg(&patch.path);
    let output = command.stdin(Stdio::null()).output().map_err(Error::io("cannot start patch"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = [output.stdout, output.stderr].concat();
    Err(Error::Failed {
        doing: doing(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&words).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_line_is_replaced() {
        assert_eq!(with_line("a\n#define X 1\nb\n", "#define X", "#define X").unwrap(), "a\n#define X\nb\n");
        assert_eq!(with_line("a\n", "#define X", ""), None);
        assert_eq!(with_line("#define X 1\n#define X 2\n", "#define X", ""), None);
    }
}
