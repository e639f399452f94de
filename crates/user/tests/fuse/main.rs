//! Shares mounted on this machine: the kernel's own client over real daemons.

#[path = "../common/mod.rs"]
mod common;

use std::{fs, io, path::Path};

use common::{daemons, tree};
use rustix::process::geteuid;
use transom_user::{
    daemon::Program,
    fuse::{End, Mount, Options},
    mount,
};

/// Why mounts are left out, if they are.
fn obstacle() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    (!geteuid().is_root()).then_some("mount(2) takes root")
}

/// Skips the test where nothing can be mounted.
macro_rules! needs_mounts {
    () => {
        if let Some(why) = obstacle() {
            println!("SKIPPED: {why}");
            return;
        }
    };
}

fn start(program: &Program, shared: &Path, at: &Path) -> Mount {
    let share = mount::Mount::builder().shared_dir(shared).daemon(program.clone());
    Mount::start(share, at, Options::default()).unwrap()
}

#[test]
fn what_is_written_on_either_side_is_read_on_the_other() {
    needs_mounts!();
    for program in daemons() {
        let (dir, at) = (tree(), tempfile::tempdir().unwrap());
        let mut mounted = start(&program, dir.path(), at.path());
        // 1. What the host has.
        let mut names: Vec<_> = fs::read_dir(at.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["hello", "sub"]);
        assert_eq!(fs::read(at.path().join("hello")).unwrap(), b"hello, world\n");
        assert!(fs::read(at.path().join("sub/large")).unwrap() == vec![7; 3 << 20]);
        // 2. What the mount has.
        let data: Vec<u8> = (0..(5 << 20) + 17).map(|at: u32| (at / 7) as u8).collect();
        fs::write(at.path().join("sub/new"), &data).unwrap();
        assert!(fs::read(dir.path().join("sub/new")).unwrap() == data);
        assert!(fs::read(at.path().join("sub/new")).unwrap() == data);
        // 3. After the end there is the directory beneath.
        mounted.unmount().unwrap();
        assert_eq!(mounted.cause(), Some(End::Unmounted));
        assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_busy_mount_stays_until_nobody_uses_it() {
    needs_mounts!();
    let (dir, at) = (tree(), tempfile::tempdir().unwrap());
    let mut mounted = start(&common::transomd(), dir.path(), at.path());
    let open = fs::File::open(at.path().join("hello")).unwrap();
    assert_eq!(mounted.unmount().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    assert!(fs::exists(at.path().join("hello")).unwrap());
    mounted.stopper().detach().unwrap();
    assert!(!fs::exists(at.path().join("hello")).unwrap());
    assert_eq!(io::read_to_string(&open).unwrap(), "hello, world\n");
    drop(open);
    assert_eq!(mounted.wait(), End::Unmounted);
}
