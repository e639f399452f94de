//! Builds the kernel of User Mode Linux from the distribution's source, and keeps it in the cache.
//!
//! [`kernel`] and [`kernel_with_versions`] are the entries; [`source`] prepares the source, and [`tools`] finds the
//! programs that the build needs. A result is named after the version of the source and a digest of the configuration
//! and the patch, so that a change of any causes a new build. Lock: the cache's `uml`, during a build.

mod source;
mod tools;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use super::patch::Patch;
use crate::packages::{Cache, Error, Freshness, Packages, Prefix, Report, Result, cache::digest, kernels::numbers};
use source::CHANGED;
pub use source::source_for_patch;
use tools::Tools;

/// The configuration, in addition to `allnoconfig`.
const CONFIG: &str = include_str!("config");
/// The configuration of a kernel with the patch, in addition to [`CONFIG`].
const PATCHED_CONFIG: &str = "CONFIG_FUSE_VERSIONS=y\n";
/// Approximate number of lines that make prints, for the percentage.
const LINES: f32 = 1200.0;
/// Returns the kernel, building it if it is not in the cache, which takes some minutes.
///
/// # Errors
///
/// Returns an error if the source is not available, a tool is missing, or the compiler fails; see [`Error`].
pub fn kernel(packages: &Packages<'_>, freshness: Freshness) -> Result<PathBuf> {
    find_or_build(packages, freshness, &plain_digest(), None)
}

/// As [`kernel`], with the patch by which Linux reads version tables. If neither is in the cache, both are built: the
/// second then takes only seconds.
///
/// # Errors
///
/// As for [`kernel`], or if the patch is missing or does not apply to the source.
pub fn kernel_with_versions(packages: &Packages<'_>, freshness: Freshness) -> Result<PathBuf> {
    let patch = Patch::find()?;
    find_or_build(packages, freshness, &patched_digest(&patch), Some(&patch))
}

/// Returns the newest cached kernel that was built with our configuration, without the patch.
pub fn cached_kernel(cache: &Cache) -> Option<PathBuf> {
    newest(cache, &plain_digest())
}

fn find_or_build(
    packages: &Packages<'_>,
    freshness: Freshness,
    digest: &str,
    patch: Option<&Patch>,
) -> Result<PathBuf> {
    let cached = || (freshness == Freshness::Cached).then(|| newest(packages.cache(), digest)).flatten();
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let _lock = packages.cache().lock("uml", packages.report())?;
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let source = source::source(packages, freshness, patch.is_some())?;
    let version = source.version_of("linux-source-").unwrap_or("unknown").to_owned();
    let place = |digest: &str| folder(packages.cache()).join(format!("linux-{version}-{digest}")).join("linux");
    let kept = place(digest);
    if !kept.is_file() {
        let tools = Tools::find(packages)?;
        let plain = place(&plain_digest());
        let builds_plain = patch.is_none() || cached_kernel(packages.cache()).is_none();
        let patched = patch.map(|patch| (patch, kept.as_path()));
        build(packages, &source, &version, &tools, builds_plain.then_some(&*plain), patched)?;
    }
    Ok(kept)
}

/// Returns the newest cached kernel with that digest.
fn newest(cache: &Cache, digest: &str) -> Option<PathBuf> {
    let ending = format!("-{digest}");
    let entries = fs::read_dir(folder(cache)).into_iter().flatten().flatten();
    let fitting = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = numbers(name.strip_prefix("linux-")?.strip_suffix(&ending)?);
        let kernel = entry.path().join("linux");
        kernel.is_file().then_some((version, kernel))
    });
    fitting.max().map(|newest| newest.1)
}

fn folder(cache: &Cache) -> PathBuf {
    cache.dir().join("uml")
}

fn plain_digest() -> String {
    digest(&[CONFIG.as_bytes(), CHANGED.concat().as_bytes()])
}

fn patched_digest(patch: &Patch) -> String {
    digest(&[CONFIG.as_bytes(), CHANGED.concat().as_bytes(), PATCHED_CONFIG.as_bytes(), &patch.text])
}

/// Unpacks, configures and builds the kernel without the patch, with it, or both, and writes each to its path.
fn build(
    packages: &Packages<'_>,
    source: &Prefix,
    version: &str,
    tools: &Tools,
    plain: Option<&Path>,
    patched: Option<(&Patch, &Path)>,
) -> Result<()> {
    let report = packages.report();
    // Always the same name, so that the next build removes the remains of an interrupted one.
    let dir = folder(packages.cache()).join("build");
    remove(&dir)?;
    fs::create_dir_all(&dir).map_err(Error::io(format!("cannot create {dir:?}")))?;
    let removed_at_end = RemovedAtEnd(dir.clone());

    report.say(&format!("unpacking the source of Linux {version}"));
    source::unpack(source, &dir, tools)?;
    report.say(&format!("building User Mode Linux {version} (only once) on {} CPUs", jobs()));
    source::change(&dir)?;
    if let Some(kept) = plain {
        configure(&dir, tools, CONFIG)?;
        make_linux(&dir, tools, report, kept)?;
    }
    if let Some((patch, kept)) = patched {
        report.say(&format!("building User Mode Linux {version} with version tables"));
        source::apply(patch, &dir, tools)?;
        configure(&dir, tools, &format!("{CONFIG}{PATCHED_CONFIG}"))?;
        make_linux(&dir, tools, report, kept)?;
    }
    drop(removed_at_end);
    Ok(())
}

/// Builds the kernel in `dir` and moves it to `kept`.
fn make_linux(dir: &Path, tools: &Tools, report: &dyn Report, kept: &Path) -> Result<()> {
    make(dir, tools, &["linux", &format!("-j{}", jobs())], report)?;
    let doing = || format!("cannot write {kept:?}");
    let kept_dir = kept.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(kept_dir).map_err(Error::io(doing()))?;
    fs::rename(dir.join("linux"), kept).map_err(Error::io(doing()))
}

/// Makes `.config` from `config`, and checks that every line of it took effect.
fn configure(dir: &Path, tools: &Tools, config: &str) -> Result<()> {
    let path = dir.join("transom.config");
    fs::write(&path, config).map_err(Error::io(format!("cannot write {path:?}")))?;
    make(dir, tools, &["KCONFIG_ALLCONFIG=transom.config", "allnoconfig"], &crate::packages::Quiet)?;
    let made = fs::read_to_string(dir.join(".config")).map_err(Error::io("cannot read the generated configuration"))?;
    let refused = refused(config, &made);
    if refused.is_empty() {
        return Ok(());
    }
    Err(Error::Unexpected(format!("the kernel's configuration rejected {}", refused.join(", "))))
}

/// Returns the lines of `wanted` that are not in `made`.
fn refused<'a>(wanted: &'a str, made: &str) -> Vec<&'a str> {
    let is_there = |line: &str| made.lines().any(|other| other == line);
    wanted.lines().filter(|line| line.starts_with("CONFIG_") && !is_there(line)).collect()
}

/// Runs make, and reports progress by its output lines.
fn make(dir: &Path, tools: &Tools, words: &[&str], report: &dyn Report) -> Result<()> {
    let mut command = tools.command("make");
    command.current_dir(dir).arg("ARCH=um").args(words);
    // Makes the build reproducible.
    command.env("KBUILD_BUILD_USER", "transom").env("KBUILD_BUILD_HOST", "transom");
    command.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01");
    // Removes settings of a make that runs this program.
    for name in
        ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARCH", "SUBARCH", "CROSS_COMPILE", "KBUILD_OUTPUT"]
    {
        command.env_remove(name);
    }
    let (said, complaints) = output_of(command, |number| report.advance(100.0 * number as f32 / LINES))?;
    if said.status.success() {
        return Ok(());
    }
    if complaints.contains("No space left on device") {
        return Err(Error::DiskFull { dir: dir.to_owned(), output: complaints });
    }
    Err(Error::Failed {
        doing: format!("make {}", words.join(" ")),
        status: said.status.to_string(),
        output: complaints,
    })
}

struct Ended {
    status: std::process::ExitStatus,
}

/// Runs `command`, and calls `step` with the number of each output line. Returns its standard error.
fn output_of(mut command: Command, step: impl Fn(usize)) -> Result<(Ended, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::io(format!("cannot start {:?}", command.get_program())))?;
    let stderr = child.stderr.take();
    let complaints = thread::spawn(move || {
        let mut text = String::new();
        for line in stderr.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()).map_while(std::result::Result::ok)
        {
            text.push_str(&line);
            text.push('\n');
        }
        text
    });
    let lines = child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
    for (number, _) in lines.enumerate() {
        step(number);
    }
    let status = child.wait().map_err(Error::io("cannot wait for make"))?;
    Ok((Ended { status }, complaints.join().unwrap_or_default()))
}

fn jobs() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A directory that is removed when this is dropped.
struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("cannot remove {dir:?}"))(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_not_taken_is_named() {
        let wanted = "# note\nCONFIG_A=y\nCONFIG_B=y\n";
        assert_eq!(refused(wanted, "CONFIG_A=y\n# CONFIG_B is not set\n"), ["CONFIG_B=y"]);
        assert!(refused(wanted, "CONFIG_B=y\nCONFIG_A=y\n").is_empty());
    }

    #[test]
    fn the_configuration_has_no_line_twice() {
        let mut lines: Vec<_> = CONFIG.lines().filter(|line| line.starts_with("CONFIG_")).collect();
        let count = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count);
    }

    #[test]
    fn the_newest_kernel_with_our_configuration_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        assert_eq!(cached_kernel(&cache), None);
        let ours = plain_digest();
        for name in [format!("linux-7.2.9-1-{ours}"), format!("linux-7.2.12-1-{ours}"), "linux-7.3.1-1-0123".into()] {
            let folder = dir.path().join("uml").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("linux"), "").unwrap();
        }
        fs::create_dir_all(dir.path().join("uml").join(format!("linux-8.1-1-{ours}"))).unwrap();
        let found = cached_kernel(&cache).unwrap();
        assert!(found.ends_with(format!("linux-7.2.12-1-{ours}/linux")), "{found:?}");
    }
}
