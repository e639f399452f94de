//! Who holds a share: mounts of it in any mount namespace, and processes that use its files. For messages; whether
//! anybody holds it is what the kernel says ([`Device::is_held`]).

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::{super::while_doing, superblock};

/// More would hide the rest of a message.
const NAMED_MAX: usize = 4;

/// The device number of a mounted share: a kernel object of its own, and no real device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// Returns that of the file at `path`. Asks no daemon, which may not answer.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(CWD, path, flags, StatxFlags::TYPE).map_err(while_doing(format!("cannot see {path:?}")))?;
        Ok(Self { major: found.stx_dev_major, minor: found.stx_dev_minor })
    }

    /// Returns whether anything in the kernel still has the share: a mount in any namespace, or an open file of a mount
    /// that was detached.
    pub(super) fn is_held(self) -> io::Result<bool> {
        superblock::exists(self.major, self.minor)
    }
}

/// Returns where else a share is mounted than at `path` here.
pub(super) fn other_mounts(device: Device, path: &Path) -> Vec<String> {
    let ours = fs::read_link("/proc/self/ns/mnt").ok();
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let this_mount = statx(CWD, path, flags, StatxFlags::MNT_ID).map(|found| found.stx_mnt_id).unwrap_or_default();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for process in processes() {
        let namespace = fs::read_link(process.path.join("ns/mnt")).ok();
        if namespace.is_none() || !seen.insert(namespace.clone()) {
            continue;
        }
        let mounts = fs::read_to_string(process.path.join("mountinfo")).unwrap_or_default();
        for (id, point) in mounts.lines().filter_map(|line| mount_of(line, device)) {
            if namespace != ours {
                found.push(format!("{process} has it at {point} in a mount namespace of its own"));
            } else if id != this_mount {
                found.push(format!("it is also mounted at {point}"));
            }
        }
    }
    named(found)
}

/// Returns the number and the mount point in a line of `mountinfo`, if it is a mount of `device`.
fn mount_of(line: &str, device: Device) -> Option<(u64, &str)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    if fields.nth(1)? != format!("{}:{}", device.major, device.minor) {
        return None;
    }
    Some((id, fields.nth(1)?))
}

/// Returns the processes that have a file of a share open or mapped, or a working directory in it.
pub(super) fn users(device: Device) -> Vec<String> {
    let mut found = Vec::new();
    for process in processes() {
        let is_there = |path: &Path| Device::at(path).is_ok_and(|other| other == device);
        let opened = fs::read_dir(process.path.join("fd")).into_iter().flatten().flatten();
        if ["cwd", "root"].iter().any(|name| is_there(&process.path.join(name))) {
            found.push(format!("{process} has its working directory there"));
        } else if let Some(file) = opened.map(|entry| entry.path()).find(|path| is_there(path)) {
            let name = fs::read_link(file).unwrap_or_default();
            found.push(format!("{process} has {} open", name.display()));
        } else if is_mapped(&process.path, device) {
            found.push(format!("{process} has a file of it in its memory"));
        }
    }
    named(found)
}

fn is_mapped(process: &Path, device: Device) -> bool {
    let number = format!("{:02x}:{:02x}", device.major, device.minor);
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    maps.lines().any(|line| line.split(' ').nth(3) == Some(&number))
}

/// A process, shown as its number and name.
struct Process {
    path: PathBuf,
}

impl std::fmt::Display for Process {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.path.file_name().unwrap_or_default().display();
        let name = fs::read_to_string(self.path.join("comm")).unwrap_or_default();
        write!(to, "process {number} ({})", name.trim_end())
    }
}

/// Returns all processes, by number: of those in one namespace, the oldest is named.
fn processes() -> impl Iterator<Item = Process> {
    let mut numbers: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| Process { path: PathBuf::from(format!("/proc/{number}")) })
}

/// Shortens a list for a message.
fn named(mut found: Vec<String>) -> Vec<String> {
    let more = found.len().saturating_sub(NAMED_MAX);
    found.truncate(NAMED_MAX);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_one_of_the_device_or_not() {
        let device = Device { major: 0, minor: 45 };
        let line = "36 35 0:45 / /mnt/a\\040b rw,relatime - virtiofs late1 rw";
        assert_eq!(mount_of(line, device), Some((36, "/mnt/a\\040b")));
        assert_eq!(mount_of(line, Device { major: 0, minor: 4 }), None);
        assert_eq!(mount_of("36 35", device), None);
    }

    #[test]
    fn a_long_list_says_how_many_more() {
        assert_eq!(named(vec!["a".into(); 6]).last().unwrap(), "and 2 more");
        assert_eq!(named(vec!["a".into(); 4]).len(), 4);
    }
}
