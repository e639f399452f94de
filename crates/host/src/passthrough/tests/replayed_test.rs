//! Requests of the agent of a guest: what is announced is answered and not done, and everything else is refused.

use rustix::fs::OFlags;
use std::fs;
use transom_wire::{
    Handle, NodeId,
    agent::{AGENT_GID, EXCHANGE, EXCHANGE_LEN, Hello, VERSION},
    linux::RENAME_EXCHANGE,
    ops::ioctl::{IOCTL_DIR, IoctlIn},
};
use zerocopy::{FromZeros, IntoBytes};

use super::{Config, guest::Guest, is_root};
use crate::{
    Errno,
    replay::{Change, Kind},
};

/// A guest whose agent is registered, if this machine has file handles.
fn with_agent(case: impl FnOnce(&mut Guest, &std::path::Path)) {
    if !is_root() {
        return println!("SKIPPED: the guest's root is not this user");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::new(dir.path(), Config { events: true, ..Config::default() });
    guest.caller = (0, AGENT_GID);
    exchange(&guest).unwrap();
    case(&mut guest, dir.path());
}

fn exchange(guest: &Guest) -> Result<Vec<u8>, Errno> {
    exchange_by(guest, guest.opendir(NodeId::ROOT)?)
}

/// Exchanges through an open root directory.
pub(super) fn exchange_by(guest: &Guest, root: Handle) -> Result<Vec<u8>, Errno> {
    let hello = Hello { version: VERSION.into(), ..Hello::default() };
    let mut argument = [0; EXCHANGE_LEN];
    argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
    let arg = IoctlIn {
        fh: root.into(),
        flags: IOCTL_DIR.into(),
        cmd: EXCHANGE.into(),
        in_size: (EXCHANGE_LEN as u32).into(),
        out_size: (EXCHANGE_LEN as u32).into(),
        ..IoctlIn::new_zeroed()
    };
    guest.call(transom_wire::Opcode::Ioctl, NodeId::ROOT, &[arg.as_bytes(), &argument], 16 + EXCHANGE_LEN)
}

#[test]
fn the_agents_group_changes_nothing() {
    with_agent(|guest, dir| {
        fs::write(dir.join("file"), "kept").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        let (file, root) = (guest.walk("file").unwrap(), NodeId::ROOT);
        for agent in ["registered", "gone"] {
            assert_eq!(guest.unlink(root, "file"), Err(Errno::PERM), "{agent}");
            assert_eq!(guest.rmdir(root, "sub"), Err(Errno::PERM));
            for flags in [0, RENAME_EXCHANGE] {
                assert_eq!(guest.rename((root, "file"), (root, "sub"), flags), Err(Errno::PERM));
            }
            assert_eq!(guest.mkdir(root, "new").err(), Some(Errno::PERM));
            assert_eq!(guest.create(root, "new", OFlags::RDWR).err(), Some(Errno::PERM));
            assert_eq!(guest.open(file, OFlags::WRONLY).err(), Some(Errno::PERM));
            assert_eq!(guest.open(file, OFlags::RDONLY | OFlags::TRUNC).err(), Some(Errno::PERM));
            assert!(guest.open(file, OFlags::RDONLY).is_ok());
            guest.fs().replays().unwrap().end_session();
        }
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "kept");
    });
}

#[test]
fn only_root_in_the_agents_group_receives_changes() {
    with_agent(|guest, _| {
        for caller in [(0, 0), (1000, AGENT_GID), (1000, 1000), (u32::MAX, u32::MAX)] {
            guest.caller = caller;
            assert_eq!(exchange(guest).err(), Some(Errno::PERM), "{caller:?}");
        }
        guest.caller = (0, AGENT_GID);
        assert_eq!(exchange(guest).err(), Some(Errno::BUSY), "through another handle");
    });
}

#[test]
fn nobody_receives_changes_that_are_not_announced() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::new(dir.path(), Config::default());
    guest.caller = (0, AGENT_GID);
    assert_eq!(exchange(&guest).err(), Some(Errno::NOTTY));
    fs::write(dir.path().join("file"), "").unwrap();
    assert_eq!(guest.unlink(NodeId::ROOT, "file"), Err(Errno::PERM));
}

#[test]
fn a_replayed_removal_leaves_a_file_that_was_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::new(dir.path(), Config { events: true, ..Config::default() });
    fs::write(dir.path().join("file"), "old").unwrap();
    let old = guest.walk("file").unwrap();
    fs::remove_file(dir.path().join("file")).unwrap();
    fs::write(dir.path().join("file"), "new").unwrap();

    guest.caller = (0, AGENT_GID);
    let root = guest.opendir(NodeId::ROOT).unwrap();
    let replays = guest.fs().replays().unwrap();
    let hello = Hello { version: VERSION.into(), ..Hello::default() };
    let mut argument = [0; EXCHANGE_LEN];
    argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
    let next = || replays.exchange(0, root, &argument, crate::server::BlockingMode::MayBlock).unwrap();
    next();
    replays.push(Change::of_name(Kind::Removed, libc::DT_REG, NodeId::ROOT, b"file"));
    replays.push(Change::of_name(Kind::Created, libc::DT_REG, NodeId::ROOT, b"file"));
    next();
    assert_eq!(NodeId::from(guest.lookup(NodeId::ROOT, "file").unwrap().nodeid), old, "it looks as before");
    assert_eq!(guest.unlink(NodeId::ROOT, "file"), Ok(()));
    assert_eq!(guest.unlink(NodeId::ROOT, "file"), Err(Errno::PERM), "once");
    next();
    assert_eq!(guest.lookup(NodeId::ROOT, "file").err(), Some(Errno::NOENT), "it looks absent");
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "new");
}
