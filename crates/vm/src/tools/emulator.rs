//! Finds or fetches QEMU.
//!
//! Any version runs guests, and one is fetched on request. Shares with a DAX window need a device that QEMU has since
//! 11.1, which is newer than most installed versions: such a QEMU is fetched into the cache without asking, like the
//! kernel, and is not installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use super::{Program, Tools};
use crate::{
    Error, Result,
    packages::{Closure, Error as PackageError, Freshness, Packages, Prefix, Request, cache::digest, kernels::numbers},
    qemu::WINDOW_DEVICE,
};

const QEMU: &str = "qemu-system-x86_64";
const QEMU_PACKAGE: &str = "qemu-system-x86";
/// Directories of firmware in the packages, below the root.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
/// The environment variable for the directory of QEMU's modules.
const MODULES: &str = "QEMU_MODULE_DIR";
/// The first version that has the device with a window.
const WITH_WINDOW: [u32; 2] = [11, 1];

impl Tools<'_> {
    /// Returns QEMU: the one at `path`, or the one in `PATH`, or a cached one, or one fetched now if `may_fetch`.
    ///
    /// # Errors
    ///
    /// Returns an error if no QEMU is found or fetched.
    pub fn qemu(&self, path: Option<&Path>, may_fetch: bool) -> Result<Program> {
        if let Some(path) = path {
            return Program::at(path).ok_or_else(|| missing_qemu(path));
        }
        if let Some(program) = on_path(QEMU) {
            return Ok(program);
        }
        let suite = Packages::own_suite().map_err(|_| missing_qemu(Path::new(QEMU)))?;
        let request = request(&suite, &[QEMU_PACKAGE]);
        match self.packages.cached(&request)? {
            Some(prefix) => program_in(&prefix, QEMU),
            None if may_fetch => program_in(&self.packages.fetch(&request)?, QEMU),
            None => Err(missing_qemu(Path::new(QEMU))),
        }
    }

    /// Returns a QEMU with the device that has a DAX window: the one at `path`, or the one in `PATH`, or a cached one,
    /// or one fetched now.
    ///
    /// # Errors
    ///
    /// Returns an error if the one at `path` lacks the device, or if none can be fetched.
    pub fn qemu_with_window(&self, path: Option<&Path>) -> Result<Program> {
        if let Some(path) = path {
            let program = Program::at(path).ok_or_else(|| missing_qemu(path))?;
            return self
                .has_window(&program)
                .then_some(program)
                .ok_or_else(|| Error::Usage(format!("{path:?} has no {WINDOW_DEVICE}: DAX needs QEMU 11.1 or newer")));
        }
        self.newest(QEMU, &[QEMU_PACKAGE])
    }

    /// Returns the QEMU `name` with that device: the one in `PATH`, or a cached one, or one fetched now. `packages` may
    /// contain it, the one of newer releases first.
    pub(super) fn newest(&self, name: &str, packages: &[&str]) -> Result<Program> {
        if let Some(program) = on_path(name).filter(|program| self.has_window(program)) {
            return Ok(program);
        }
        for prefix in self.cached_qemus(packages)? {
            let program = program_in(&prefix, name)?;
            if self.has_window(&program) {
                return Ok(program);
            }
        }
        program_in(&self.fetch_new_enough(name, packages)?, name)
    }

    /// Returns the QEMU of a release of the distribution, from the cache or fetched now.
    ///
    /// # Errors
    ///
    /// Returns an error if the release has none, or it cannot be fetched.
    pub fn qemu_of_suite(&self, suite: &str) -> Result<Program> {
        program_in(&self.packages.fetch(&request(suite, &[QEMU_PACKAGE]))?, QEMU)
    }

    /// Returns the cached packages of QEMU, the newest first.
    fn cached_qemus(&self, packages: &[&str]) -> Result<Vec<Prefix>> {
        let suites = fs::read_dir(self.cache().join("packages")).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for suite in suites {
            for package in packages {
                let cached = self.packages.cached(&request(&suite.file_name().to_string_lossy(), &[package]))?;
                found.extend(cached.map(|prefix| (version_of(&prefix, package), prefix)));
            }
        }
        found.sort_by(|(one, _), (other, _)| other.cmp(one));
        Ok(found.into_iter().map(|(_, prefix)| prefix).collect())
    }

    /// Fetches the first QEMU that is new enough, trying the nearest releases first.
    fn fetch_new_enough(&self, name: &str, packages: &[&str]) -> Result<Prefix> {
        self.packages
            .report()
            .say(&format!("DAX needs {name} 11.1, which is not installed: fetching it into the cache (only once)"));
        let own = Packages::own_suite()?;
        let backports = format!("{own}-backports");
        let mut seen = Vec::new();
        for suite in [own.as_str(), backports.as_str(), "stable-backports", "testing", "unstable"] {
            for package in packages {
                match self.packages.candidate(suite, package) {
                    Ok(Some(candidate)) if is_new_enough(&candidate.version) => {
                        return Ok(self.packages.fetch(&request(suite, &[package]))?);
                    }
                    Ok(Some(candidate)) => seen.push(format!("{} in {suite}", candidate.version)),
                    Ok(None) | Err(PackageError::NoSuite { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Err(Error::Missing {
            what: "an emulator with DAX windows",
            path: name.into(),
            advice: format!("the distribution has {}; name QEMU 11.1 or newer with --qemu", seen.join(", ")),
        })
    }

    /// Returns whether a QEMU has the device. The result is cached until the program changes.
    fn has_window(&self, program: &Program) -> bool {
        let Some(answer) = self.answer(program) else { return asks_for_window(program) };
        match fs::read_to_string(&answer).as_deref() {
            Ok("yes") => return true,
            Ok("no") => return false,
            _ => {}
        }
        let has = asks_for_window(program);
        // If this fails, the next run checks again.
        let _ = fs::create_dir_all(self.cache()).and_then(|()| fs::write(answer, if has { "yes" } else { "no" }));
        has
    }

    /// Returns the file for the result, named after the program's arguments, size and modification time.
    fn answer(&self, program: &Program) -> Option<PathBuf> {
        let file = program.words.iter().rev().map(Path::new).find(|word| is_qemu(word) && word.is_file());
        let metadata = file.or(program.words.first().map(Path::new))?.metadata().ok()?;
        let words: Vec<&[u8]> = program.words.iter().map(|word| word.as_encoded_bytes()).collect();
        let version = format!("{} {:?}", metadata.len(), metadata.modified().ok()?);
        let name = digest(&[&words[..], &[version.as_bytes()]].concat());
        Some(self.cache().join(format!("qemu-has-window-{name}")))
    }
}

fn is_qemu(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("qemu-system-"))
}

fn on_path(name: &str) -> Option<Program> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).find_map(|dir| Program::at(&dir.join(name)))
}

fn request<'a>(suite: &'a str, packages: &'a [&'a str]) -> Request<'a> {
    Request { suite, packages, closure: Closure::WithDependencies, freshness: Freshness::Cached }
}

/// Returns the QEMU `name` of unpacked packages, with their firmware and modules.
fn program_in(prefix: &Prefix, name: &str) -> Result<Program> {
    let command = prefix.command(&format!("usr/bin/{name}"))?;
    let mut words = vec![command.get_program().to_owned()];
    words.extend(command.get_args().map(ToOwned::to_owned));
    for folder in FIRMWARE {
        words.extend(["-L".into(), prefix.root().join(folder).into()]);
    }
    // In some releases, QEMU loads even its accelerator from a directory below `/`.
    let modules = prefix.libraries().into_iter().find(|folder| folder.ends_with("qemu"));
    let variables = modules.map(|folder| (MODULES, folder.into_os_string())).into_iter().collect();
    Ok(Program { words, variables })
}

fn asks_for_window(program: &Program) -> bool {
    // QEMU's list of devices omits this one, but its options can be queried by name.
    let mut command = program.command();
    command.args(["-device", &format!("{WINDOW_DEVICE},help")]).stdin(Stdio::null()).stderr(Stdio::null());
    command.output().is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("virtio-id="))
}

/// Returns whether QEMU of a package version such as `1:11.1.3+ds-1` has the device.
fn is_new_enough(version: &str) -> bool {
    upstream(version).as_slice() >= &WITH_WINDOW[..]
}

fn version_of(prefix: &Prefix, package: &str) -> Vec<u32> {
    upstream(prefix.version_of(&format!("{package}=")).unwrap_or_default())
}

/// Returns the numbers of a package version, without its epoch.
fn upstream(version: &str) -> Vec<u32> {
    numbers(version.split_once(':').map_or(version, |(_, version)| version))
}

fn missing_qemu(path: &Path) -> Error {
    Error::Missing {
        what: "the emulator",
        path: path.to_owned(),
        advice: format!("install it (Debian: apt-get install {QEMU_PACKAGE}), fetch it with --fetch, or use --vmm uml"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::{Cache, Quiet};

    #[test]
    fn an_emulator_that_is_not_there_names_the_package() {
        let cache = Cache::at("/nonexistent");
        let error = Tools::new(&cache, &Quiet).qemu(Some(Path::new("/nonexistent/qemu")), false).unwrap_err();
        assert!(error.to_string().contains("apt-get install qemu-system-x86"), "{error}");
    }

    #[test]
    fn an_emulator_without_the_device_is_refused_and_the_answer_is_kept() {
        // 1. A program that answers as an old QEMU does.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(QEMU);
        let write = |answer: &str| {
            fs::write(&program, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
            fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        write("there is no such device");
        let cache = Cache::at(folder.path().join("cache"));
        let tools = Tools::new(&cache, &Quiet);
        let error = tools.qemu_with_window(Some(&program)).unwrap_err();
        assert!(error.to_string().contains("DAX needs QEMU 11.1"), "{error}");
        assert!(fs::read_dir(cache.dir()).unwrap().count() == 1);

        // 2. Another one at its place is asked anew.
        write("virtio-id=<uint16>");
        tools.qemu_with_window(Some(&program)).unwrap();
    }

    #[test]
    fn versions_are_compared_without_their_epoch() {
        assert!(is_new_enough("1:11.1.3+ds-1") && is_new_enough("11.1") && is_new_enough("1:12.0~rc1"));
        assert!(!is_new_enough("1:7.2+dfsg-7") && !is_new_enough("1:11.0.9") && !is_new_enough("11"));
    }
}
