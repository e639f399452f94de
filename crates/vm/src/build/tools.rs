//! Finds the programs that build a kernel, and fetches small ones that are not installed.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::target::Target;
use crate::{
    packages::{Closure, Error, Freshness, Packages, Request, Result},
    process::is_found,
};

/// Too large to fetch, and installed wherever Rust is used.
const COMPILER: [&str; 4] = ["gcc", "ld", "make", "tar"];
/// Programs that are fetched if missing, with their packages. flex and bison start m4.
const FETCHED: [(&str, &str); 6] =
    [("flex", "flex"), ("bison", "bison"), ("m4", "m4"), ("bc", "bc"), ("xz", "xz-utils"), ("patch", "patch")];

/// Starts the programs of a build.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The directory with scripts for fetched programs, and bison's data.
    fetched: Option<(PathBuf, PathBuf)>,
}

impl Tools {
    /// Finds the programs, and fetches missing ones.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no compiler; also see [`Error`].
    pub(super) fn find(packages: &Packages<'_>, target: &Target) -> Result<Self> {
        let mut missing: Vec<String> =
            COMPILER.iter().filter(|name| !is_found(name.as_ref())).map(|&name| name.to_owned()).collect();
        if missing.is_empty() && target.links_libc && !has_static_library() {
            missing.push("libc.a".into());
        }
        if !missing.is_empty() {
            return Err(Error::NoTools {
                what: target.name,
                missing,
                advice: "install them (Debian: apt-get install gcc make tar libc6-dev flex bison bc)".into(),
            });
        }
        let lacking: Vec<_> = FETCHED.iter().filter(|(program, _)| !is_found(program.as_ref())).collect();
        if lacking.is_empty() {
            return Ok(Self::default());
        }
        let names = |pick: fn(&(&'static str, &'static str)) -> &'static str| -> Vec<&'static str> {
            lacking.iter().map(|pair| pick(pair)).collect()
        };
        let (programs, wanted) = (names(|pair| pair.0), names(|pair| pair.1));
        packages.report().say(&format!(
            "not installed: {} (apt-get install {}); fetching into the cache",
            programs.join(", "),
            wanted.join(" ")
        ));
        let suite = Packages::own_suite()?;
        let prefix = packages.fetch(&Request {
            suite: &suite,
            packages: &wanted,
            closure: Closure::WithDependencies,
            freshness: Freshness::Cached,
        })?;
        let bin = packages.cache().dir().join("uml/tools");
        fs::create_dir_all(&bin).map_err(Error::io(format!("cannot create {bin:?}")))?;
        for program in programs {
            prefix.write_script(&format!("usr/bin/{program}"), &bin.join(program))?;
        }
        Ok(Self { fetched: Some((bin, prefix.root().join("usr/share/bison"))) })
    }

    /// Returns a command that starts `program`, whose children find the fetched programs, too.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C.UTF-8");
        if let Some((bin, bison)) = &self.fetched {
            let path = env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(bin.clone()).chain(env::split_paths(&path));
            command.env("PATH", env::join_paths(folders).unwrap_or_else(|_| OsString::from(&path)));
            if bin.join("bison").exists() {
                command.env("BISON_PKGDATADIR", bison);
            }
            if bin.join("m4").exists() {
                command.env("M4", bin.join("m4"));
            }
            // `Command` looks up a bare name in this process's PATH.
            if bin.join(program).exists() {
                let mut found = Command::new(bin.join(program));
                found.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
                return found;
            }
        }
        command
    }
}

/// Returns whether the C library for static linking is installed.
fn has_static_library() -> bool {
    let output = Command::new("gcc").arg("-print-file-name=libc.a").stdin(Stdio::null()).output();
    // For a file that it does not find, the compiler prints the bare name.
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}
