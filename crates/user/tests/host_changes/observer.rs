//! The members of a group have one queue of the kernel: one mark, and nothing is lost when the one that reads dies.

use std::{fs, os::fd::OwnedFd, path::Path, thread};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{Member, can_observe, common::tree, eventually, place, read};

/// A descriptor of fanotify in a process.
struct Source {
    process: Pid,
    number: i32,
}

impl Source {
    /// Returns those of a member's processes.
    fn of(member: &Member) -> Vec<Self> {
        let mut sources = Vec::new();
        for process in member.processes() {
            let descriptors = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()));
            for fd in descriptors.into_iter().flatten().map(|entry| entry.unwrap().path()) {
                if fs::read_link(&fd).is_ok_and(|link| link.as_os_str() == "anon_inode:[fanotify]") {
                    let number = fd.file_name().unwrap().to_str().unwrap().parse().unwrap();
                    sources.push(Self { process, number });
                }
            }
        }
        sources
    }

    fn info(&self) -> String {
        let (process, number) = (self.process.as_raw_nonzero(), self.number);
        fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).unwrap()
    }

    /// Returns a descriptor of the same queue.
    fn get(&self) -> OwnedFd {
        let process = pidfd_open(self.process, PidfdFlags::empty()).unwrap();
        pidfd_getfd(process, self.number, PidfdGetfdFlags::empty()).unwrap()
    }

    /// Sets a flag that has no effect on it and that all duplicates of the descriptor have then.
    fn tag(&self) {
        let fd = self.get();
        fcntl_setfl(&fd, fcntl_getfl(&fd).unwrap() | OFlags::APPEND).unwrap();
    }

    fn is_tagged(&self) -> bool {
        let info = self.info();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        u32::from_str_radix(flags, 8).unwrap() & OFlags::APPEND.bits() != 0
    }
}

/// Returns the number of descriptors of a member's processes.
fn descriptors(member: &Member) -> usize {
    let of = |process: Pid| fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).map_or(0, Iterator::count);
    member.processes().into_iter().map(of).sum()
}

/// Returns the number of sockets at which members offer their source of changes.
fn sockets(group: &Path) -> usize {
    let names = fs::read_dir(group).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().contains("observer.")).count()
}

#[test]
fn all_members_of_a_group_share_one_mark_also_after_deaths() {
    const MEMBERS: usize = 8;
    if !can_observe() {
        return;
    }
    let (share, group) = (tree(), place());
    let start = || Member::start(share.path(), group.path(), &[]).unwrap();
    let mut members: Vec<_> = (0..MEMBERS).map(|_| start()).collect();
    let before = descriptors(&members[1]);
    // The one that the others have it from goes, and so does one that has it from another.
    for gone in [0, 3] {
        members.remove(gone).kill_daemon();
        members.push(start());
    }
    let sources: Vec<_> = members.iter().flat_map(Source::of).collect();
    assert!(members.iter().all(|member| !Source::of(member).is_empty()));
    for source in &sources {
        let marks = source.info().lines().filter(|line| line.starts_with("fanotify sdev:")).count();
        assert_eq!(marks, 1, "{}", source.info());
    }
    assert!(!sources.iter().any(Source::is_tagged));
    sources[0].tag();
    assert_eq!(sources.iter().filter(|source| source.is_tagged()).count(), sources.len(), "one queue, and so one mark");
    // Who asked for it has left nothing, and of the dead nothing is left.
    eventually("no descriptor is left", || descriptors(&members[0]) == before);
    assert_eq!(sockets(group.path()), MEMBERS);
    // Who reads all changes would take what others need.
    let apart = Member::start(share.path(), group.path(), &["--host-changes=prefer"]).unwrap();
    assert!(Source::of(&apart).iter().all(|source| !source.is_tagged()) && !Source::of(&apart).is_empty());
    drop((members, apart));
    eventually("the sockets are removed", || sockets(group.path()) == 0);
}

/// What it had read and not stamped is lost, so everything is invalid; what it had not read, the next one reads.
#[test]
fn nothing_is_stale_that_a_dead_observer_had_read_and_not_stamped() {
    const UNREAD: u64 = 50;
    if !can_observe() {
        return;
    }
    let (share, group) = (tree(), place());
    let start = |options: &[&str]| Member::start(share.path(), group.path(), options).unwrap();
    let (observer, _next, reader) = (start(&[]), start(&[]), start(&["--host-changes=never"]));
    let hello = share.path().join("hello");
    let file = reader.guest.open_read("hello").unwrap();
    reader.stamped(&[&hello], || fs::write(&hello, b"first").unwrap());
    let versions = reader.share.versions().unwrap();
    let source = Source::of(&observer).first().unwrap().get();
    // This process reads in the place of the observer, and stamps nothing.
    let read_queue = || while rustix::io::read(&source, &mut [0; 4096]).is_ok() {};
    // 1. Nobody will know of this change.
    observer.stop_daemon();
    read_queue();
    assert_eq!(read(&file), b"first");
    fs::write(&hello, b"secnd").unwrap();
    read_queue();
    assert_eq!(read(&file), b"first", "the change is in no queue, and has no stamp");
    // 2. Nobody reads these.
    let before = versions.now();
    for number in 0..UNREAD {
        fs::write(share.path().join(format!("new{number}")), b"x").unwrap();
    }
    observer.kill_daemon();
    eventually("the guest sees what was written", || read(&file) == b"secnd");
    eventually("what was in the queue is stamped", || versions.now().clock.get() >= before.clock.get() + UNREAD);
    assert!(versions.now().epoch > before.epoch && reader.follows_host());
}

#[test]
fn nothing_is_stale_after_the_death_of_the_observer_in_the_middle_of_changes() {
    if !can_observe() {
        return;
    }
    const FILES: usize = 40;
    let (share, group) = (tree(), place());
    let path = |file: usize| share.path().join(format!("file{file}"));
    (0..FILES).for_each(|file| fs::write(path(file), "00000").unwrap());
    let start = |options: &[&str]| Member::start(share.path(), group.path(), options).unwrap();
    let reader = start(&["--host-changes=never"]);
    let mut observers = [(); 2].map(|()| start(&[]));
    for round in 1..=5 {
        let written = |file: usize| format!("{:05}", round * 100 + file);
        let seen = |file: usize| {
            let file = reader.guest.open_read(format!("file{file}")).unwrap();
            String::from_utf8(read(&file)).unwrap()
        };
        (0..FILES).for_each(|file| drop(seen(file)));
        thread::scope(|scope| {
            scope.spawn(|| (0..FILES).for_each(|file| fs::write(path(file), written(file)).unwrap()));
            observers[0].kill_daemon();
        });
        eventually("the guest sees what was written", || (0..FILES).all(|file| seen(file) == written(file)));
        assert!(reader.follows_host());
        observers.swap(0, 1);
        observers[1] = start(&[]);
    }
}
