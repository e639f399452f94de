//! Builds the kernel of User Mode Linux from the distribution's source, and keeps it in the cache.
//!
//! [`kernel`] is the entry; [`tools`] finds the programs that the build needs. The result is named after the version of
//! the source and a digest of the configuration, so that a change of either causes a new build. Lock: the cache's
//! `uml`, during a build.

mod tools;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::packages::{
    Cache, Closure, Error, Freshness, Packages, Prefix, Report, Request, Result, cache::digest, kernels::numbers,
};
use tools::Tools;

/// The configuration, in addition to `allnoconfig`.
const CONFIG: &str = include_str!("config");
/// A change of the source: the file, the beginning of a line, and its replacement.
///
/// Hides the vDSO from programs: here it has no `getcpu`, without which some runtime libraries abort, and its functions
/// make ordinary system calls anyway.
const CHANGED: [&str; 3] = ["arch/x86/um/asm/elf.h", "#define ARCH_DLINFO", "#define ARCH_DLINFO"];
/// The first major version that sends a valid memory table.
const MAJOR_MIN: u32 = 7;
/// Releases to ask for the source, in order.
const SUITES: [&str; 3] = ["testing", "unstable", "stable"];
/// Approximate number of lines that make prints, for the percentage.
const LINES: f32 = 1200.0;
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

/// Returns the kernel, building it if it is not in the cache, which takes some minutes.
///
/// # Errors
///
/// Returns an error if the source is not available, a tool is missing, or the compiler fails; see [`Error`].
pub fn kernel(packages: &Packages<'_>, freshness: Freshness) -> Result<PathBuf> {
    let cached = || (freshness == Freshness::Cached).then(|| cached_kernel(packages.cache())).flatten();
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let _lock = packages.cache().lock("uml", packages.report())?;
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let source = source(packages, freshness)?;
    let version = source.version_of("linux-source-").unwrap_or("unknown").to_owned();
    let kept = folder(packages.cache()).join(format!("linux-{version}-{}", config_digest())).join("linux");
    if !kept.is_file() {
        let tools = Tools::find(packages)?;
        build(packages, &source, &version, &tools, &kept)?;
    }
    Ok(kept)
}

/// Returns the newest cached kernel that was built with our configuration.
pub fn cached_kernel(cache: &Cache) -> Option<PathBuf> {
    let ending = format!("-{}", config_digest());
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

fn config_digest() -> String {
    digest(&[CONFIG.as_bytes(), CHANGED.concat().as_bytes()])
}

/// Returns the package with the source.
fn source(packages: &Packages<'_>, freshness: Freshness) -> Result<Prefix> {
    let mut seen = Vec::new();
    for suite in SUITES {
        let package = "linux-source";
        match packages.candidate(suite, package) {
            Ok(Some(found)) if numbers(&found.version).first() >= Some(&MAJOR_MIN) => {
                let closure = Closure::Parts("linux-source-");
                return packages.fetch(&Request { suite, packages: &[package], closure, freshness });
            }
            Ok(Some(found)) => seen.push(format!("{} in {suite}", found.version)),
            Ok(None) | Err(Error::NoSuite { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::NoKernel { series: format!("{MAJOR_MIN}.x, as source"), found: seen })
}

/// Unpacks, configures and builds the kernel; writes the result to `kept`.
fn build(packages: &Packages<'_>, source: &Prefix, version: &str, tools: &Tools, kept: &Path) -> Result<()> {
    let report = packages.report();
    let archive =
        source.find("usr/src", "linux-source-").into_iter().find(|path| path.to_string_lossy().contains(".tar."));
    let archive = archive.ok_or_else(|| Error::Unexpected(format!("no source archive in {:?}", source.packages())))?;
    // Always the same name, so that the next build removes the remains of an interrupted one.
    let dir = folder(packages.cache()).join("build");
    remove(&dir)?;
    fs::create_dir_all(&dir).map_err(Error::io(format!("cannot create {dir:?}")))?;
    let removed_at_end = RemovedAtEnd(dir.clone());

    report.say(&format!("unpacking the source of Linux {version}"));
    unpack(&archive, &dir, tools)?;
    report.say(&format!("building User Mode Linux {version} (only once) on {} CPUs", jobs()));
    change(&dir)?;
    configure(&dir, tools)?;
    make(&dir, tools, &["linux", &format!("-j{}", jobs())], report)?;

    let doing = || format!("cannot write {kept:?}");
    let kept_dir = kept.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(kept_dir).map_err(Error::io(doing()))?;
    fs::rename(dir.join("linux"), kept).map_err(Error::io(doing()))?;
    drop(removed_at_end);
    Ok(())
}

fn unpack(archive: &Path, dir: &Path, tools: &Tools) -> Result<()> {
    let doing = || format!("cannot unpack {archive:?}");
    let open = File::open(archive).map_err(Error::io(doing()))?;
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
fn change(dir: &Path) -> Result<()> {
    let [file, beginning, new] = CHANGED;
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

/// Makes `.config` from our configuration, and checks that every line of ours took effect.
fn configure(dir: &Path, tools: &Tools) -> Result<()> {
    let path = dir.join("transom.config");
    fs::write(&path, CONFIG).map_err(Error::io(format!("cannot write {path:?}")))?;
    make(dir, tools, &["KCONFIG_ALLCONFIG=transom.config", "allnoconfig"], &crate::packages::Quiet)?;
    let made = fs::read_to_string(dir.join(".config")).map_err(Error::io("cannot read the generated configuration"))?;
    let refused = refused(CONFIG, &made);
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
    fn the_one_line_is_replaced() {
        assert_eq!(with_line("a\n#define X 1\nb\n", "#define X", "#define X").unwrap(), "a\n#define X\nb\n");
        assert_eq!(with_line("a\n", "#define X", ""), None);
        assert_eq!(with_line("#define X 1\n#define X 2\n", "#define X", ""), None);
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
        let ours = config_digest();
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
