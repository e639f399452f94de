//! What a mount of a coherence group changes itself: what it has cached stays for a while.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use transom_mount::Mount;

use crate::{
    coherence::{coherent, eventually, member},
    common, needs_mounts, unmount,
};

/// Returns how many requests of these operations the daemon with this metrics socket has served.
pub(crate) fn served(metrics: &Path, operations: &[&str]) -> u64 {
    let report = transom_vm::metrics::read(metrics).unwrap();
    let counted = report.operations.iter().filter(|it| operations.contains(&it.operation.as_str()));
    counted.map(|it| it.count).sum()
}

/// Returns a mount whose daemon has these arguments too.
fn mount_with(host: &Path, group: &Path, more: &[OsString]) -> (Mount, TempDir) {
    let mut args = coherent().daemon_args();
    // A daemon that observes the host would stamp what the other one changes once more.
    args.extend(["--host-changes=never", "--xattr", "--posix-acl"].map(OsString::from));
    args.extend_from_slice(more);
    let at = tempfile::tempdir().unwrap();
    (Mount::start(member(host, group, &args), at.path(), coherent()).unwrap(), at)
}

#[test]
fn what_a_mount_changes_itself_it_need_not_fetch_again_at_once() {
    needs_mounts!();
    if !(0..10).any(|_| stays_over_own_changes()) {
        println!("SKIPPED: each of ten attempts took a second, after which what was changed is fetched again");
    }
}

/// Asserts that what a mount has cached stays over its own changes and not over another's. Returns whether that took so
/// little time that the kernel was not yet told to drop it.
fn stays_over_own_changes() -> bool {
    let (host, group, sockets) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let metrics = sockets.path().join("metrics");
    fs::create_dir(host.path().join("dir")).unwrap();
    for name in ["dir/file", "dir/kept", "fence"] {
        fs::write(host.path().join(name), name).unwrap();
    }
    let argument = format!("--metrics-socket={}", metrics.display()).into();
    let (mut ours, at) = mount_with(host.path(), group.path(), &[argument]);
    let (mut theirs, at_theirs) = mount_with(host.path(), group.path(), &[]);
    let path = |name: &str| at.path().join(name);
    let (file, fence) = (File::options().read(true).write(true).open(path("dir/file")).unwrap(), path("fence"));
    // A scan that follows all changes so far: it has told the kernel of another's.
    let rounds = std::cell::Cell::new(0);
    let scan = || {
        rounds.set(rounds.get() + 1);
        let mode = 0o600 + rounds.get() % 2;
        fs::set_permissions(at_theirs.path().join("fence"), fs::Permissions::from_mode(mode)).unwrap();
        eventually("another's change is seen", || fs::metadata(&fence).unwrap().mode() & 0o777 == mode);
    };
    let look = || {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(&bytes[4..] == b"file" && path("dir/kept").exists());
        bytes[0]
    };
    // What is fetched of the file and its directory, but for attributes: those of the fence are, too. After a write
    // alone, Linux reads again, since the modification time is another; the reply to a change of the mode tells it.
    let fetched = || served(&metrics, &["read", "lookup"]);
    look();
    scan();
    look();
    let (begun, before) = (Instant::now(), fetched());
    for round in 0..9_u32 {
        file.write_all_at(round.to_string().as_bytes(), 0).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640 + round % 2)).unwrap();
        rustix::fs::fsetxattr(&file, "user.round", &round.to_le_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
        scan();
        look();
    }
    // Names: those that are made, moved and removed are asked for, others are not.
    for name in ["made", "moved"] {
        fs::create_dir(path(&format!("dir/{name}"))).unwrap();
    }
    let made = fetched() - before;
    fs::rename(path("dir/made"), path("dir/again")).unwrap();
    fs::remove_dir(path("dir/moved")).unwrap();
    scan();
    let before = fetched();
    look();
    assert!(path("dir/again").exists());
    let after_names = fetched() - before;
    // The same by another is fetched.
    let before = fetched();
    File::options().write(true).open(at_theirs.path().join("dir/file")).unwrap().write_all_at(b"9", 0).unwrap();
    fs::create_dir(at_theirs.path().join("dir/theirs")).unwrap();
    scan();
    let (content, of_another) = (look(), fetched() - before);
    // Later, the fence may be seen because its attributes have expired, which is no scan.
    let is_early = begun.elapsed() < Duration::from_millis(900);
    if is_early {
        // Two of the names that are made. Of another's, the file's data and its directory's names.
        assert!(made <= 2 && after_names == 0, "{made} and {after_names}");
        assert!(content == b'9' && of_another >= 2, "{content} and {of_another}");
    }
    drop(file);
    unmount(&mut ours);
    unmount(&mut theirs);
    is_early
}
