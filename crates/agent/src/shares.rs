//! The shares of this guest: mounts of type virtiofs.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, fstat, major, minor, open},
    io::Errno,
};

/// The number of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Device {
    major: u32,
    minor: u32,
}

/// `/proc/self/mountinfo`, which reports a change of mounts as exceptional condition.
pub(crate) struct MountTable(File);

/// The mounts of one share in this mount namespace.
pub(crate) struct Watched {
    table: MountTable,
    device: Device,
}

impl Device {
    fn of(file: impl AsFd) -> io::Result<Self> {
        let device = fstat(file)?.st_dev;
        Ok(Self { major: major(device), minor: minor(device) })
    }

    fn parse(field: &[u8]) -> Option<Self> {
        let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl MountTable {
    /// Opens the table; changes from now on are reported.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(File::open("/proc/self/mountinfo")?))
    }

    /// Waits until mounts have changed since the last call.
    pub(crate) fn wait(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::PRI)], None) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
    }

    /// Returns the table if mounts have changed since the last call.
    fn changed(&mut self) -> io::Result<Option<Vec<u8>>> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&self.0, PollFlags::PRI)], Some(&at_once))? == 0 {
            return Ok(None);
        }
        let mut text = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut text)?;
        Ok(Some(text))
    }
}

impl Watched {
    /// Watches the mounts of the file system of `root`.
    pub(crate) fn new(root: impl AsFd) -> io::Result<Self> {
        Ok(Self { device: Device::of(root)?, table: MountTable::open()? })
    }

    /// Returns whether none is left. Costs one system call unless mounts have changed.
    pub(crate) fn are_gone(&mut self) -> io::Result<bool> {
        Ok(self.table.changed()?.is_some_and(|text| !has_device(&text, self.device)))
    }
}

/// Returns whether a file system with this number is mounted.
fn has_device(mountinfo: &[u8], device: Device) -> bool {
    let field = |line: &[u8]| line.split(|&byte| byte == b' ').nth(2).and_then(Device::parse);
    mountinfo.split(|&byte| byte == b'\n').any(|line| field(line) == Some(device))
}

/// Returns the number of the file system that is mounted at `mount`.
pub(crate) fn device(mount: &Path) -> io::Result<Device> {
    Device::of(open(mount, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the shares whose root is mounted, each with one of its mount points.
pub(crate) fn mounted() -> io::Result<Vec<(Device, PathBuf)>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Parses the lines of proc_pid_mountinfo(5).
fn parse(mountinfo: &[u8]) -> Vec<(Device, PathBuf)> {
    let mut mounts: Vec<(Device, PathBuf)> = Vec::new();
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        // Optional fields end with a hyphen; the type follows.
        let kind = fields.iter().position(|field| *field == b"-").and_then(|at| fields.get(at + 1));
        let device = fields.get(2).and_then(|field| Device::parse(field));
        let (Some(device), Some(&root), Some(&point)) = (device, fields.get(3), fields.get(4)) else {
            continue;
        };
        if kind != Some(&&b"virtiofs"[..]) || root != b"/" || mounts.iter().any(|(other, _)| *other == device) {
            continue;
        }
        mounts.push((device, PathBuf::from(OsString::from_vec(unescaped(point)))));
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
        let device = |minor| Device { major: 0, minor };
        assert!(has_device(text, device(32)) && !has_device(text, device(3)));
        let expected = [(device(31), PathBuf::from("/mnt/a b")), (device(32), PathBuf::from("/back\\slash"))];
        assert_eq!(parse(text), expected);
    }
}
