//! Checks whether KVM works here. The file `/dev/kvm` alone does not prove that, especially inside other virtual
//! machines.
//!
//! The check boots a kernel until it finds no root, which takes a few tenths of a second. The result is cached until
//! this machine reboots.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Result, Supervised, kernel, tools::Program};

/// Ten times as long as a kernel needs under a working KVM.
const BOOT_MAX: Duration = Duration::from_secs(5);

/// Returns whether the kernel `image` boots under KVM with this QEMU. The result is kept in `cache`.
pub(crate) fn works(qemu: &Program, image: &Path, cache: &Path) -> bool {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return false;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let answer = cache.join("kvm-works");
    match fs::read_to_string(&answer).unwrap_or_default().split_once(' ') {
        Some((of, "yes")) if of == boot.trim() => return true,
        Some((of, "no")) if of == boot.trim() => return false,
        _ => {}
    }
    let works = boots(qemu, image, cache).unwrap_or(false);
    tracing::info!(works, "checked whether KVM works");
    // If this fails, the next run checks again.
    let _ = fs::write(answer, format!("{} {}", boot.trim(), if works { "yes" } else { "no" }));
    works
}

fn boots(qemu: &Program, image: &Path, cache: &Path) -> Result<bool> {
    let image = kernel::unpacked(image, cache)?;
    let mut command = qemu.command();
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256"]);
    command.arg("-kernel").arg(image).args(["-append", "panic=-1 reboot=t quiet"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Supervised::spawn(command, Vec::new())?;
    let blocking = Timespec { tv_sec: BOOT_MAX.as_secs() as i64, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::from_borrowed_fd(process.pidfd(), PollFlags::IN)], Some(&blocking));
    Ok(process.ended().is_some_and(|status| status.success()))
}
