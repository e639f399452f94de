//! Copies between this machine and one that is kept: an archive over the streams of a command.

use std::{
    ffi::OsStr,
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    thread,
};

use super::{CallOptions, CallerStreams, Exec, Machine, Program, call};
use crate::{
    Error, Result,
    archive::{self, Destination, PACK, UNPACK},
};

/// The longest name of a file.
const NAME_LEN_MAX: u64 = 255;

/// Copies a file or a tree of this machine to a path in the guest. Returns the paths that are not copied, because they
/// are neither files, directories nor symbolic links.
///
/// # Errors
///
/// Returns an error if something cannot be read here, or not be made in the guest, which says why on standard error.
pub fn copy_in(machine: Machine, source: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    let failed = || Error::io(format!("cannot copy {}", source.display()));
    // Before a command is started for it.
    fs::symlink_metadata(source).map_err(failed())?;
    let exec = archiver([UNPACK.as_ref(), to.as_os_str(), name_of(source)?]);
    let (archive, to_guest) = io::pipe().map_err(failed())?;
    let (answer, from_guest) = io::pipe().map_err(failed())?;
    let path = source.to_owned();
    let packing = thread::spawn(move || {
        // The guest knows whether there is a directory already, and so what the copy is called.
        let mut name = Vec::new();
        BufReader::new(answer.take(NAME_LEN_MAX + 1)).read_until(0, &mut name)?;
        match name.pop() {
            Some(0) => archive::pack(&path, OsStr::from_bytes(&name), to_guest),
            // It has failed, and says so.
            _ => Ok(Vec::new()),
        }
    });
    let streams =
        CallerStreams { stdin: Box::new(archive), stdout: Box::new(from_guest), stderr: Box::new(io::stderr()) };
    let called = call(machine, exec, streams, CallOptions::default())?;
    let packed = packing.join().map_err(|_| Error::Guest("the thread that packs panicked".into()))?;
    match packed {
        // What is packed has nowhere to go.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed()(error)),
        Ok(left_out) if called.exit_code == 0 => Ok(left_out),
        _ => Err(Error::Guest(format!("cannot copy to {}", to.display()))),
    }
}

/// Copies a file or a tree of the guest to a path of this machine. Nothing is made elsewhere, whatever the guest sends.
///
/// # Errors
///
/// Returns an error if something cannot be made here, or not be read in the guest, which says why on standard error.
pub fn copy_out(machine: Machine, source: &Path, to: &Path) -> Result<()> {
    let failed = || Error::io(format!("cannot copy to {}", to.display()));
    let destination = Destination::of(to, name_of(source)?).map_err(failed())?;
    let exec = archiver([PACK.as_ref(), source.as_os_str(), &destination.name]);
    let (archive, from_guest) = io::pipe().map_err(failed())?;
    let unpacking = thread::spawn(move || archive::unpack(&destination, archive));
    let streams =
        CallerStreams { stdin: Box::new(io::empty()), stdout: Box::new(from_guest), stderr: Box::new(io::stderr()) };
    let called = call(machine, exec, streams, CallOptions::default())?;
    let unpacked = unpacking.join().map_err(|_| Error::Guest("the thread that unpacks panicked".into()))?;
    unpacked.map_err(failed())?;
    match called.exit_code {
        0 => Ok(()),
        _ => Err(Error::Guest(format!("cannot copy {}", source.display()))),
    }
}

/// Returns the last name of a path.
fn name_of(path: &Path) -> Result<&OsStr> {
    path.file_name()
        .ok_or_else(|| Error::Usage(format!("{}: name what is copied; the path ends in no name", path.display())))
}

fn archiver(words: [&OsStr; 3]) -> Exec {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    Exec { program: Program::Archiver(words), directory: None, user: None, env: Vec::new(), terminal: None }
}
