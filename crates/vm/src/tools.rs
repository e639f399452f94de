//! What a run needs and the machine may lack: a kernel, a static busybox, an emulator.
//!
//! What the machine has is used; the rest comes from the machine's own distribution into the cache. The kernel and
//! busybox are fetched unasked, since they only ever run inside guests; `tools/emulator.rs` is about QEMU.

mod emulator;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader, ProgramHeader},
};

use crate::{
    Error, Kernel, Result,
    packages::{Cache, Closure, Freshness, Packages, Report, Request, kernels::Series},
    uml,
};

/// Debian's places for busybox, before and after the merge of `/bin` into `/usr`.
const BUSYBOX: [&str; 2] = ["bin/busybox", "usr/bin/busybox"];

/// Finds or fetches what a run needs.
pub struct Tools<'a> {
    cache: &'a Cache,
    packages: Packages<'a>,
}

/// A program with the arguments that come before all others.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its first arguments; never empty.
    words: Vec<OsString>,
    /// Variables that it is started with, beside those of this process.
    variables: Vec<(&'static str, OsString)>,
}

impl<'a> Tools<'a> {
    /// Tools kept in `cache`; `report` hears what is fetched.
    pub fn new(cache: &'a Cache, report: &'a dyn Report) -> Self {
        Self { cache, packages: Packages::new(cache, report) }
    }

    /// Where things are kept.
    pub fn cache(&self) -> &Path {
        self.cache.dir()
    }

    /// The kernel that `words` names: the file of an image, or a series, `6.12` for example; without words the
    /// newest of the machine's own release that is made for virtual machines.
    ///
    /// Errors: there is none, and none can be fetched.
    pub fn kernel(&self, words: Option<&Path>) -> Result<Kernel> {
        let Some(path) = words else { return self.usual_kernel() };
        match path.to_str().and_then(|words| words.parse::<Series>().ok()) {
            Some(series) if !path.exists() => Ok(self.packages.kernel(series, Freshness::Cached)?.kernel),
            _ => Kernel::at(path),
        }
    }

    /// The kernel of User Mode Linux that `path` names, or the one in the cache, which is built if it is not there:
    /// that takes some minutes, once.
    ///
    /// Errors: it cannot be built.
    pub fn uml_kernel(&self, path: Option<&Path>) -> Result<Kernel> {
        match path {
            Some(path) => Ok(Kernel { modules: None, ..Kernel::at(path)? }),
            None => Kernel::at(&uml::kernel(&self.packages, Freshness::Cached)?),
        }
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

    /// A static busybox: the machine's, or a fetched one.
    ///
    /// Errors: it cannot be fetched.
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
            advice: "give one with --busybox, or take the host's programs with --root /".into(),
        })
    }
}

impl Program {
    /// The program at `path`, if there is one.
    pub fn at(path: &Path) -> Option<Self> {
        path.is_file().then(|| Self { words: vec![path.into()], variables: Vec::new() })
    }

    /// The program and its first arguments.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// A command that runs it.
    pub fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Whether a program needs no loader and no libraries.
fn is_static(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
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
}
