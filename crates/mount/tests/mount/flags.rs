//! Options of mount(2), as `/proc/self/mountinfo` shows them.

use std::{collections::BTreeSet, fs};

use transom_mount::{Mount, Options};
use transom_user::share::Share;

use crate::{common, needs_mounts, unmount};

/// The mount's own options and those of its file system, of the mount at `path`.
fn shown(path: &str) -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(path)).unwrap();
    let own = line.split(' ').nth(5).unwrap();
    let of_file_system = line.rsplit(' ').next().unwrap();
    own.split(',').chain(of_file_system.split(',')).map(str::to_owned).collect()
}

#[test]
fn options_of_mount_are_those_that_mount_8_knows() {
    needs_mounts!();
    // `strictatime` is shown by the absence of the others.
    let all = ["relatime", "noatime", "nodiratime", "lazytime", "nosymfollow", "nosuid", "ro"];
    for (list, expected) in [
        ("", &["relatime"][..]),
        ("strictatime", &[]),
        ("noatime,strictatime", &[]),
        ("strictatime,noatime", &["noatime"]),
        ("strictatime,nostrictatime", &["relatime"]),
        ("strictatime,relatime", &["relatime"]),
        ("relatime,norelatime", &["relatime"]),
        ("noatime,atime,nodiratime,diratime", &["relatime"]),
        ("nodiratime", &["relatime", "nodiratime"]),
        ("lazytime", &["relatime", "lazytime"]),
        ("lazytime,nolazytime", &["relatime"]),
        ("nosymfollow", &["relatime", "nosymfollow"]),
        ("nosymfollow,symfollow", &["relatime"]),
        ("ro,nosuid,lazytime,nosymfollow,noatime", &["ro", "nosuid", "lazytime", "nosymfollow", "noatime"]),
    ] {
        let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
        let mut options = Options::default();
        options.parse(list).unwrap();
        let share = Share::builder().shared_dir(dir.path()).daemon(common::transomd());
        let mut mounted = Mount::start(share, at.path(), options).unwrap();
        let shown = shown(fs::canonicalize(at.path()).unwrap().to_str().unwrap());
        let found: BTreeSet<_> = all.iter().copied().filter(|option| shown.contains(*option)).collect();
        assert_eq!(found, expected.iter().copied().collect(), "{list}: {shown:?}");
        unmount(&mut mounted);
    }
}

#[test]
fn a_mount_that_follows_no_symbolic_links_refuses_them() {
    needs_mounts!();
    let (dir, at) = (common::tree(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink("hello", dir.path().join("link")).unwrap();
    let mut options = Options::default();
    options.parse("nosymfollow").unwrap();
    let share = Share::builder().shared_dir(dir.path()).daemon(common::transomd());
    let mut mounted = Mount::start(share, at.path(), options).unwrap();
    let error = fs::read(at.path().join("link")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    assert_eq!(fs::read_link(at.path().join("link")).unwrap().to_str(), Some("hello"));
    unmount(&mut mounted);
}
