use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

use super::*;

/// Returns everything that a guard may change, as reported by the kernel.
fn thread_state() -> String {
    fs::read_to_string("/proc/thread-self/status")
        .unwrap()
        .lines()
        .filter(|line| ["Uid", "Gid", "Groups", "CapEff", "CapPrm", "Umask"].iter().any(|key| line.starts_with(key)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns `None` if the tests do not run as root.
fn as_root(judge: Judge) -> Option<Credentials> {
    let credentials = Credentials::detect(judge).unwrap();
    if credentials.is_able && credentials.own_uid.is_root() {
        return Some(credentials);
    }
    println!("SKIPPED: changing ids needs root");
    None
}

/// Creates a directory owned by root that nobody else may write, reachable for everybody.
fn share() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn owner(path: &Path) -> (u32, u32) {
    let stat = path.metadata().unwrap();
    (stat.uid(), stat.gid())
}

#[test]
fn a_file_is_the_callers_and_the_thread_is_as_before() {
    let Some(credentials) = as_root(Judge::Guest) else { return };
    let dir = share();
    let before = thread_state();
    for (uid, gid, group) in [(1234, 5678, None), (1234, 0, Some(99)), (0, 5678, Some(99)), (0, 0, None)] {
        let path = dir.path().join(format!("{uid}-{gid}"));
        {
            let _guard = credentials.assume(HostUid(uid), HostGid(gid), group.map(HostGid)).unwrap();
            fs::write(&path, "").unwrap();
        }
        assert_eq!(owner(&path), (uid, gid));
        assert_eq!(thread_state(), before);
    }
}

#[test]
fn the_host_judges_where_it_is_asked_to() {
    let Some(credentials) = as_root(Judge::Host) else { return };
    let dir = share();
    let before = thread_state();
    {
        let _guard = credentials.assume(HostUid(1234), HostGid(1234), None).unwrap();
        assert_eq!(fs::write(dir.path().join("a"), "").unwrap_err().raw_os_error(), Some(libc::EACCES));
        assert!(thread_state().contains("CapEff:\t0000000000000000"));
    }
    assert_eq!(thread_state(), before);

    // A supplementary group allows what the caller's own group does not.
    chown(dir.path(), Some(0), Some(99)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o775)).unwrap();
    let _guard = credentials.assume(HostUid(1234), HostGid(1234), Some(HostGid(99))).unwrap();
    fs::write(dir.path().join("a"), "").unwrap();
}

#[test]
fn other_threads_stay_who_they_are() {
    let Some(credentials) = as_root(Judge::Guest) else { return };
    let before = thread_state();
    let _guard = credentials.assume(HostUid(1234), HostGid(1234), None).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // A thread inherits the rights of the one that starts it: a guard must not be held while starting threads.
        scope.spawn(|| sender.send(thread_state()).unwrap());
    });
    assert_ne!(receiver.recv().unwrap(), before);
    let other = format!("/proc/self/task/{}/status", std::process::id());
    assert!(fs::read_to_string(other).unwrap().contains("Uid:\t0\t0\t0\t0"), "the main thread is still root");
}

#[test]
fn an_id_that_is_none_is_refused_and_changes_nothing() {
    let credentials = Credentials::detect(Judge::Guest).unwrap();
    let before = thread_state();
    let none = u32::MAX;
    for (uid, gid, group) in [(none, 1, None), (1, none, None), (1, 1, Some(none))] {
        let outcome = credentials.assume(HostUid(uid), HostGid(gid), group.map(HostGid));
        assert_eq!(outcome.err(), Some(Errno::INVAL));
    }
    assert_eq!(thread_state(), before);
}

#[test]
fn a_process_that_cannot_change_ids_creates_as_itself() {
    let mut credentials = Credentials::detect(Judge::Guest).unwrap();
    credentials.is_able = false;
    let before = thread_state();
    let _guard = credentials.assume(HostUid(1234), HostGid(5678), Some(HostGid(9))).unwrap();
    assert_eq!(thread_state(), before);
}

#[test]
fn set_group_id_goes_from_a_file_of_a_group_that_the_caller_is_not_in() {
    let Some(credentials) = as_root(Judge::Guest) else { return };
    let dir = share();
    chown(dir.path(), Some(0), Some(99)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2777)).unwrap();
    let create = |name: &str, group: Option<HostGid>| {
        let _guard = credentials.assume(HostUid(1234), HostGid(1234), group).unwrap();
        let root = rustix::fs::open(dir.path(), rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        rustix::fs::openat(root, name, flags, Mode::from_raw_mode(0o2770)).unwrap();
        dir.path().join(name).metadata().unwrap()
    };
    let stranger = create("stranger", None);
    assert_eq!((stranger.gid(), stranger.mode() & 0o2000), (99, 0));
    let member = create("member", Some(HostGid(99)));
    assert_eq!((member.gid(), member.mode() & 0o2000), (99, 0o2000));
}

#[test]
fn a_write_without_fsetid_clears_set_user_id() {
    let Some(credentials) = as_root(Judge::Guest) else { return };
    let dir = share();
    let path = dir.path().join("a");
    let before = thread_state();
    let mode_after = |write: &dyn Fn()| {
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        write();
        path.metadata().unwrap().mode() & 0o7777
    };
    assert_eq!(mode_after(&|| fs::write(&path, "x").unwrap()), 0o4755);
    for group in [None, Some(HostGid(1234))] {
        let killing = || {
            let _guard = credentials.without_fsetid(group).unwrap();
            fs::write(&path, "x").unwrap();
        };
        assert_eq!(mode_after(&killing), 0o755);
        assert_eq!(thread_state(), before);
    }
}

#[test]
fn the_umask_is_this_threads_and_comes_back() {
    let credentials = Credentials::detect(Judge::Guest).unwrap();
    let dir = share();
    let before = thread_state();
    {
        let _guard = credentials.with_umask(0o027).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
    }
    assert_eq!(dir.path().join("d").metadata().unwrap().mode() & 0o777, 0o750);
    assert_eq!(thread_state(), before);
}
