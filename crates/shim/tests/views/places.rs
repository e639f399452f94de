//! Directories on several file systems.

use std::{
    ffi::CString,
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FsWord, statfs},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    thread::UnshareFlags,
};
use tempfile::TempDir;

/// A directory on some file system.
pub(crate) struct ViewedPath {
    pub(crate) name: &'static str,
    /// `None`: it cannot be had here, which was said.
    directory: Option<PathBuf>,
    is_mounted: bool,
    _base: TempDir,
}

impl ViewedPath {
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

impl Drop for ViewedPath {
    fn drop(&mut self) {
        if let (true, Some(directory)) = (self.is_mounted, &self.directory) {
            // The mount namespace ends with this process in any case.
            let _ = unmount(directory, UnmountFlags::DETACH);
        }
    }
}

/// All of them, in a mount namespace of this process' own. To be called before the first thread.
pub(crate) fn all() -> Vec<ViewedPath> {
    let base = || TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, tmpfs, overlay) = (base(), base(), base());
    let magic: FsWord = statfs(disk.path()).unwrap().f_type;
    println!("disk: a file system of type {magic:#x}");
    let namespace = enter_namespace();
    let mounted = |name, base: TempDir, make: fn(&Path) -> Result<PathBuf, Errno>| {
        let made = namespace.and_then(|()| make(base.path()));
        let directory = made.inspect_err(|error| println!("SKIPPED: {name}: cannot be mounted: {error}")).ok();
        ViewedPath { name, directory, is_mounted: true, _base: base }
    };
    vec![
        ViewedPath { name: "disk", directory: Some(disk.path().to_owned()), is_mounted: false, _base: disk },
        mounted("tmpfs", tmpfs, make_tmpfs),
        mounted("overlay", overlay, make_overlay),
    ]
}

#[expect(unsafe_code, reason = "unshare can take descriptors apart")]
fn enter_namespace() -> Result<(), Errno> {
    // SAFETY: only the mount namespace is left; the table of descriptors stays shared as it is.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

fn make_tmpfs(base: &Path) -> Result<PathBuf, Errno> {
    mount("tmpfs", base, "tmpfs", MountFlags::empty(), None)?;
    Ok(base.to_owned())
}

fn make_overlay(base: &Path) -> Result<PathBuf, Errno> {
    for layer in ["lower", "upper", "work", "merged"] {
        fs::create_dir(base.join(layer)).unwrap();
    }
    let layer = |name| base.join(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", layer("lower"), layer("upper"), layer("work"));
    let options = CString::new(options).unwrap();
    mount("overlay", layer("merged"), "overlay", MountFlags::empty(), options.as_c_str())?;
    Ok(base.join("merged"))
}
