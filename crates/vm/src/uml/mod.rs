//! User Mode Linux: a Linux kernel as a process, which boots quickly, without hardware and without root.
//!
//! [`Uml`] is the [`Vmm`]; [`build`](crate::build) builds the kernel. The channels are socket pairs
//! connected to serial lines. There is no DAX, because this machine has no shared-memory regions.

use std::{
    env,
    ffi::OsString,
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::symlink, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::getpid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::{Boot, Channels, Error, GuestChannels, Result, SharePoint, Started, Supervised, Vmm};

/// User Mode Linux as a [`Vmm`]; the kernel is the executable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uml;

/// The kernel's argv[0]. On a reset it tries to execute this name again, finds no such program, and ends.
const NAME: &str = "user-mode-linux-without-reset";

/// The virtio device type of a file system.
const VIRTIO_ID_FS: u32 = 26;

/// The kernel's parameter with the version tables, `TAG:FILE,...`, if it has our patch.
pub(crate) const VERSIONS_PARAMETER: &str = "virtiofs.versions";

/// Preferred directory for the guest's memory file, which is executed from and often written.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Parameters of every start: `seccomp=on` traps system calls with a filter instead of ptrace, which takes several
/// times as long; the console is the process's standard output, without input; `lpj` skips the calibration of a delay
/// loop, which takes most of the boot and is only used by hardware drivers.
const ARGS: [&str; 5] = ["seccomp=on", "con=null", "con0=null,fd:1", "rdinit=/init", "lpj=10000000"];

impl Vmm for Uml {
    fn name(&self) -> &'static str {
        "User Mode Linux"
    }

    fn modules(&self) -> &'static [&'static str] {
        &[]
    }

    fn scratch_device(&self) -> &'static str {
        "/dev/ubda"
    }

    fn guest_channels(&self) -> GuestChannels {
        let [stdin, stdout, stderr, control, network] = std::array::from_fn(|number| format!("/dev/ttyS{number}"));
        GuestChannels { stdin, stdout, stderr, control, network }
    }

    /// The device has no tag, so the daemon must provide it.
    fn daemon_args(&self, tag: &str) -> Vec<OsString> {
        vec!["--tag".into(), tag.into()]
    }

    fn start(&self, boot: &Boot<'_>) -> Result<Started> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(Error::io("cannot create a channel"))?;
            ours.push(here);
            theirs.push(there);
        }
        let create = |path: &Path| fs::File::create(path).map_err(Error::io(format!("cannot create {path:?}")));
        let log = boot.dir.join("uml.log");
        let scratch =
            boot.scratch.map(fs::File::try_clone).transpose().map_err(Error::io("cannot duplicate a descriptor"))?;
        let mut command = command(boot, &theirs, scratch.as_ref())?;
        theirs.extend(scratch.map(OwnedFd::from));
        command.stdin(Stdio::null()).stdout(create(boot.console)?).stderr(create(&log)?);
        tracing::debug!(?command, "starting User Mode Linux");
        let process = on_one_cpu(|| Supervised::spawn(command, theirs))?;
        let Ok([stdin, stdout, stderr, control, network]) = <[OwnedFd; 5]>::try_from(ours) else {
            unreachable!("five socket pairs were created");
        };
        Ok(Started { process, channels: Channels { stdin, stdout, stderr, control, network }, log })
    }
}

/// Returns the command, in the directory of the run.
fn command(boot: &Boot<'_>, ends: &[OwnedFd], scratch: Option<&fs::File>) -> Result<Command> {
    let mut command = Command::new(absolute(boot.kernel)?);
    command.arg0(NAME).current_dir(boot.dir);
    command.arg(format!("mem={}M", boot.memory_mib));
    command.arg(word("initrd=", &relative(&absolute(boot.initramfs)?, boot.dir), "")?);
    command.args(ARGS);
    for (number, end) in ends.iter().enumerate() {
        command.arg(format!("ssl{number}=fd:{}", end.as_raw_fd()));
    }
    if let Some(disk) = scratch {
        command.arg(format!("ubd0=/proc/self/fd/{}", disk.as_raw_fd()));
    }
    let mut tables = Vec::new();
    if boot.has_network_device {
        return Err(Error::Usage("User Mode Linux is built without network devices; use --vmm qemu".into()));
    }
    for SharePoint { socket, tag, has_window, version_table } in boot.shares {
        if *has_window {
            return Err(Error::Usage(format!(
                "{tag}: User Mode Linux has no shared-memory regions and therefore no DAX; use --vmm qemu"
            )));
        }
        let device = format!(":{VIRTIO_ID_FS}");
        command.arg(word("virtio_uml.device=", &relative(&absolute(socket)?, boot.dir), &device)?);
        if let Some(table) = version_table {
            let name = format!("{tag}.versions");
            link(table, &boot.dir.join(&name))?;
            tables.push(format!("{tag}:{name}"));
        }
    }
    if !tables.is_empty() {
        command.arg(format!("{VERSIONS_PARAMETER}={}", tables.join(",")));
    }
    command.args(boot.kernel_args);
    // HOME is for a directory with its process id, TMPDIR for the guest's memory.
    command.env_clear().env("HOME", boot.dir).env("TMPDIR", memory_folder(boot));
    Ok(command)
}

/// Makes a name for a version table in the directory of the run, without characters that the kernel would take for the
/// end of it. The table may not exist yet; the kernel opens it when it mounts the share.
fn link(table: &Path, name: &Path) -> Result<()> {
    symlink(absolute(table)?, name).map_err(Error::io(format!("cannot create {name:?}")))
}

/// Returns a parameter that ends in a path. The kernel splits parameters at spaces, and device paths at colons.
fn word(name: &str, path: &Path, ending: &str) -> Result<OsString> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b'"')) {
        return Err(Error::Usage(format!(
            "User Mode Linux accepts no path with a space, a colon or a quote: {path:?}"
        )));
    }
    let mut word = OsString::from(name);
    word.push(path);
    word.push(ending);
    Ok(word)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(format!("cannot find {path:?}")))
}

/// Returns `path` relative to `dir` if it is below, which is shorter and avoids special characters in the names above.
fn relative(path: &Path, dir: &Path) -> PathBuf {
    path.strip_prefix(dir).unwrap_or(path).to_owned()
}

/// Returns the directory for the guest's memory: one in the host's memory if it allows executables and has room, else
/// that for temporary files.
fn memory_folder(boot: &Boot<'_>) -> PathBuf {
    let wanted_bytes = u64::from(boot.memory_mib) << 20;
    let fits = |status: &rustix::fs::StatVfs| {
        !status.f_flag.contains(StatVfsMountFlags::NOEXEC)
            && !status.f_flag.contains(StatVfsMountFlags::RDONLY)
            && status.f_bavail.saturating_mul(status.f_frsize) >= wanted_bytes
    };
    match statvfs(MEMORY_FOLDER) {
        Ok(status) if fits(&status) && is_writable(MEMORY_FOLDER) => MEMORY_FOLDER.into(),
        _ => env::temp_dir(),
    }
}

fn is_writable(folder: &str) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
}

/// Runs `start` with this thread bound to one CPU, which the started process inherits: the kernel and its programs run
/// in turns, and would otherwise migrate between CPUs at each switch.
fn on_one_cpu<T>(start: impl FnOnce() -> T) -> T {
    /// Several guests of one process use different CPUs.
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let Ok(allowed) = sched_getaffinity(None) else { return start() };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    if cpus.is_empty() {
        return start();
    }
    let turn = STARTED.fetch_add(1, Ordering::Relaxed) + getpid().as_raw_nonzero().get().unsigned_abs() as usize;
    let mut one = CpuSet::new();
    one.set(cpus[turn % cpus.len()]);
    // If this fails, the guest is only slower.
    let _ = sched_setaffinity(None, &one);
    let started = start();
    let _ = sched_setaffinity(None, &allowed);
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_folder_of_the_run_is_relative() {
        assert_eq!(relative(Path::new("/run/my files/s.sock"), Path::new("/run/my files")), Path::new("s.sock"));
        assert_eq!(relative(Path::new("/other/s.sock"), Path::new("/run/x")), Path::new("/other/s.sock"));
    }

    #[test]
    fn a_path_that_the_kernel_would_cut_is_refused() {
        assert_eq!(word("a=", Path::new("s.sock"), ":26").unwrap(), "a=s.sock:26");
        for path in ["a b", "a:b", "a\"b"] {
            assert!(word("a=", Path::new(path), "").is_err(), "{path}");
        }
    }

    #[test]
    fn a_process_starts_on_one_processor_and_this_thread_keeps_its_own() {
        let before = sched_getaffinity(None).unwrap();
        let within = on_one_cpu(|| sched_getaffinity(None).unwrap());
        assert_eq!(within.count(), 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
