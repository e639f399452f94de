//! Device nodes in the share: a guest can make them, and nothing opens them.
//!
//! The daemon's code refuses to open them, and the mounts of its sandbox do too. For the second, the test opens them as
//! the daemon's process would: as root, through the root directory of that process.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use rustix::{fs::StatVfsMountFlags, io::Errno};
use transom_frontend::{FrontEnd, Options, fuse::Session};

use crate::{
    connected,
    launch::{Bench, is_root, skipped},
};

const ROOT: u64 = 1;
/// The numbers of /dev/null, as FUSE has them: every kernel has a driver for these.
const NULL: u32 = 1 << 8 | 3;

/// Whether device nodes in the bench can be opened by root, without which nothing is shown.
fn has_devices(bench: &Bench) -> bool {
    !rustix::fs::statvfs(bench.path()).unwrap().f_flag.contains(StatVfsMountFlags::NODEV)
}

#[test]
fn a_guests_device_nodes_are_opened_by_nothing() {
    if !is_root() {
        return skipped("needs root");
    }
    let bench = Bench::new();
    if !has_devices(&bench) {
        return skipped("files for tests are on a mount without devices");
    }
    fs::create_dir(bench.share().join("below")).unwrap();
    // A file system below the share, in a mount namespace that this test's daemon alone has.
    let mount = format!("mount -t tmpfs below {}/below", bench.share().display());
    let mut daemon = bench.start_after(&mount, "--socket-path {S} --shared-dir {D}");

    let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
    let mut guest = Session::begin(front_end.start_queue(1).unwrap()).unwrap();

    // 1. The guest makes nodes, and they are what it asked for.
    let below = guest.lookup(ROOT, b"below").unwrap().nodeid.get();
    for parent in [ROOT, below] {
        let node = guest.mknod(parent, b"node", libc::S_IFCHR | 0o666, NULL).unwrap();
        assert_eq!((node.attr.mode.get(), node.attr.rdev.get()), (libc::S_IFCHR | 0o666, NULL));
        // 2. The daemon opens none, by whatever request.
        let nodeid = node.nodeid.get();
        for flags in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR | libc::O_TRUNC] {
            assert_eq!(guest.open(nodeid, flags as u32).unwrap_err().errno(), Some(Errno::NXIO));
            let created = guest.create(parent, b"node", flags as u32, 0o666);
            assert_eq!(created.unwrap_err().errno(), Some(Errno::STALE));
        }
    }
    // 3. Where the daemon's process sees them, root itself cannot open them.
    let seen_by = |pid: u32| move |path: PathBuf| format!("/proc/{pid}/root{}", path.display());
    let (inside, outside) = (seen_by(daemon.serving_pid()), seen_by(daemon.pid()));
    for node in ["node", "below/node"] {
        let refused = File::options().read(true).write(true).open(inside(PathBuf::from("/share").join(node)));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied, "{node}");
        // 4. Where the host sees them, it can.
        let device = File::options().write(true).open(outside(bench.share().join(node))).unwrap();
        device.write_at(b"data", 0).unwrap();
    }
}

#[test]
fn sandboxes_without_mounts_of_their_own_say_what_remains() {
    if !is_root() {
        return skipped("needs root");
    }
    for (mode, is_said) in [("none", true), ("chroot", true), ("namespace", false)] {
        let bench = Bench::new();
        if !has_devices(&bench) {
            return skipped("files for tests are on a mount without devices");
        }
        let (daemon, front_end) = connected(&bench, &format!("--sandbox {mode}"));
        drop(front_end);

        let (status, said) = daemon.wait();

        assert!(status.success(), "{mode}: {status}: {said}");
        assert_eq!(said.matches("nodev").count(), usize::from(is_said), "{mode}: {said}");
    }
}
