//! Members of one group: in this process, each with descriptors of its own, and as processes that are killed.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use transom_versions::layout;

use super::*;

pub(super) fn join(group: &Path, share: &Path) -> Result<Group, GroupError> {
    let file = TableFile::open(&GroupLocation::Directory(group.to_owned()), Some(share))?;
    Group::join(&file, File::open(share).unwrap(), &ProcFds::open().unwrap())
}

/// A private directory for a group, and one to share.
pub(super) fn directories() -> (TempDir, TempDir) {
    let place = tempfile::tempdir().unwrap();
    // Other tests of this process change its umask.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    (place, tempfile::tempdir().unwrap())
}

fn message(outcome: Result<Group, GroupError>) -> String {
    outcome.expect_err("the group should be refused").to_string()
}

/// Waits until `holds` returns true.
pub(super) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_group_in_the_shared_directory_is_refused_unless_guests_only_read_it() {
    let (_, share) = directories();
    let below = share.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    for place in [share.path().to_owned(), below.join("group"), below.join("../b/group")] {
        let refused = message(join(&place, share.path()));
        assert!(refused.contains("is in the shared directory"), "{refused}");
        assert!(!place.join("table").exists());
        fs::set_permissions(share.path(), fs::Permissions::from_mode(0o700)).unwrap();
        TableFile::open(&GroupLocation::Directory(place.clone()), None).unwrap();
        fs::remove_file(place.join("table")).unwrap();
    }
    // The share may be in the directory above the group's.
    join(&share.path().join("group"), &below).unwrap();
}

#[test]
fn a_change_by_one_member_invalidates_what_guests_of_another_have_cached() {
    let (place, share) = directories();
    let (one, two) = (join(place.path(), share.path()).unwrap(), join(place.path(), share.path()).unwrap());
    let fetched = two.now();
    assert!(two.is_valid(7, fetched));
    one.stamp(&[one.slot(7)]);
    assert!(!two.is_valid(7, fetched) && two.is_valid(7, two.now()));
}

#[test]
fn members_join_and_leave_without_invalidating_anything() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let fetched = one.now();
    drop(join(place.path(), share.path()).unwrap());
    let _again = join(place.path(), share.path()).unwrap();
    assert!(one.is_valid(7, fetched));
}

#[test]
fn what_was_cached_before_the_group_was_empty_is_invalid_afterwards() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let fetched = one.now();
    drop(one);
    assert!(!join(place.path(), share.path()).unwrap().is_valid(7, fetched));
}

#[test]
fn daemons_that_share_different_directories_are_refused_with_both_named() {
    let (place, share) = directories();
    let other = tempfile::tempdir().unwrap();
    let _one = join(place.path(), share.path()).unwrap();
    let identity = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino())).unwrap();
    let ((dev, ino), (other_dev, other_ino)) = (identity(share.path()), identity(other.path()));
    assert_eq!(
        message(join(place.path(), other.path())),
        format!(
            "the coherence group shares the directory with device {dev} and inode {ino}, but --shared-dir has device \
             {other_dev} and inode {other_ino}: all daemons of a group must share the same directory"
        )
    );
}

#[test]
fn an_empty_group_may_share_another_directory() {
    let (place, share) = directories();
    let other = tempfile::tempdir().unwrap();
    drop(join(place.path(), share.path()).unwrap());
    join(place.path(), other.path()).unwrap();
}

#[test]
fn the_number_of_members_is_bounded() {
    let (place, share) = directories();
    let members: Vec<_> = (0..MEMBERS_MAX).map(|_| join(place.path(), share.path()).unwrap()).collect();
    assert_eq!(message(join(place.path(), share.path())), "the coherence group has 64 members, which is the limit");
    drop(members);
    join(place.path(), share.path()).unwrap();
}

#[test]
fn a_file_is_hot_until_the_last_member_has_released_it() {
    let (place, share) = directories();
    let (one, two) = (join(place.path(), share.path()).unwrap(), join(place.path(), share.path()).unwrap());
    let slot = one.slot(7);
    one.heat(slot);
    one.heat(slot);
    two.heat(slot);
    let fetched = one.now();
    for release in [&one, &two, &one] {
        assert!(!one.is_valid(7, one.now()), "still open");
        release.cool(slot);
    }
    assert!(!one.is_valid(7, fetched) && one.is_valid(7, one.now()));
}

#[test]
fn two_turns_in_one_directory_exclude_each_other_and_renames_do_not_wait_for_each_other_for_ever() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let (here, there) = (Some(one.slot(1)), Some(one.slot(2)));
    let turn = one.take_turn([here, there]);
    assert!(turn.is_exclusive());
    assert!(!one.take_turn([there, None]).is_exclusive(), "a wait ends, and says that it failed");
    drop(turn);
    assert!(one.take_turn([there, here]).is_exclusive());
    assert!(one.take_turn([here, here]).is_exclusive());
}

#[test]
fn a_group_is_a_name_or_a_path() {
    assert_eq!("build-1.x".parse::<GroupLocation>().unwrap(), GroupLocation::Name("build-1.x".into()));
    assert_eq!("./x".parse::<GroupLocation>().unwrap(), GroupLocation::Directory("./x".into()));
    for wrong in ["", "..", ".hidden", "a b", "ä", &"a".repeat(65)] {
        assert!(wrong.parse::<GroupLocation>().is_err(), "{wrong:?}");
    }
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let (place, share) = directories();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o770)).unwrap();
    assert!(message(join(place.path(), share.path())).contains("nobody else may write it"));
}

#[test]
fn a_table_that_others_may_write_or_that_is_a_link_is_refused() {
    let (place, share) = directories();
    drop(join(place.path(), share.path()).unwrap());
    let table = place.path().join("table");
    fs::set_permissions(&table, fs::Permissions::from_mode(0o606)).unwrap();
    assert!(message(join(place.path(), share.path())).contains("nobody else may write it"));
    fs::remove_file(&table).unwrap();
    symlink("/dev/null", &table).unwrap();
    assert!(message(join(place.path(), share.path())).contains("cannot open the version table"));
    fs::remove_file(&table).unwrap();
    fs::create_dir(&table).unwrap();
    join(place.path(), share.path()).expect_err("a directory is no table");
}

#[test]
fn a_table_with_a_foreign_owner_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give a file away");
        return;
    }
    let (place, share) = directories();
    drop(join(place.path(), share.path()).unwrap());
    std::os::unix::fs::chown(place.path().join("table"), Some(12345), None).unwrap();
    assert!(message(join(place.path(), share.path())).contains("belongs to user 12345"));
}

#[test]
fn a_file_that_is_no_table_is_refused_with_the_reason() {
    let (place, share) = directories();
    drop(join(place.path(), share.path()).unwrap());
    let table = File::options().write(true).open(place.path().join("table")).unwrap();
    let len_bytes = table.metadata().unwrap().len();

    table.write_at(&2u32.to_le_bytes(), 8).unwrap();
    assert!(message(join(place.path(), share.path())).contains("layout 2, but only layout 1"));
    table.write_at(&1u32.to_le_bytes(), 8).unwrap();

    let area = layout::len_bytes(layout::SLOTS_LOG2) as u64;
    table.write_at(b"TRANSOG9", area).unwrap();
    assert!(message(join(place.path(), share.path())).contains("another version of transomd"));
    table.write_at(b"TRANSOG2", area).unwrap();
    drop(join(place.path(), share.path()).unwrap());

    for len in [len_bytes + 8, len_bytes - 8, area, 4096, 100, 0] {
        table.set_len(len).unwrap();
        let reason = message(join(place.path(), share.path()));
        assert!(reason.contains("bytes") || reason.contains("cannot map"), "{len}: {reason}");
    }
}

#[test]
fn guests_of_a_table_that_was_replaced_cache_nothing_any_more() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    fs::remove_file(place.path().join("table")).unwrap();
    let _two = join(place.path(), share.path()).unwrap();
    eventually("the table is retired", || (0..100).all(|ino| !one.is_valid(ino, one.now())));
}

#[test]
fn guests_get_a_descriptor_that_cannot_write() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let flags = rustix::fs::fcntl_getfl(one.table_fd()).unwrap();
    assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
    assert_eq!(one.table_len_bytes(), 4096 + (8 << 16));
}

/// A member in a process of its own, which is this test's executable.
pub(super) struct Peer(Child);

impl Peer {
    pub(super) fn start(place: &Path, share: &Path, does: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "group::group_test::peer", "--ignored", "--nocapture"])
            .env("TRANSOM_TEST_GROUP", place)
            .env("TRANSOM_TEST_SHARE", share)
            .env("TRANSOM_TEST_DOES", does)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let peer = Self(child);
        assert!(output.lines().any(|line| line.unwrap().ends_with("joined")), "the peer ended before it had joined");
        peer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "the process that other tests start"]
fn peer() {
    let Ok(place) = std::env::var("TRANSOM_TEST_GROUP") else { return };
    let group = join(Path::new(&place), Path::new(&std::env::var("TRANSOM_TEST_SHARE").unwrap())).unwrap();
    let slot = group.slot(7);
    let mut turn = None;
    match &*std::env::var("TRANSOM_TEST_DOES").unwrap() {
        "heat" => group.heat(slot),
        "mirror" => {
            let file = TableFile::open(&GroupLocation::Directory(place.into()), None).unwrap();
            group.reserve_mirror(file).unwrap().unwrap();
        }
        "watch" => group.offer_host_watch(true),
        "turn" => turn = Some(group.take_turn([Some(slot), None])),
        _ => {}
    }
    println!("\njoined");
    loop {
        thread::park();
        drop(turn.take());
    }
}

#[test]
fn a_member_for_which_there_is_no_space_is_told_so() {
    let (place, share) = directories();
    // The table and what the first member adds to it take 1.5 MiB.
    let script = "mount -t tmpfs -o size=1200k none \"$1\" || exit 77; chmod 700 \"$1\"
        exec \"$2\" --exact group::group_test::peer --ignored --nocapture";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([place.path(), &std::env::current_exe().unwrap()])
        .env("TRANSOM_TEST_GROUP", place.path())
        .env("TRANSOM_TEST_SHARE", share.path())
        .env("TRANSOM_TEST_DOES", "nothing")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || said.contains("unshare:") {
        return eprintln!("SKIPPED: a_member_for_which_there_is_no_space_is_told_so: no tmpfs can be mounted: {said}");
    }
    assert!(said.contains("Space { len_bytes: 524288, source: Os { code: 28"), "{said}");
}

#[test]
fn when_a_member_is_killed_everything_cached_becomes_invalid() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let peer = Peer::start(place.path(), share.path(), "nothing");
    let fetched = one.now();
    thread::sleep(Duration::from_millis(200));
    assert!(one.is_valid(7, fetched), "it lives");
    drop(peer);
    eventually("the epoch is raised", || !one.is_valid(7, fetched));
    // Once: its record is free again.
    let fetched = one.now();
    thread::sleep(Duration::from_millis(200));
    assert!(one.is_valid(7, fetched));
}

#[test]
fn when_the_last_member_is_killed_the_next_one_invalidates_everything() {
    let (place, share) = directories();
    let peer = Peer::start(place.path(), share.path(), "nothing");
    let before = {
        let one = join(place.path(), share.path()).unwrap();
        one.now()
    };
    drop(peer);
    let one = join(place.path(), share.path()).unwrap();
    assert!(!one.is_valid(7, before));
}

#[test]
fn a_file_stays_hot_when_the_daemon_dies_whose_guest_has_it_mapped() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let peer = Peer::start(place.path(), share.path(), "heat");
    let fetched = one.now();
    assert!(!one.is_valid(7, fetched));
    drop(peer);
    eventually("the epoch is raised", || one.now().epoch != fetched.epoch);
    one.heat(one.slot(7));
    one.cool(one.slot(7));
    assert!(!one.is_valid(7, one.now()), "the dead daemon's guest may still store through its mapping");
}

#[test]
fn the_turn_of_a_daemon_that_dies_ends() {
    let (place, share) = directories();
    let one = join(place.path(), share.path()).unwrap();
    let peer = Peer::start(place.path(), share.path(), "turn");
    assert!(!one.take_turn([Some(one.slot(7)), None]).is_exclusive());
    drop(peer);
    eventually("the turn ends", || one.take_turn([Some(one.slot(7)), None]).is_exclusive());
}
