//! [`Apt`] runs apt with its own lists, caches and sources, but with the machine's keys and proxies.
//!
//! [`answers`] parses apt's output. Source: apt.conf(5), apt-get(8), apt-cache(8).

mod answers;

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use rustix::process::geteuid;

use super::{
    Cache, Closure, Error, Report, Request, Result,
    capture::{STILL_MAX, capture},
    mirror::{Mirror, Sources},
    report::Transfer,
};
pub(crate) use answers::Candidate;
pub(super) use answers::File;

/// Maximum age of the package lists. A release changes a few times a day, and newer packages are rarely needed.
const LISTS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Space needed for a package and its contents, as a multiple of the package.
const UNPACKED: u64 = 5;

/// Space without which apt does not go on, and does not always say so.
const LEFT_MIN: u64 = 4 << 20;
/// Space needed for the lists of a release, with apt's index of them.
const LISTS_BYTES: u64 = 256 << 20;

/// apt, configured for one release.
pub(super) struct Apt<'a> {
    suite: &'a str,
    dir: PathBuf,
    cache_dir: &'a Path,
    configuration: PathBuf,
    report: &'a dyn Report,
    /// The download that runs.
    transfer: Cell<Option<Transfer>>,
}

/// Returns the names of the files' packages with their versions.
pub(super) fn names(files: &[File]) -> Vec<String> {
    files.iter().map(|file| format!("{}={}", file.package, file.version)).collect()
}

impl<'a> Apt<'a> {
    /// Configures apt for `suite`, and fetches its package lists unless they are recent.
    pub(super) fn prepare(cache: &'a Cache, suite: &'a str, report: &'a dyn Report) -> Result<Self> {
        let machine = Machine::ask()?;
        let sources = Mirror::find(&machine.list, &machine.parts, &machine.architecture)?.sources(suite);
        let common = cache.dir().join("apt");
        let dir = common.join(suite);
        let configuration = dir.join("apt.conf");
        let apt = Self { suite, dir, cache_dir: cache.dir(), configuration, report, transfer: Cell::default() };
        for folder in [apt.archives(), apt.dir.join("cache/archives/partial"), common.join("state/lists/partial")] {
            fs::create_dir_all(&folder).map_err(Error::io(format!("cannot create {folder:?}")))?;
        }
        write(&common.join("state/status"), "")?;
        write(&apt.configuration, &apt.configuration_text(&common.join("state"), sources.is_not_automatic))?;
        apt.update(&sources)?;
        Ok(apt)
    }

    /// Returns the files to download for a request.
    pub(super) fn resolve(&self, request: &Request<'_>) -> Result<Vec<File>> {
        let word = match request.closure {
            Closure::WithDependencies => return self.closure(request.packages, &[]),
            Closure::Without(others) => return self.closure(request.packages, others),
            Closure::Only => None,
            Closure::Parts(word) => Some(word),
        };
        let mut files: Vec<File> = Vec::new();
        let mut wanted: Vec<String> = request.packages.iter().map(|&name| name.to_owned()).collect();
        while let Some(package) = wanted.pop() {
            if files.iter().any(|file| file.package == package) {
                continue;
            }
            let candidate = self
                .candidate(&package)?
                .ok_or_else(|| Error::NoPackage { suite: self.suite.to_owned(), package: package.clone() })?;
            wanted
                .extend(candidate.dependencies.into_iter().filter(|name| word.is_some_and(|word| name.contains(word))));
            files.push(File { package, version: candidate.version, size_bytes: candidate.size_bytes });
        }
        Ok(files)
    }

    /// Returns the version of `package` that would be installed, or `None` if no version is available.
    pub(super) fn candidate(&self, package: &str) -> Result<Option<Candidate>> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions", "--", package]);
        match self.run(command, &format!("apt-cache show {package}")) {
            Ok(text) => Ok(answers::candidate(&text)),
            Err(Error::NoPackage { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns everything that `packages` need on a system that has only `installed`.
    fn closure(&self, packages: &[&str], installed: &[&str]) -> Result<Vec<File>> {
        let status = self.dir.join("status");
        write(&status, &answers::status(installed))?;
        let mut command = self.command("apt-get");
        command.arg("-o").arg(format!("Dir::State::status={}", status.display()));
        command.args(["-qq", "--print-uris", "-o", "APT::Install-Recommends=false", "install", "--"]).args(packages);
        let text = self.run(command, &format!("resolving the dependencies of {}", packages.join(", ")))?;
        let files: Vec<_> = text.lines().filter_map(answers::uri_line).collect();
        if files.is_empty() {
            return Err(Error::Unresolved { suite: self.suite.to_owned(), output: text });
        }
        Ok(files)
    }

    /// Downloads `files` and returns their paths. Files that were downloaded earlier are not downloaded again.
    pub(super) fn download(&self, files: &[File]) -> Result<Vec<PathBuf>> {
        let total_bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
        self.check_space(total_bytes * UNPACKED)?;
        let what = match files {
            [file] => format!("{} {}", file.package, file.version),
            _ => format!("{} packages", files.len()),
        };
        let mib = total_bytes as f64 / f64::from(1 << 20);
        self.report.say(&format!("fetching {what} from {} ({mib:.1} MiB)", self.suite));
        let mut command = self.command("apt-get");
        command.current_dir(self.archives());
        command.args(["-qq", "-o", "APT::Status-Fd=1", "download", "--"]).args(names(files));
        self.transfer.set(Some(Transfer::begin(total_bytes)));
        let result = self.run(command, &format!("fetching {what}"));
        self.transfer.set(None);
        result?;

        let listing = fs::read_dir(self.archives()).map_err(Error::io(format!("cannot read {:?}", self.archives())))?;
        let there: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
        files
            .iter()
            .map(|file| {
                let is_it = |path: &&PathBuf| file.is_named(&path.file_name().unwrap_or_default().to_string_lossy());
                there.iter().find(is_it).cloned().ok_or_else(|| {
                    Error::Unexpected(format!("apt did not leave a file of {} {}", file.package, file.version))
                })
            })
            .collect()
    }

    /// Returns an error unless `wanted_bytes` are free.
    fn check_space(&self, wanted_bytes: u64) -> Result<()> {
        let free = rustix::fs::statvfs(&self.dir)
            .map_err(Error::io(format!("cannot read the free space of {:?}", self.dir)))?;
        let free_bytes = free.f_bavail * free.f_frsize;
        if free_bytes < wanted_bytes {
            let mib = |bytes: u64| bytes >> 20;
            return Err(Error::DiskFull {
                dir: self.cache_dir.to_owned(),
                output: format!("{} MiB free, {} MiB needed", mib(free_bytes), mib(wanted_bytes)),
            });
        }
        Ok(())
    }

    /// Fetches the lists if they are old or belong to other sources.
    fn update(&self, sources: &Sources) -> Result<()> {
        let stamp = self.dir.join("updated");
        let is_same = fs::read_to_string(&stamp).is_ok_and(|text| text == sources.full);
        if is_same && age(&stamp).is_some_and(|age| age < LISTS_AGE_MAX) {
            return Ok(());
        }
        self.check_space(LISTS_BYTES)?;
        self.report.say(&format!("fetching the package lists of {}", self.suite));
        // Not every release has updates and security fixes, so fall back to the release alone.
        let result = self.update_from(&sources.full).or_else(|error| match error {
            Error::NoSuite { .. } if sources.least != sources.full => self.update_from(&sources.least),
            error => Err(error),
        });
        match result {
            Ok(()) => write(&stamp, &sources.full),
            Err(error @ Error::Network { .. }) if is_same => {
                self.report.say(&format!("using old package lists: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn update_from(&self, sources: &str) -> Result<()> {
        write(&self.sources(), sources)?;
        let mut command = self.command("apt-get");
        command.args(["-qq", "-o", "APT::Status-Fd=1", "--allow-releaseinfo-change", "update"]);
        // By default, a failing mirror is only a warning.
        command.args(["-o", "APT::Update::Error-Mode=any"]);
        self.run(command, "fetching the package lists").map(drop)
    }

    fn configuration_text(&self, state: &Path, is_not_automatic: bool) -> String {
        let dir = &self.dir;
        let mut lines = vec![
            format!("Dir::State {state:?};"),
            format!("Dir::State::status {:?};", state.join("status")),
            format!("Dir::Cache {:?};", dir.join("cache")),
            format!("Dir::Etc::sourcelist {:?};", self.sources()),
            // Ignore the machine's other sources and preferences.
            "Dir::Etc::sourceparts \"/dev/null\";".into(),
            "Dir::Etc::preferences \"/dev/null\";".into(),
            "Dir::Etc::preferencesparts \"/dev/null\";".into(),
            // Keep the lists of several releases.
            "APT::Get::List-Cleanup \"false\";".into(),
            // The machine's hooks would clean up the machine's directories.
            "#clear APT::Update::Post-Invoke;".into(),
            "#clear APT::Update::Post-Invoke-Success;".into(),
            "#clear APT::Update::Pre-Invoke;".into(),
            format!("APT::Default-Release {:?};", if is_not_automatic { self.suite } else { "" }),
        ];
        if geteuid().is_root() {
            // The user to which apt drops its privileges cannot write here.
            lines.push("APT::Sandbox::User \"root\";".into());
        }
        lines.join("\n") + "\n"
    }

    fn sources(&self) -> PathBuf {
        self.dir.join("mirror.sources")
    }

    fn archives(&self) -> PathBuf {
        self.dir.join("archives")
    }

    fn command(&self, program: &'static str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.configuration);
        command
    }

    /// Runs `command` and returns its output, except progress lines, which go to the report.
    fn run(&self, command: Command, doing: &str) -> Result<String> {
        let program = if command.get_program() == "apt-get" { "apt-get" } else { "apt-cache" };
        let output = capture(command, program, STILL_MAX, |line| self.progress(line), || self.check_space(LEFT_MIN))?;
        if output.is_success {
            return Ok(output.stdout);
        }
        Err(answers::failure(self.suite, self.cache_dir, doing, output.status, output.stderr))
    }

    /// Parses a progress line, and reports it.
    fn progress(&self, line: &str) -> Option<f32> {
        let percent = answers::percent(line)?;
        match self.transfer.get() {
            Some(transfer) => self.report.advance_transfer(percent, &transfer.remaining(percent)),
            None => self.report.advance(percent),
        }
        Some(percent)
    }
}

/// The configuration of the machine's apt.
struct Machine {
    list: PathBuf,
    parts: PathBuf,
    architecture: String,
}

impl Machine {
    fn ask() -> Result<Self> {
        let mut command = Command::new("apt-config");
        command.args(["shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"]);
        command.args(["ARCH", "APT::Architecture"]);
        let output = capture(command, "apt-config", STILL_MAX, |_| None, || Ok(()))?;
        let value = |name: &str| {
            let found = output.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            found.map(|value| value.trim_matches('\'').to_owned()).unwrap_or_default()
        };
        Ok(Self { list: value("LIST").into(), parts: value("PARTS").into(), architecture: value("ARCH") })
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io(format!("cannot write {path:?}")))
}

fn age(path: &Path) -> Option<Duration> {
    SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).ok()
}
