//! What others on the host may do to a file that a guest has mapped.

use std::{fs, io, path::Path};

use crate::host::{Kind, RANGE, Share, contents, lookup};

/// Why the kernel would not ask anybody before a file below `directory` is truncated.
fn unguarded(directory: &Path) -> Option<String> {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    if !rustix::process::geteuid().is_root() {
        return Some("only root may refuse what other processes do to a file".into());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version: Vec<u32> = release.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse).take(2).collect();
    if version < vec![6, 14] {
        return Some(format!("Linux {release} asks nobody before a truncation, 6.14 does"));
    }
    let kind = rustix::fs::statfs(directory).unwrap().f_type;
    let is_asking = [EXT4, XFS, BTRFS].contains(&kind);
    (!is_asking).then(|| format!("the file system of {} ({kind:#x}) asks nobody", directory.display()))
}

fn cut_in_place(path: &Path) -> io::Result<()> {
    fs::File::options().write(true).open(path)?.set_len(100)
}

#[test]
fn a_file_that_a_guest_has_mapped_is_not_truncated_by_others_until_it_lets_go() {
    let share = Share::guarded(Kind::Qemu);
    if let Some(why) = unguarded(&share.path()) {
        println!("SKIPPED: {why}");
        return;
    }
    let path = share.file("file", 2 * RANGE, 7);
    let other = share.file("other", 2 * RANGE, 8);
    let (front_end, mut session) = share.session();
    let nodeid = lookup(&mut session, &path);
    session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap();

    // 1. Neither way to cut it works, and nothing is lost.
    let refused = cut_in_place(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{refused}");
    let refused = fs::File::create(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{refused}");
    assert!(fs::read(&path).unwrap() == contents(2 * RANGE, 7), "it can be read, and has all its bytes");
    assert!(front_end.expect_window().read(0, RANGE as usize).unwrap() == contents(2 * RANGE, 7)[..RANGE as usize]);
    // 2. A file that nobody has mapped is nobody's concern.
    cut_in_place(&other).unwrap();
    // 3. Afterwards it is an ordinary file again.
    session.removemapping(nodeid, &[(0, RANGE)]).unwrap();
    cut_in_place(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 100);
    drop(session);
}
