//! `transom cp`: files in and out of a machine that stays.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::ExitCode,
};

use clap::Args;
use nix::sys::resource::{Resource, setrlimit};
use transom_vm::{
    Error, Result,
    archive::left_out_message,
    keep::{Machine, copy_in, copy_out},
};

use crate::tell::tell;

/// What this process may allocate: an archive of a hostile guest must not fill the memory of this machine.
const MEMORY_MAX: u64 = 1 << 30;

/// Copy files and trees between this machine and one that `transom run --keep` has started
///
/// One of the two is NAME:PATH, a path in the machine NAME, which is absolute or starts in the machine's working
/// directory. If DESTINATION is a directory that is there, the copy is made in it. Needs no share. Files are replaced,
/// directories added to. Permissions, times and symbolic links are copied; hard links become copies; owners, extended
/// attributes, pipes, sockets and devices are not copied. A path of this machine with a colon begins with `./` or `/`.
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// What is copied: PATH or NAME:PATH
    source: OsString,
    /// Where to: NAME:PATH or PATH
    destination: OsString,
}

impl Cp {
    pub(crate) fn execute(self) -> ExitCode {
        match self.copy() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tell(error);
                ExitCode::FAILURE
            }
        }
    }

    fn copy(&self) -> Result<()> {
        setrlimit(Resource::RLIMIT_DATA, MEMORY_MAX, MEMORY_MAX).map_err(Error::io("cannot limit the memory"))?;
        match (in_machine(&self.source), in_machine(&self.destination)) {
            (None, Some((name, to))) => {
                let left_out = copy_in(Machine::connect(name)?, Path::new(&self.source), to)?;
                left_out.iter().for_each(|path| tell(left_out_message(path)));
                Ok(())
            }
            (Some((name, source)), None) => copy_out(Machine::connect(name)?, source, Path::new(&self.destination)),
            (Some(_), Some(_)) => {
                Err(Error::Usage("both are in a machine: copy to this machine first, and from here".into()))
            }
            (None, None) => Err(Error::Usage(format!(
                "neither {:?} nor {:?} is in a machine: one of them is NAME:PATH",
                self.source, self.destination
            ))),
        }
    }
}

/// Splits NAME:PATH. A path with a slash before the colon is one of this machine.
fn in_machine(words: &OsStr) -> Option<(&str, &Path)> {
    let bytes = words.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b':')?;
    let name = std::str::from_utf8(&bytes[..at]).ok()?;
    (!name.contains('/')).then(|| (name, Path::new(OsStr::from_bytes(&bytes[at + 1..]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_the_first_colon_and_has_no_slash() {
        let split = |words| in_machine(OsStr::new(words));
        assert_eq!(split("a:/b:c"), Some(("a", Path::new("/b:c"))));
        assert_eq!(split("a:"), Some(("a", Path::new(""))));
        for words in ["./a:b", "/a:b", "a"] {
            assert_eq!(split(words), None, "{words}");
        }
    }
}
