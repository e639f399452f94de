//! User Mode Linux: a real Linux kernel as a process, which boots in a moment, without hardware and without root.
//!
//! [`Uml`] is the [`Vmm`]; `build.rs` makes the kernel. The channels are socket pairs behind serial lines. There is
//! no DAX: this machine has no shared-memory regions.

mod build;

use std::{
    env,
    ffi::OsString,
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
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
pub use build::{cached_kernel, kernel};

/// User Mode Linux as a [`Vmm`]; the kernel is the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uml;

/// The name that the kernel is started by. On a reset it starts the program of this name, finds none, and ends.
const NAME: &str = "user-mode-linux-without-reset";

/// The virtio device type of a file system.
const VIRTIO_ID_FS: u32 = 26;

/// Where memory files belong, if there is room: they are executed from, and written all the time.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Words for every start. What each is for:
/// `seccomp=on` traps system calls by a filter instead of by ptrace, which takes several times as long;
/// the console is the program's own output, and takes no input;
/// `lpj` spares the kernel the measuring of a waiting loop, most of its boot, which only drivers of hardware use.
const ARGS: [&str; 5] = ["seccomp=on", "con=null", "con0=null,fd:1", "rdinit=/init", "lpj=10000000"];

impl Vmm for Uml {
    fn name(&self) -> &'static str {
        "User Mode Linux"
    }

    fn modules(&self) -> &'static [&'static str] {
        &[]
    }

    fn guest_channels(&self) -> GuestChannels {
        let [stdin, stdout, stderr, control] = std::array::from_fn(|number| format!("/dev/ttyS{number}"));
        GuestChannels { stdin, stdout, stderr, control }
    }

    /// The device has no tag of its own; the daemon must answer for it.
    fn daemon_args(&self, tag: &str) -> Vec<OsString> {
        vec!["--tag".into(), tag.into()]
    }

    fn start(&self, boot: &Boot<'_>) -> Result<Started> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(Error::io("making a channel"))?;
            ours.push(here);
            theirs.push(there);
        }
        let create = |path: &Path| fs::File::create(path).map_err(Error::io(format!("creating {path:?}")));
        let log = boot.dir.join("uml.log");
        let mut command = command(boot, &theirs)?;
        command.stdin(Stdio::null()).stdout(create(boot.console)?).stderr(create(&log)?);
        tracing::debug!(?command, "starting User Mode Linux");
        let process = on_one_cpu(|| Supervised::spawn(command, theirs))?;
        let Ok([stdin, stdout, stderr, control]) = <[OwnedFd; 4]>::try_from(ours) else {
            unreachable!("four socket pairs were made");
        };
        Ok(Started { process, channels: Channels { stdin, stdout, stderr, control }, log })
    }
}

/// The program with its words and its environment, in the folder of the run.
fn command(boot: &Boot<'_>, ends: &[OwnedFd]) -> Result<Command> {
    let mut command = Command::new(absolute(boot.kernel)?);
    command.arg0(NAME).current_dir(boot.dir);
    command.arg(format!("mem={}M", boot.memory_mib));
    command.arg(word("initrd=", &relative(&absolute(boot.initramfs)?, boot.dir), "")?);
    command.args(ARGS);
    for (number, end) in ends.iter().enumerate() {
        command.arg(format!("ssl{number}=fd:{}", end.as_raw_fd()));
    }
    for SharePoint { socket, tag, has_window } in boot.shares {
        if *has_window {
            return Err(Error::Usage(format!(
                "{tag}: User Mode Linux has no shared-memory regions, and so no DAX; take --vmm qemu"
            )));
        }
        let device = format!(":{VIRTIO_ID_FS}");
        command.arg(word("virtio_uml.device=", &relative(&absolute(socket)?, boot.dir), &device)?);
    }
    command.args(boot.kernel_args);
    // Its own folder, which it makes for a process id, and the file that is the guest's memory.
    command.env_clear().env("HOME", boot.dir).env("TMPDIR", memory_folder(boot));
    Ok(command)
}

/// A word of the command line that ends in a path; the kernel cuts words at spaces, and a device's path at a colon.
fn word(name: &str, path: &Path, ending: &str) -> Result<OsString> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b'"')) {
        return Err(Error::Usage(format!("User Mode Linux takes no path with a space, a colon or a quote: {path:?}")));
    }
    let mut word = OsString::from(name);
    word.push(path);
    word.push(ending);
    Ok(word)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(format!("finding {path:?}")))
}

/// `path` as seen from `dir` where it lies below: shorter, and free of what the names above hold.
fn relative(path: &Path, dir: &Path) -> PathBuf {
    path.strip_prefix(dir).unwrap_or(path).to_owned()
}

/// The folder for the guest's memory: in the host's memory where programs may be there and it has room, else where
/// temporary files go.
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

/// Runs `start` with this thread on one processor, which a process started then inherits: the kernel and the
/// processes of its programs take turns, and would otherwise wander between processors at each.
fn on_one_cpu<T>(start: impl FnOnce() -> T) -> T {
    /// Several guests of one process go to different ones.
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let Ok(allowed) = sched_getaffinity(None) else { return start() };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    if cpus.is_empty() {
        return start();
    }
    let turn = STARTED.fetch_add(1, Ordering::Relaxed) + getpid().as_raw_nonzero().get().unsigned_abs() as usize;
    let mut one = CpuSet::new();
    one.set(cpus[turn % cpus.len()]);
    // A machine that refuses is only slower.
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
