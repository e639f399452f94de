//! Facts about the machine on which a measurement ran.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

/// Where and when a measurement ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The day, UTC.
    pub date: String,
    /// The processor's name.
    pub processor: String,
    /// Number of cores available to this program.
    pub cores: usize,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// The host's kernel.
    pub kernel: String,
    /// The guest's kernel, if there is a guest.
    pub guest_kernel: Option<String>,
    /// The type of the shared file system.
    pub shared_file_system: String,
}

impl Facts {
    /// Returns the facts of this machine, now.
    pub fn collect(guest_kernel: Option<String>, shared: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            processor: processor.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: crate::process::field(&read("/proc/meminfo"), "MemTotal") / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            guest_kernel,
            shared_file_system: file_system(shared),
        }
    }
}

/// Returns the type of the file system at `path`, as in the mount table.
fn file_system(path: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(mount_point, _)| path.starts_with(mount_point))
        .max_by_key(|(mount_point, _)| mount_point.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
