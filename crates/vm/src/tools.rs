//! [`Tools`] finds or fetches what a run needs: a kernel, a static busybox, an emulator.
//!
//! Installed files are used; anything missing is fetched from the machine's distribution into the cache. The kernel and
//! busybox are fetched without asking, because they only run inside guests. [`emulator`] is about QEMU, [`foreign`]
//! about QEMU for other architectures.

mod emulator;
mod foreign;

use std::{
    ffi::OsString,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader, ProgramHeader},
};

use crate::{
    Error, Kernel, Result, build, daemon, kernel,
    packages::{Cache, Closure, Freshness, Packages, Report, Request, kernels::Series},
    uml,
};

pub use foreign::Architecture;

/// Debian's paths of busybox, before and after the merge of `/bin` into `/usr`.
const BUSYBOX: [&str; 2] = ["bin/busybox", "usr/bin/busybox"];

/// A message of kernels with the patch by which Linux reads version tables.
const PATCHED: &str = "cannot use the version table";

/// Finds or fetches what a run needs.
pub struct Tools<'a> {
    cache: &'a Cache,
    packages: Packages<'a>,
}

/// A program and its first arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its first arguments; never empty.
    words: Vec<OsString>,
    /// Environment variables to add.
    variables: Vec<(&'static str, OsString)>,
}

impl<'a> Tools<'a> {
    /// Creates tools that keep files in `cache` and report progress to `report`.
    pub fn new(cache: &'a Cache, report: &'a dyn Report) -> Self {
        Self { cache, packages: Packages::new(cache, report) }
    }

    /// Returns the directory of the cache.
    pub fn cache(&self) -> &Path {
        self.cache.dir()
    }

    /// Returns the kernel that `words` names, an image file or a series such as `6.12`. Without `words`, returns the
    /// newest cloud kernel of this machine's release.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such kernel and none can be fetched.
    pub fn kernel(&self, words: Option<&Path>) -> Result<Kernel> {
        let Some(path) = words else { return self.usual_kernel() };
        match path.to_str().and_then(|words| words.parse::<Series>().ok()) {
            Some(series) if !path.exists() => Ok(self.packages.kernel(series, Freshness::Cached)?.kernel),
            _ => Kernel::at(path),
        }
    }

    /// Returns the User Mode Linux kernel at `path`, or the one in the cache, which is built if necessary; that takes
    /// some minutes, once.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not exist or cannot be built.
    pub fn uml_kernel(&self, path: Option<&Path>) -> Result<Kernel> {
        match path {
            Some(path) => Ok(Kernel { modules: None, ..Kernel::at(path)? }),
            None => Kernel::at(&build::uml_kernel(&self.packages, Freshness::Cached)?),
        }
    }

    /// As [`Self::uml_kernel`], with the patch by which Linux reads version tables. The kernel at `path` must have it.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not exist, cannot be built, or does not read version tables.
    pub fn uml_kernel_with_versions(&self, path: Option<&Path>) -> Result<Kernel> {
        let Some(path) = path else {
            return Kernel::at(&build::uml_kernel_with_versions(&self.packages, Freshness::Cached)?);
        };
        let kernel = Kernel { modules: None, ..Kernel::at(path)? };
        kernel.check_reads_versions(path, uml::VERSIONS_PARAMETER)?;
        Ok(kernel)
    }

    /// Returns the kernel for virtual machines at `path`, or the one in the cache, which is built if necessary; that
    /// takes some minutes, once. It has the patch by which Linux reads version tables, and so must the one at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not exist or cannot be built.
    pub fn kernel_with_versions(&self, path: Option<&Path>) -> Result<Kernel> {
        let Some(path) = path else {
            return Kernel::at(&build::pci_kernel_with_versions(&self.packages, Freshness::Cached)?);
        };
        let kernel = Kernel::at(path)?;
        kernel.check_reads_versions(&kernel::unpacked(path, self.cache())?, PATCHED)?;
        Ok(kernel)
    }

    fn usual_kernel(&self) -> Result<Kernel> {
        let suite = Packages::own_suite()?;
        let request = Request {
            suite: &suite,
            packages: &["linux-image-cloud-amd64"],
            closure: Closure::Parts("-cloud-"),
            freshness: Freshness::Cached,
        };
        let prefix = self.packages.fetch(&request)?;
        let image = prefix.find("boot", "vmlinuz-").pop().or_else(|| {
            prefix.find("usr/lib/modules", "").into_iter().map(|dir| dir.join("vmlinuz")).find(|path| path.is_file())
        });
        Kernel::at(&image.unwrap_or_else(|| prefix.root().join("boot/vmlinuz")))
    }

    /// Returns a static busybox, installed or fetched.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be fetched.
    pub fn busybox(&self) -> Result<PathBuf> {
        let places = |root: &Path| BUSYBOX.map(|place| root.join(place));
        if let Some(path) = places(Path::new("/")).into_iter().find(|path| is_static(path)) {
            return Ok(path);
        }
        let suite = Packages::own_suite()?;
        let request = Request {
            suite: &suite,
            packages: &["busybox-static"],
            closure: Closure::Only,
            freshness: Freshness::Cached,
        };
        let root = self.packages.fetch(&request)?.root();
        let found = places(&root).into_iter().find(|path| is_static(path));
        found.ok_or_else(|| Error::Missing {
            what: "a static busybox",
            path: root,
            advice: "name one with --busybox, or use the host's programs with --root /".into(),
        })
    }
}

impl Program {
    /// Returns the program at `path`, if it exists.
    pub fn at(path: &Path) -> Option<Self> {
        path.is_file().then(|| Self { words: vec![path.into()], variables: Vec::new() })
    }

    /// Returns the program and its first arguments.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Returns a command that runs the program.
    pub fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Checks the programs of a run before anything is fetched for it: `agent`, the guest's first process, and the daemon.
///
/// # Errors
///
/// Returns an error if `agent` needs libraries, which the guest does not have, or if the daemon is missing.
pub fn check_programs(agent: &Path, daemon: &Path) -> Result<()> {
    if !is_static(agent) {
        return Err(Error::Usage(format!(
            "{agent:?} needs libraries, which the guest does not have: build it in the project's own directory, where \
             .cargo/config.toml makes programs static, as `cargo install --path crates/cli` does"
        )));
    }
    daemon::check(daemon)
}

/// Returns whether a program needs no loader and no libraries.
fn is_static(path: &Path) -> bool {
    // The headers, which come first.
    const HEAD: u64 = 1 << 16;
    let mut bytes = Vec::new();
    if fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut bytes)).is_err() {
        return false;
    }
    let Ok(header) = FileHeader64::<Endianness>::parse(bytes.as_slice()) else { return false };
    let Ok(endian) = header.endian() else { return false };
    header
        .program_headers(endian, bytes.as_slice())
        .is_ok_and(|segments| segments.iter().all(|segment| segment.p_type(endian) != PT_INTERP))
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn this_test_is_a_static_program_and_a_script_is_none() {
        assert!(is_static(&env::current_exe().unwrap()));
        let script = tempfile::NamedTempFile::new().unwrap();
        fs::write(script.path(), "#!/bin/sh\n").unwrap();
        assert!(!is_static(script.path()));
    }

    #[test]
    fn programs_that_cannot_serve_a_run_are_named_with_what_to_do() {
        let this = env::current_exe().unwrap();
        let script = tempfile::NamedTempFile::new().unwrap();
        fs::write(script.path(), "#!/bin/sh\n").unwrap();

        let dynamic = check_programs(script.path(), &this).unwrap_err().to_string();
        assert!(dynamic.contains("needs libraries") && dynamic.contains("cargo install --path"), "{dynamic}");
        let missing = check_programs(&this, Path::new("/nonexistent/transomd")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/transomd") && missing.contains("cargo install"), "{missing}");
        check_programs(&this, &this).unwrap();
    }
}
