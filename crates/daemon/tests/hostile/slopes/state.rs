//! What leaves something known or open each time, up to the daemon's limits.

use transom_wire::{
    Opcode,
    ops::{create::CreateIn, lk::LkIn, mknod::MknodIn, open::OpenIn, read::ReadIn},
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    driver::{Request, send_all},
    scaled,
    usage::{DESCRIPTOR_SLACK, Usage, assert_flat},
};
use crate::host::Daemon;

#[test]
pub(super) fn nodes_that_are_never_forgotten_meet_a_limit() {
    let daemon = Daemon::executable_with(&["--inode-limit", "1000"]);
    let (_front_end, mut session) = daemon.session();
    let mut arg = MknodIn::new_zeroed();
    arg.mode = (libc::S_IFREG | 0o644).into();
    let mknod = [arg.as_bytes(), b"node\0"].concat();
    assert_flat(&daemon, "MKNOD or SYMLINK, and UNLINK", scaled(12_000), |count| {
        let requests = (0..count).flat_map(|n| {
            let makes = match n % 2 {
                0 => Request::new(Opcode::Mknod, 1, &mknod),
                _ => Request::new(Opcode::Symlink, 1, b"node\0target\0"),
            };
            [makes, Request::new(Opcode::Unlink, 1, b"node\0")]
        });
        send_all(&mut session, requests);
    });
    assert_eq!(daemon.metric("transom_inodes"), 1000);
    assert!(daemon.metric("transom_inodes_refused_total") >= 40_000);
    assert_eq!(daemon.log().matches("inode limit reached").count(), 1, "{}", daemon.log());
}

#[test]
pub(super) fn files_that_are_never_released_meet_a_limit() {
    const FDS: u64 = 512;
    let daemon = Daemon::executable_with(&["--max-fds", "512", "--inode-limit", "1000"]);
    let idle = Usage::of(&daemon);
    let (_front_end, mut session) = daemon.session();
    let mut arg = CreateIn::new_zeroed();
    (arg.flags, arg.mode) = ((libc::O_RDWR as u32).into(), 0o644.into());
    assert_flat(&daemon, "CREATE and UNLINK", scaled(2000), |count| {
        let requests = (0..count).flat_map(|_| {
            [
                Request::new(Opcode::Create, 1, &[arg.as_bytes(), b"file\0"].concat()),
                Request::new(Opcode::Unlink, 1, b"file\0"),
            ]
        });
        send_all(&mut session, requests);
    });
    let descriptors = Usage::of(&daemon).descriptors;
    assert!(descriptors <= idle.descriptors + FDS + DESCRIPTOR_SLACK, "{descriptors} descriptors");
}

#[test]
pub(super) fn files_without_names_that_are_never_released_meet_a_limit() {
    let daemon = Daemon::executable_with(&["--max-fds", "512", "--inode-limit", "1000"]);
    let (_front_end, mut session) = daemon.session();
    let mut arg = CreateIn::new_zeroed();
    (arg.flags, arg.mode) = ((libc::O_RDWR as u32).into(), 0o644.into());
    let body = [arg.as_bytes(), b"\0"].concat();
    let mut successes = 0;
    assert_flat(&daemon, "TMPFILE", scaled(2000), |count| {
        successes += send_all(&mut session, (0..count).map(|_| Request::new(Opcode::Tmpfile, 1, &body)));
    });
    if successes == 0 {
        println!("SKIPPED: the file system has no files without names");
    }
    assert!(daemon.metric("transom_open_files") <= 512);
}

/// Every stream has been read from, and has more entries than one answer holds.
#[test]
pub(super) fn directories_that_are_read_and_never_released_take_little_memory_each() {
    /// Memory that one open directory may take: its entry in the table of handles, and nothing of its content.
    const HANDLE_KIB: u64 = 1;
    /// What threads of the pool keep that first run on a busy machine; a stream's content would take ten times as much.
    const POOL_KIB: u64 = 2048;
    let daemon = Daemon::executable_with(&["--max-fds", "8192"]);
    for number in 0..1000 {
        std::fs::write(daemon.share().join(format!("an-entry-with-a-name-of-usual-length-{number:04}")), "").unwrap();
    }
    for opcode in [Opcode::Readdir, Opcode::Readdirplus] {
        let (_front_end, mut session) = daemon.session();
        let open_and_read = |session: &mut _, count| {
            for _ in 0..count {
                let fh = transom_frontend::fuse::Session::opendir(session, 1).unwrap();
                let mut arg = ReadIn::new_zeroed();
                (arg.fh, arg.size) = (fh.into(), 4096.into());
                let request = Request { room: Some(4096), ..Request::new(opcode, 1, arg.as_bytes()) };
                assert_eq!(send_all(session, std::iter::once(request)), 1);
            }
        };
        // What streams keep in common is full with the first ones.
        let count = 300;
        open_and_read(&mut session, count);
        let before = Usage::of(&daemon);
        open_and_read(&mut session, 3 * count);
        let after = Usage::of(&daemon);
        println!("{opcode:?}: {count} streams {before:?}, {} streams {after:?}", 4 * count);
        let growth = after.memory_kib.saturating_sub(before.memory_kib);
        assert!(
            growth <= 3 * count * HANDLE_KIB + POOL_KIB + super::usage::MEMORY_SLACK_KIB,
            "{opcode:?}: {} open directories took {growth} KiB",
            3 * count
        );
    }
}

#[test]
fn lock_owners_that_never_end_meet_a_limit() {
    let daemon = Daemon::executable_with(&["--posix-lock", "--max-fds", "512"]);
    let (_front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let mut arg = LkIn::new_zeroed();
    arg.fh = file.open.fh;
    arg.lk.type_ = (libc::F_RDLCK as u32).into();
    let mut owner = 0;
    assert_flat(&daemon, "SETLK by ever new owners", scaled(2000), |count| {
        let requests = (0..count).map(|_| {
            owner += 1;
            arg.owner = owner.into();
            Request::new(Opcode::Setlk, file.entry.nodeid.get(), arg.as_bytes())
        });
        send_all(&mut session, requests);
    });
    assert!(daemon.metric("transom_lock_owners") <= 512 / 8);
}

#[test]
pub(super) fn opens_of_one_file_meet_a_limit() {
    let daemon = Daemon::executable_with(&["--max-fds", "512"]);
    let (_front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    assert_flat(&daemon, "OPEN", scaled(2000), |count| {
        let open = || Request::new(Opcode::Open, file.entry.nodeid.get(), OpenIn::new_zeroed().as_bytes());
        send_all(&mut session, (0..count).map(|_| open()));
    });
    assert!(daemon.metric("transom_open_files") <= 512);
}
