//! Resets a device while the window is mapped: by a reboot of the guest, and by unbinding and rebinding its driver.

use std::{
    ffi::CString,
    fs::{self, File},
    path::Path,
};

use anyhow::{Context as _, ensure};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    system::{RebootCommand, reboot as reboot_machine},
};
use transom_conformance::tools;

use crate::{Verdict, guest::Virtual};

const FILE_LEN: u64 = 16 << 20;
const FILE: &str = "/share/file";
const MARK: &str = "/share/mark";
const DRIVER: &str = "/sys/bus/virtio/drivers/virtiofs";

/// The guest stores data 2 before the reset and data 3 after it, where it found data 2.
pub(super) fn run(machine: &Virtual, share: &Path, program: &str) -> anyhow::Result<Verdict> {
    let file = share.join("file");
    File::create(&file)?.set_len(FILE_LEN)?;
    tools::fill(&file, 0, FILE_LEN, 1)?;
    machine.inside(vec![machine.share(share, "/share")], &[program])?;
    tools::verify(&file, 0, FILE_LEN, 3)?;
    Ok(Verdict::passed(None))
}

/// Runs twice: before the reboot, and after.
pub(super) fn reboot() -> anyhow::Result<()> {
    if !Path::new(MARK).exists() {
        exchange(FILE, 1, 2)?;
        File::create(MARK)?;
        reboot_machine(RebootCommand::Restart)?;
    }
    exchange(FILE, 2, 3)
}

pub(super) fn rebind() -> anyhow::Result<()> {
    exchange(FILE, 1, 2)?;
    let device = fs::read_dir(DRIVER)?.flatten().map(|entry| entry.file_name()).find_map(|name| {
        let name = name.into_string().ok()?;
        name.starts_with("virtio").then_some(name)
    });
    let device = device.context("no device has the driver")?;
    let target = fs::read_link(Path::new(DRIVER).join(&device))?;
    ensure!(target.components().count() > 1, "{device} is not a device");
    fs::write(Path::new(DRIVER).join("unbind"), &device).context("leaving the device")?;
    ensure!(fs::read(FILE).is_err(), "the file can be read without a device");
    fs::write(Path::new(DRIVER).join("bind"), &device).context("taking the device again")?;

    fs::create_dir("/again")?;
    mount("share0", "/again", "virtiofs", MountFlags::empty(), CString::new("dax=always")?.as_c_str())?;
    exchange("/again/file", 2, 3)?;
    unmount("/again", UnmountFlags::empty()).context("unmounting")
}

/// Finds `old` data and stores `new` data through mappings; the window stays mapped.
fn exchange(path: &str, old: u64, new: u64) -> anyhow::Result<()> {
    let path = Path::new(path);
    tools::verify(path, 0, FILE_LEN, old)?;
    tools::fill(path, 0, FILE_LEN, new)?;
    File::open(path)?.sync_all()?;
    Ok(())
}
