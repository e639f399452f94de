//! Builds kernels from the distribution's source, and keeps them in the cache.
//!
//! [`uml_kernel`], [`uml_kernel_with_versions`] and [`pci_kernel_with_versions`] are the entries; [`target`] says what
//! is built for which machine, [`source`] prepares the source, and [`tools`] finds the programs that the build needs. A
//! result is named after the version of the source and a digest of the configuration and the patch, so that a change of
//! any causes a new build. Lock: the cache's `uml`, during a build.

mod patch;
mod source;
mod target;
mod tools;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::packages::{Cache, Error, Freshness, Packages, Prefix, Report, Result, cache::digest, kernels::numbers};
use patch::Patch;
pub use source::source_for_patch;
use target::{PCI, Target, UML};
use tools::Tools;

/// The configuration of a kernel with the patch, in addition to its machine's.
const PATCHED_CONFIG: &str = "CONFIG_FUSE_VERSIONS=y\n";

/// Returns the kernel of User Mode Linux, building it if it is not in the cache, which takes some minutes.
///
/// # Errors
///
/// Returns an error if the source is not available, a tool is missing, or the compiler fails; see [`Error`].
pub fn uml_kernel(packages: &Packages<'_>, freshness: Freshness) -> Result<PathBuf> {
    find_or_build(packages, freshness, &UML, None)
}

/// As [`uml_kernel`], with the patch by which Linux reads version tables. If neither is in the cache, both are built:
/// the second then takes only seconds.
///
/// # Errors
///
/// As for [`uml_kernel`], or if the patch is missing or does not apply to the source.
pub fn uml_kernel_with_versions(packages: &Packages<'_>, freshness: Freshness) -> Result<PathBuf> {
    find_or_build(packages, freshness, &UML, Some(&Patch::find()?))
}

/// Returns a kernel for virtual machines with PCI, with the patch by which Linux reads version tables.
///
/// # Errors
///
/// As for [`uml_kernel_with_versions`], or if this is another machine than x86-64.
pub fn pci_kernel_with_versions(packages: &Packages<'_>, freshness: Freshness) -> Result<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::Unexpected(
            "a kernel with version tables for virtual machines is built on x86-64 only".into(),
        ));
    }
    find_or_build(packages, freshness, &PCI, Some(&Patch::find()?))
}

/// Returns the newest cached kernel of User Mode Linux that was built with our configuration, without the patch.
pub fn cached_uml_kernel(cache: &Cache) -> Option<PathBuf> {
    newest(cache, &UML, &digest_of(&UML, None))
}

fn find_or_build(
    packages: &Packages<'_>,
    freshness: Freshness,
    target: &Target,
    patch: Option<&Patch>,
) -> Result<PathBuf> {
    let wanted = digest_of(target, patch);
    let cached = || (freshness == Freshness::Cached).then(|| newest(packages.cache(), target, &wanted)).flatten();
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let _lock = packages.cache().lock("uml", packages.report())?;
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let source = source::source(packages, freshness, patch.is_some())?;
    let version = source.version_of("linux-source-").unwrap_or("unknown").to_owned();
    let place = |digest: &str| {
        let name = format!("linux-{version}-{digest}");
        folder(packages.cache(), target).join(name).join(target.kept)
    };
    let kept = place(&wanted);
    if !kept.is_file() {
        let tools = Tools::find(packages, target)?;
        let plain_digest = digest_of(target, None);
        let plain = place(&plain_digest);
        let builds_plain =
            target.is_built_plain && (patch.is_none() || newest(packages.cache(), target, &plain_digest).is_none());
        let patched = patch.map(|patch| (patch, kept.as_path()));
        let what = Wanted { target, plain: builds_plain.then_some(&*plain), patched };
        build(packages, &source, &version, &tools, &what)?;
    }
    Ok(kept)
}

/// Returns the newest cached kernel with that digest.
fn newest(cache: &Cache, target: &Target, digest: &str) -> Option<PathBuf> {
    let ending = format!("-{digest}");
    let entries = fs::read_dir(folder(cache, target)).into_iter().flatten().flatten();
    let fitting = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = numbers(name.strip_prefix("linux-")?.strip_suffix(&ending)?);
        let kernel = entry.path().join(target.kept);
        kernel.is_file().then_some((version, kernel))
    });
    fitting.max().map(|newest| newest.1)
}

fn folder(cache: &Cache, target: &Target) -> PathBuf {
    cache.dir().join(target.folder)
}

fn digest_of(target: &Target, patch: Option<&Patch>) -> String {
    let changes = target.changes.iter().map(|change| change.concat()).collect::<String>();
    let plain = [target.config.as_bytes(), changes.as_bytes()];
    match patch {
        None => digest(&plain),
        Some(patch) => digest(&[plain[0], plain[1], PATCHED_CONFIG.as_bytes(), &patch.text]),
    }
}

/// What a build makes: the kernel without the patch, with it, or both, each for its path.
struct Wanted<'a> {
    target: &'a Target,
    plain: Option<&'a Path>,
    patched: Option<(&'a Patch, &'a Path)>,
}

/// Unpacks, configures and builds.
fn build(
    packages: &Packages<'_>,
    source: &Prefix,
    version: &str,
    tools: &Tools,
    &Wanted { target, plain, patched }: &Wanted<'_>,
) -> Result<()> {
    let report = packages.report();
    // Always the same name, so that the next build removes the remains of an interrupted one.
    let dir = folder(packages.cache(), target).join("build");
    remove(&dir)?;
    fs::create_dir_all(&dir).map_err(Error::io(format!("cannot create {dir:?}")))?;
    let removed_at_end = RemovedAtEnd(dir.clone());

    report.say(&format!("unpacking the source of Linux {version}"));
    source::unpack(source, &dir, tools)?;
    for change in target.changes {
        source::change(&dir, change)?;
    }
    let name = target.name;
    report.say(&format!("building {name} {version} (only once) on {} CPUs", jobs()));
    if let Some(kept) = plain {
        configure(&dir, target, tools, target.config)?;
        make_linux(&dir, target, tools, report, kept)?;
    }
    if let Some((patch, kept)) = patched {
        report.say(&format!("building {name} {version} with version tables"));
        source::apply(patch, &dir, tools)?;
        configure(&dir, target, tools, &format!("{}{PATCHED_CONFIG}", target.config))?;
        make_linux(&dir, target, tools, report, kept)?;
    }
    drop(removed_at_end);
    Ok(())
}

/// Builds the kernel in `dir` and moves it to `kept`.
fn make_linux(dir: &Path, target: &Target, tools: &Tools, report: &dyn Report, kept: &Path) -> Result<()> {
    make(dir, target, tools, &[target.goal, &format!("-j{}", jobs())], report)?;
    let doing = || format!("cannot write {kept:?}");
    let kept_dir = kept.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(kept_dir).map_err(Error::io(doing()))?;
    fs::rename(dir.join(target.image), kept).map_err(Error::io(doing()))
}

/// Makes `.config` from `config`, and checks that every line of it took effect.
fn configure(dir: &Path, target: &Target, tools: &Tools, config: &str) -> Result<()> {
    let path = dir.join("transom.config");
    fs::write(&path, config).map_err(Error::io(format!("cannot write {path:?}")))?;
    let words = ["KCONFIG_ALLCONFIG=transom.config", "allnoconfig"];
    make(dir, target, tools, &words, &crate::packages::Quiet)?;
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
fn make(dir: &Path, target: &Target, tools: &Tools, words: &[&str], report: &dyn Report) -> Result<()> {
    let mut command = tools.command("make");
    command.current_dir(dir).arg(target.architecture).args(words);
    // Makes the build reproducible.
    command.env("KBUILD_BUILD_USER", "transom").env("KBUILD_BUILD_HOST", "transom");
    command.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01");
    // Removes settings of a make that runs this program.
    for name in
        ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARCH", "SUBARCH", "CROSS_COMPILE", "KBUILD_OUTPUT"]
    {
        command.env_remove(name);
    }
    let (said, complaints) = output_of(command, |number| report.advance(100.0 * number as f32 / target.lines))?;
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
    fn a_configuration_has_no_line_twice() {
        for target in [&UML, &PCI] {
            let mut lines: Vec<_> = target.config.lines().filter(|line| line.starts_with("CONFIG_")).collect();
            let count = lines.len();
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), count, "{}", target.name);
        }
    }

    #[test]
    fn the_newest_kernel_with_our_configuration_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        assert_eq!(cached_uml_kernel(&cache), None);
        let ours = digest_of(&UML, None);
        for name in [format!("linux-7.2.9-1-{ours}"), format!("linux-7.2.12-1-{ours}"), "linux-7.3.1-1-0123".into()] {
            let folder = dir.path().join("uml").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("linux"), "").unwrap();
        }
        fs::create_dir_all(dir.path().join("uml").join(format!("linux-8.1-1-{ours}"))).unwrap();
        let found = cached_uml_kernel(&cache).unwrap();
        assert!(found.ends_with(format!("linux-7.2.12-1-{ours}/linux")), "{found:?}");
    }
}
