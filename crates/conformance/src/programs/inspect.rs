//! Looks at everything in the tree, as root, at the end of a program: attributes, data, names, lists, flags, locks.

use rustix::fs::OFlags;

use super::{
    operation::Attribute,
    outcome::{Outcome, shown},
    tree::RACES,
};
use crate::{
    client::{Attr, Client, Errno, FileType, Handle, Lock, LockKind, LockOwner, Result},
    syscalls::{Syscalls, ioctl},
};

/// How much of a file is looked at; programs write less.
const DATA_MAX: usize = 1 << 17;

/// Programs lock these bytes one by one, and what follows them only as a whole.
const LOCKED_BYTES: u64 = 4;

/// What the tree is. Facts have the form `path:fact`.
pub(super) fn inspect() -> Result<Outcome> {
    let mut outcome = Outcome::ok();
    let mut directories = vec![Vec::new()];
    while let Some(directory) = directories.pop() {
        let path: &[u8] = if directory.is_empty() { b"." } else { &directory };
        let names = names(path)?;
        outcome = outcome.with(&fact(&directory, "names"), names.join(" "));
        for name in names.iter().filter(|name| name.as_str() != RACES) {
            let path = if directory.is_empty() { name.clone().into_bytes() } else { join(&directory, name) };
            let status = Syscalls.stat(&path, false)?;
            outcome = look(outcome, &path, &status)?;
            if status.kind() == FileType::Directory {
                directories.push(path);
            }
        }
    }
    Ok(outcome)
}

/// The names in a directory in the order of the alphabet, without `.` and `..`.
pub(super) fn names(path: &[u8]) -> Result<Vec<String>> {
    let handle = Syscalls.open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let mut names = Vec::new();
    let result = loop {
        match Syscalls.read_dir(handle, 1 << 14) {
            Ok(entries) if entries.is_empty() => break Ok(()),
            Ok(entries) => {
                names.extend(entries.into_iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()))
            }
            Err(errno) => break Err(errno),
        }
    };
    Syscalls.close(handle)?;
    names.retain(|name| name != "." && name != "..");
    names.sort();
    result.map(|()| names)
}

fn join(directory: &[u8], name: &str) -> Vec<u8> {
    [directory, b"/", name.as_bytes()].concat()
}

fn fact(path: &[u8], what: &str) -> String {
    format!("{}:{what}", String::from_utf8_lossy(path))
}

fn look(outcome: Outcome, path: &[u8], status: &Attr) -> Result<Outcome> {
    let mut outcome = outcome.with_attributes(&fact(path, ""), status);
    if status.kind() == FileType::Symlink {
        return Ok(outcome);
    }
    for attribute in Attribute::ALL {
        let mut buf = [0; 256];
        let value = match Syscalls.xattr_get(path, attribute.name().as_bytes(), &mut buf, false) {
            Ok(len) => shown(&buf[..len]),
            Err(errno @ (Errno::NODATA | Errno::OPNOTSUPP)) => format!("{errno:?}"),
            Err(errno) => return Err(errno),
        };
        outcome = outcome.with(&fact(path, attribute.name()), value);
    }
    if status.kind() == FileType::RegularFile {
        let handle = Syscalls.open(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
        let looked = look_inside(outcome, path, handle);
        Syscalls.close(handle)?;
        return looked;
    }
    Ok(outcome)
}

fn look_inside(mut outcome: Outcome, path: &[u8], handle: Handle) -> Result<Outcome> {
    let mut data = vec![0; DATA_MAX];
    let len = Syscalls.read_at(handle, &mut data, 0)?;
    outcome = outcome.with(&fact(path, "data"), shown(&data[..len]));
    outcome = outcome.with(&fact(path, "flags"), format!("{:#x}", ioctl::flags(handle)?));
    let rest = Lock { kind: LockKind::Write, start: LOCKED_BYTES, len: 0 };
    let bytes = (0..LOCKED_BYTES).map(|start| Lock { start, len: 1, ..rest });
    for wanted in bytes.chain([rest]) {
        let (found, pid) = Syscalls.query_lock(handle, LockOwner::Process, wanted)?;
        let found = Outcome::ok().with_lock(Lock { start: wanted.start, len: wanted.len, ..found }, pid);
        for (what, value) in found.facts {
            outcome = outcome.with(&fact(path, &format!("{}:{what}", wanted.start)), value);
        }
    }
    let mut attempts = [(LockKind::Write, "none"), (LockKind::Read, "shared")].into_iter();
    let flock = loop {
        let Some((kind, meaning)) = attempts.next() else { break "exclusive" };
        match Syscalls.flock(handle, kind, false) {
            Ok(()) => break meaning,
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    };
    Ok(outcome.with(&fact(path, "flock"), flock))
}
