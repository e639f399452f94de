//! The shares of this guest: mounts of type virtiofs.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{fstat, major, minor},
};

/// The mounts of one share in this mount namespace.
pub(crate) struct Watched {
    /// `/proc/self/mountinfo`, which reports a change of mounts as exceptional condition.
    mountinfo: File,
    device: String,
}

impl Watched {
    /// Watches the mounts of the file system of `root`.
    pub(crate) fn new(root: impl AsFd) -> io::Result<Self> {
        let device = fstat(root)?.st_dev;
        let device = format!("{}:{}", major(device), minor(device));
        Ok(Self { mountinfo: File::open("/proc/self/mountinfo")?, device })
    }

    /// Returns whether none is left. Costs one system call unless mounts have changed.
    pub(crate) fn are_gone(&mut self) -> io::Result<bool> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.mountinfo, PollFlags::PRI)];
        if poll(&mut fds, Some(&at_once))? == 0 {
            return Ok(false);
        }
        let mut text = Vec::new();
        self.mountinfo.rewind()?;
        self.mountinfo.read_to_end(&mut text)?;
        Ok(!has_device(&text, self.device.as_bytes()))
    }
}

/// Returns whether a file system with this number is mounted.
fn has_device(mountinfo: &[u8], device: &[u8]) -> bool {
    mountinfo.split(|&byte| byte == b'\n').any(|line| line.split(|&byte| byte == b' ').nth(2) == Some(device))
}

/// Returns the mount points of shares whose root is mounted, one for each file system.
pub(crate) fn mounted() -> io::Result<Vec<PathBuf>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Parses the lines of proc_pid_mountinfo(5).
fn parse(mountinfo: &[u8]) -> Vec<PathBuf> {
    let mut devices: Vec<&[u8]> = Vec::new();
    let mut mounts = Vec::new();
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        // Optional fields end with a hyphen; the type follows.
        let kind = fields.iter().position(|field| *field == b"-").and_then(|at| fields.get(at + 1));
        let (Some(&device), Some(&root), Some(&point)) = (fields.get(2), fields.get(3), fields.get(4)) else {
            continue;
        };
        if kind != Some(&&b"virtiofs"[..]) || root != b"/" || devices.contains(&device) {
            continue;
        }
        devices.push(device);
        mounts.push(PathBuf::from(OsString::from_vec(unescaped(point))));
    }
    mounts
}

/// Replaces `\040` and its like, which stand for blanks, line ends and backslashes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) => {
                plain.push(digits.iter().fold(0, |byte: u8, digit| byte << 3 | (digit - b'0')));
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_virtiofs_is_found_once_by_the_mount_of_its_root() {
        let text = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            30 22 0:31 / /mnt/a\\040b rw,relatime shared:1 - virtiofs share0 rw\n\
            31 22 0:31 / /again rw - virtiofs share0 rw\n\
            32 22 0:32 /sub /part rw - virtiofs share1 rw\n\
            33 22 0:32 / /back\\134slash rw master:1 propagate_from:2 - virtiofs share1 rw\n\
            34 22 0:33 / /proc rw - proc proc rw\n\
            nonsense\n";
        assert!(has_device(text, b"0:32") && !has_device(text, b"0:3"));
        assert_eq!(parse(text), [PathBuf::from("/mnt/a b"), PathBuf::from("/back\\slash")]);
    }
}
