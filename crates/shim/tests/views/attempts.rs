//! What another process may try with a file.

#![expect(unsafe_code, reason = "creat, and requests to io_uring")]

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::Path,
};

use io_uring::{IoUring, opcode::Ftruncate, types::Fd};
use nix::unistd;
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, ResolveFlags, fallocate, openat2};

use crate::mapped::Mapped;

/// Each makes the file shorter, or takes bytes out of it.
pub(crate) const SHORTENING: [&str; 7] =
    ["truncate", "ftruncate", "ftruncate anew", "openat", "openat2", "creat", "collapse anew"];
/// Through io_uring, which names no system call.
pub(crate) const RING: &str = "ring ftruncate to 0";
pub(crate) const RING_UNSEEN: &str = "ring ftruncate to 10";
pub(crate) const PUNCH: &str = "punch anew";
/// Each leaves the file at least as long.
pub(crate) const HARMLESS: [&str; 10] = [
    "read",
    "read nothing",
    "read anew",
    "write",
    "write anew",
    "append",
    "lengthen",
    "same size",
    "room anew",
    "map and read",
];

/// The file has more than 8 KiB.
pub(crate) fn attempt(what: &str, old: &File, path: &Path) -> io::Result<()> {
    let anew = || OpenOptions::new().read(true).write(true).open(path);
    let mut byte = [0];
    match what {
        "truncate" => Ok(unistd::truncate(path, 10)?),
        "ftruncate" => old.set_len(10),
        "ftruncate anew" => anew()?.set_len(10),
        "openat" => OpenOptions::new().write(true).truncate(true).open(path).map(drop),
        "openat2" => {
            let flags = OFlags::WRONLY | OFlags::TRUNC;
            Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty()).map(drop)?)
        }
        "creat" => creat(path),
        "collapse anew" => Ok(fallocate(anew()?, FallocateFlags::COLLAPSE_RANGE, 0, 4096)?),
        "punch anew" => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(anew()?, flags, 0, 4096)?)
        }
        RING => ring_truncate(old, 0),
        RING_UNSEEN => ring_truncate(old, 10),
        "read" => old.read_exact_at(&mut byte, 100),
        "read nothing" => old.read_at(&mut [], 0).map(drop),
        "read anew" => anew()?.read_exact_at(&mut byte, 100),
        "write" => old.write_all_at(b"w", 100),
        "write anew" => anew()?.write_all_at(b"w", 101),
        "append" => OpenOptions::new().append(true).open(path)?.write_all(b"a"),
        "lengthen" => old.set_len(old.metadata()?.len() + 1000),
        "same size" => old.set_len(old.metadata()?.len()),
        "room anew" => Ok(fallocate(anew()?, FallocateFlags::empty(), 0, 1 << 20)?),
        "map and read" => Mapped::new(anew()?, 0, 4096)?.load(100, 1).map(drop),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn creat(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: `name` ends with a NUL and outlives the call, which keeps no pointer.
    match unsafe { libc::creat(name.as_ptr(), 0o600) } {
        fd if fd >= 0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ring_truncate(file: &File, len: u64) -> io::Result<()> {
    let mut ring = IoUring::new(1)?;
    let entry = Ftruncate::new(Fd(file.as_raw_fd()), len).build();
    // SAFETY: the request names no memory, and its descriptor stays open until it is done.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    match ring.completion().next().map(|entry| entry.result()) {
        Some(result) if result < 0 => Err(io::Error::from_raw_os_error(-result)),
        _ => Ok(()),
    }
}
