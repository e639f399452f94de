//! virtiofsd 1.14, with which our daemon is compared: installed, or fetched or built into the cache. [`c_daemon`] has
//! its predecessor.

mod c_daemon;

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use c_daemon::c_virtiofsd;

use crate::packages::{Cache, Closure, Error, Freshness, Packages, Prefix, Report, Request, Result};

/// The version to compare with.
const VERSION: &str = "1.14.0";
/// Where distributions install it.
const PLACES: [&str; 4] =
    ["/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/bin/virtiofsd"];
/// The libraries that it links, with the packages that contain them.
const LIBRARIES: [(&str, &[&str]); 2] =
    [("libseccomp.so", &["libseccomp-dev", "libseccomp2"]), ("libcap-ng.so", &["libcap-ng-dev", "libcap-ng0"])];

/// Releases whose package may be of that version.
const SUITES: [&str; 2] = ["testing", "unstable"];
/// The path of the program in the package.
const PACKAGED: &str = "usr/libexec/virtiofsd";

/// Which virtiofsd serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// Built here as its authors release it, or the machine's own: what is measured.
    Release,
    /// The same, or the package of a newer release, which takes seconds to fetch: for tests, which do not measure it.
    Packaged,
}

/// Returns the path of virtiofsd. If it is missing, fetches the package where that serves and can be had, and builds it
/// otherwise, which takes some minutes.
///
/// # Errors
///
/// Returns an error if the disk is full, there is no cargo, or the build fails; see [`Error`].
pub fn virtiofsd(packages: &Packages<'_>, build: Build) -> Result<PathBuf> {
    let cache = packages.cache();
    if let Some(found) = existing(cache, build) {
        return Ok(found);
    }
    let _lock = cache.lock("peer", packages.report())?;
    let fetched = || fetch(packages.report(), |suite| fetch_from(packages, suite));
    let built = || {
        let libraries = missing_libraries(packages)?;
        packages.report().say(&format!("building virtiofsd {VERSION} (only once)"));
        install(cache, libraries.as_ref())
    };
    let sources: &[&dyn Fn() -> Result<()>] = match build {
        Build::Packaged => &[&fetched, &built],
        Build::Release => &[&built],
    };
    obtain(&|| existing(cache, build), sources)
}

/// Tries each of `sources` in order until `find` finds virtiofsd. One that provides nothing is followed by the next; an
/// error of one ends it.
fn obtain(find: &dyn Fn() -> Option<PathBuf>, sources: &[&dyn Fn() -> Result<()>]) -> Result<PathBuf> {
    for provide in sources {
        if let Some(found) = find() {
            return Ok(found);
        }
        provide()?;
    }
    find().ok_or_else(|| Error::Unexpected(format!("the build did not produce virtiofsd {VERSION}")))
}

/// Returns the path of virtiofsd, if it is installed or in the cache.
pub fn existing(cache: &Cache, build: Build) -> Option<PathBuf> {
    places(cache, build).find(|path| is_the_peer(path))
}

/// Returns where to look for virtiofsd, in order.
fn places(cache: &Cache, build: Build) -> impl Iterator<Item = PathBuf> {
    let packaged = (build == Build::Packaged).then(|| kept(cache, Build::Packaged));
    iter::once(kept(cache, Build::Release)).chain(PLACES.map(PathBuf::from)).chain(packaged)
}

fn kept(cache: &Cache, build: Build) -> PathBuf {
    folder(cache, build).join("bin/virtiofsd")
}

fn folder(cache: &Cache, build: Build) -> PathBuf {
    let ending = match build {
        Build::Release => "",
        Build::Packaged => "-packaged",
    };
    cache.dir().join("peer").join(format!("virtiofsd-{VERSION}{ending}"))
}

/// Returns whether `path` is virtiofsd of the right version and runs here.
fn is_the_peer(path: &Path) -> bool {
    says(path, |text| text.split_whitespace().any(|word| word == VERSION))
}

/// Returns whether the program at `path` runs here and reports a version that `is_wanted` accepts.
fn says(path: &Path, is_wanted: impl FnOnce(&str) -> bool) -> bool {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.is_ok_and(|output| is_wanted(&String::from_utf8_lossy(&output.stdout)))
}

/// Fetches the package of the first release for which `fetch_from` returns that it has this version. Reports why one of
/// them fails, and goes on.
fn fetch(report: &dyn Report, fetch_from: impl Fn(&'static str) -> Result<bool>) -> Result<()> {
    for suite in SUITES {
        match fetch_from(suite) {
            Ok(true) => break,
            Ok(false) | Err(Error::NoSuite { .. }) => {}
            Err(full @ Error::DiskFull { .. }) => return Err(full),
            Err(error) => report.say(&format!("no virtiofsd from {suite}: {error}")),
        }
    }
    Ok(())
}

/// Fetches the package with the libraries of its own release. Returns whether it has this version.
fn fetch_from(packages: &Packages<'_>, suite: &str) -> Result<bool> {
    let is_right = |version: &str| version.starts_with(&format!("{VERSION}-"));
    if !packages.candidate(suite, "virtiofsd")?.is_some_and(|found| is_right(&found.version)) {
        return Ok(false);
    }
    // What is in the cache may be of another version.
    let (closure, freshness) = (Closure::WithDependencies, Freshness::Newest);
    let prefix = packages.fetch(&Request { suite, packages: &["virtiofsd"], closure, freshness })?;
    let script = kept(packages.cache(), Build::Packaged);
    let folder = script.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::io(format!("cannot create {folder:?}")))?;
    prefix.write_script(PACKAGED, &script)?;
    Ok(true)
}

/// Fetches the libraries that the linker does not find, if any.
fn missing_libraries(packages: &Packages<'_>) -> Result<Option<Prefix>> {
    let lacking: Vec<&str> =
        LIBRARIES.iter().filter(|(file, _)| !linker_has(file)).flat_map(|(_, packages)| *packages).copied().collect();
    if lacking.is_empty() {
        return Ok(None);
    }
    packages.report().say(&format!("not installed (apt-get install): {}; fetching into the cache", lacking.join(" ")));
    let suite = Packages::own_suite()?;
    let request = Request { suite: &suite, packages: &lacking, closure: Closure::Only, freshness: Freshness::Cached };
    packages.fetch(&request).map(Some)
}

fn linker_has(file: &str) -> bool {
    let output = Command::new("cc").arg(format!("-print-file-name={file}")).stdin(Stdio::null()).output();
    // For a file that it does not find, the compiler prints the bare name.
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}

/// Builds it from the registry with its own lock file.
fn install(cache: &Cache, libraries: Option<&Prefix>) -> Result<()> {
    let root = std::path::absolute(folder(cache, Build::Release)).map_err(Error::io("cannot find the cache"))?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // cargo's settings depend on the working directory, and this project's must not apply.
    command.current_dir("/").args(["install", "virtiofsd", "--locked", "--quiet", "--version", VERSION, "--root"]);
    command.arg(&root);
    // Removes the settings of a cargo that runs this program.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_a_cargo_run(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    if let Some(prefix) = libraries {
        let flags = prefix.libraries().into_iter().flat_map(|folder| {
            let folder = folder.display().to_string();
            [format!("-Lnative={folder}"), format!("-Clink-arg=-Wl,-rpath,{folder}")]
        });
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\x1f"));
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Io { doing: "cannot start cargo".into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        doing: format!("cargo install virtiofsd {VERSION}"),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Returns whether cargo sets this variable for programs that it runs.
fn is_of_a_cargo_run(name: &str) -> bool {
    const KEPT: [&str; 1] = ["CARGO_HOME"];
    const OTHERS: [&str; 4] = ["RUSTFLAGS", "RUSTC_WRAPPER", "TARGET", "OUT_DIR"];
    name.starts_with("CARGO_") && !KEPT.contains(&name) && !is_a_setting_of_the_user(name) || OTHERS.contains(&name)
}

/// Returns whether the user sets this variable, for example to reach the registry.
fn is_a_setting_of_the_user(name: &str) -> bool {
    ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_", "CARGO_BUILD_JOBS"]
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::packages::Quiet;

    #[test]
    fn settings_of_the_user_pass_and_those_of_a_build_do_not() {
        for name in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY", "PATH", "HTTPS_PROXY"] {
            assert!(!is_of_a_cargo_run(name), "{name}");
        }
        for name in ["CARGO_PKG_NAME", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "RUSTFLAGS", "OUT_DIR"] {
            assert!(is_of_a_cargo_run(name), "{name}");
        }
    }

    #[test]
    fn a_package_is_for_tests_only_and_their_last_choice() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let of = |build| places(&cache, build).collect::<Vec<_>>();
        let is_packaged = |path: &PathBuf| path.to_str().unwrap().contains("packaged");
        assert!(!of(Build::Release).iter().any(is_packaged));
        let (last, others) =
            of(Build::Packaged).split_last().map(|(last, others)| (last.clone(), others.to_vec())).unwrap();
        assert_eq!((is_packaged(&last), others), (true, of(Build::Release)));
    }

    #[test]
    fn a_package_that_cannot_be_had_or_does_not_run_is_followed_by_a_build() {
        let count = Cell::new(0);
        let provide = || {
            count.set(count.get() + 1);
            Ok(())
        };
        let found_after = |tried: u32| {
            count.set(0);
            let found = obtain(&|| (count.get() >= tried).then(|| PathBuf::from("/found")), &[&provide, &provide]);
            (found.is_ok(), count.get())
        };
        assert_eq!([0, 1, 2, 3].map(found_after), [(true, 0), (true, 1), (true, 2), (false, 2)]);
        // Such as a full disk.
        count.set(0);
        let fail = || Err(Error::NoCache);
        assert!(obtain(&|| None, &[&fail, &provide]).is_err());
        assert_eq!(count.get(), 0);
    }

    #[test]
    fn a_release_without_the_package_is_followed_by_the_next_but_a_full_disk_ends_it() {
        let asked = |outcome: fn() -> Result<bool>| {
            let suites = RefCell::new(Vec::new());
            let fetched = fetch(&Quiet, |suite| {
                suites.borrow_mut().push(suite);
                outcome()
            });
            (suites.into_inner().len(), fetched.is_ok())
        };
        assert_eq!(asked(|| Ok(true)), (1, true));
        assert_eq!(asked(|| Ok(false)), (SUITES.len(), true));
        assert_eq!(asked(|| Err(Error::NoSuite { suite: String::new(), output: String::new() })), (SUITES.len(), true));
        assert_eq!(asked(|| Err(Error::Network { output: String::new() })), (SUITES.len(), true));
        assert_eq!(asked(|| Err(Error::DiskFull { dir: PathBuf::new(), output: String::new() })), (1, false));
    }

    #[test]
    fn another_program_is_not_the_peer() {
        assert!(!is_the_peer(Path::new("/bin/true")));
        assert!(!is_the_peer(Path::new("/nonexistent/virtiofsd")));
    }
}
