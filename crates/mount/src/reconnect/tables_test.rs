//! The tables against a plain model: paths as the kernel has them, through two daemons.

use std::{collections::BTreeMap, ops::RangeInclusive};

use proptest::prelude::*;
use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::{Attr, EntryOut},
    header::InHeader,
    ops::{
        flush::FlushIn,
        lk::{FileLock, LkIn},
        open::OpenOut,
        rename::Rename2In,
    },
};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use super::{
    Tables,
    inodes::{DaemonNode, Forgotten, Identity, LookupVerdict},
    reply::RenumberedReply,
    request::RenumberVerdict,
};
use crate::request::{DirEntryName, Request};

pub(super) fn message(opcode: Opcode, nodeid: u64, args: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: ((size_of::<InHeader>() + args.len()) as u32).into(),
        opcode: (opcode as u32).into(),
        nodeid: nodeid.into(),
        ..InHeader::new_zeroed()
    };
    [header.as_bytes(), args].concat()
}

/// A file with this number on the host, which the daemon knows by another.
pub(super) fn entry(daemon: u64, ino: u64) -> EntryOut {
    let attr = Attr { ino: ino.into(), mode: 0o100_644.into(), ctime: 100.into(), ..Attr::default() };
    EntryOut { nodeid: daemon.into(), attr, ..EntryOut::default() }
}

pub(super) fn entry_name(name: &str) -> DirEntryName {
    DirEntryName { parent: NodeId::ROOT, name: name.as_bytes().into() }
}

/// The daemon has answered LOOKUP of `name`; gives the kernel's number.
pub(super) fn look_up(tables: &mut Tables, name: &str, daemon: u64, ino: u64) -> u64 {
    let request = message(Opcode::Lookup, 1, format!("{name}\0").as_bytes());
    let answer = tables.answered(&Request::new(&request).unwrap(), entry(daemon, ino).as_bytes().to_vec());
    let RenumberedReply::Body(body) = answer else { panic!("{answer:?}") };
    EntryOut::read_from_bytes(&body).unwrap().nodeid.get()
}

/// The daemon has answered OPEN with 33; gives the kernel's handle.
pub(super) fn open(tables: &mut Tables, nodeid: u64) -> Handle {
    let request = message(Opcode::Open, nodeid, &(libc::O_RDWR | libc::O_TRUNC).to_le_bytes());
    let out = OpenOut { fh: 33.into(), ..OpenOut::new_zeroed() };
    let answer = tables.answered(&Request::new(&request).unwrap(), out.as_bytes().to_vec());
    let RenumberedReply::Body(body) = answer else { panic!("{answer:?}") };
    Handle(OpenOut::read_from_bytes(&body).unwrap().fh.get())
}

/// The daemon has done SETLK of a POSIX lock.
fn lock(tables: &mut Tables, handle: Handle, owner: u64, kind: i32, range: RangeInclusive<u64>) {
    let lk = FileLock {
        start: (*range.start()).into(),
        end: (*range.end()).into(),
        type_: (kind as u32).into(),
        pid: 1.into(),
    };
    let args = LkIn { fh: handle.into(), owner: owner.into(), lk, lk_flags: 0.into(), padding: 0.into() };
    let request = message(Opcode::Setlk, 2, args.as_bytes());
    assert_eq!(tables.answered(&Request::new(&request).unwrap(), Vec::new()), RenumberedReply::AsItIs);
}

pub(super) fn lose_daemon(tables: &mut Tables) {
    tables.inodes.disconnected();
    tables.handles.disconnected();
}

#[test]
fn the_kernel_keeps_its_number_and_the_daemon_gets_its_own() {
    let mut tables = Tables::default();
    let nodeid = look_up(&mut tables, "file", 700, 5);
    assert_eq!(look_up(&mut tables, "file", 700, 5), nodeid);
    let mut request = message(Opcode::Getattr, nodeid, &[0; 16]);
    assert_eq!(tables.renumber(&mut request), RenumberVerdict::Send);
    assert_eq!(Request::new(&request).unwrap().nodeid(), NodeId(700));
    // The next daemon has another, and counts one reference where the kernel counts two.
    lose_daemon(&mut tables);
    let stale = tables.renumber(&mut message(Opcode::Getattr, nodeid, &[0; 16]));
    assert_eq!(stale, RenumberVerdict::Answer(Err(Errno::STALE)));
    assert_eq!(tables.inodes.found(NodeId(nodeid), DaemonNode(9), entry_name("file")), LookupVerdict::Same);
    assert_eq!(tables.inodes.forget(NodeId(nodeid), 1), None);
    let forgotten = tables.inodes.forget(NodeId(nodeid), 1);
    assert_eq!(forgotten, Some(Forgotten { daemon: DaemonNode(9), count: 1 }));
    assert_eq!(tables.inodes.count(), 0);
}

#[test]
fn a_file_is_the_same_by_number_type_and_time() {
    let identity = Identity::of(&entry(2, 5));
    assert_eq!(identity.matches(&Identity::of(&entry(3, 5))), Some(true));
    assert_eq!(identity.matches(&Identity::of(&entry(2, 6))), Some(false));
    let mut later = entry(2, 5);
    later.attr.ctime = 200.into();
    assert_eq!(identity.matches(&Identity::of(&later)), None);
    assert!(identity.is_born_by((100, 0)) && !identity.is_born_by((100, 1)));
    later.attr.mode = 0o040_755.into();
    assert_eq!(identity.matches(&Identity::of(&later)), Some(false));
}

#[test]
fn a_file_with_locks_fails_after_the_daemon_and_another_is_wanted_again() {
    let mut tables = Tables::default();
    let nodeid = look_up(&mut tables, "file", 700, 5);
    let (locked, free) = (open(&mut tables, nodeid), open(&mut tables, nodeid));
    lock(&mut tables, locked, 7, libc::F_WRLCK, 0..=9);
    lose_daemon(&mut tables);
    let wanted = tables.handles.wanted();
    assert_eq!(wanted.iter().map(|(handle, opened)| (*handle, opened.flags)).collect::<Vec<_>>(), [(free, 2)]);
    assert_eq!(tables.handles.known(locked), Err(Errno::IO));
    // Closing what the daemon does not have is done here.
    let mut release = message(Opcode::Release, nodeid, &[locked.0.to_le_bytes(), [0; 8], [0; 8]].concat());
    assert_eq!(tables.renumber(&mut release), RenumberVerdict::Answer(Ok(())));
}

#[test]
fn a_lock_lasts_until_its_own_owner_gives_all_of_it_back_or_closes_the_file() {
    const ALL: RangeInclusive<u64> = 0..=i64::MAX as u64;
    let mut tables = Tables::default();
    let nodeid = look_up(&mut tables, "file", 700, 5);
    let handles: Vec<_> = (0..4).map(|_| open(&mut tables, nodeid)).collect();
    for &handle in &handles {
        lock(&mut tables, handle, 7, libc::F_WRLCK, 0..=9);
        // Another process with the same open file takes and gives back what does not touch it.
        lock(&mut tables, handle, 8, libc::F_RDLCK, ALL);
        lock(&mut tables, handle, 8, libc::F_UNLCK, ALL);
    }
    lock(&mut tables, handles[1], 7, libc::F_UNLCK, ALL);
    lock(&mut tables, handles[2], 7, libc::F_UNLCK, 0..=4);
    for (handle, owner) in [(handles[3], 7), (handles[0], 8)] {
        let args = FlushIn { fh: handle.into(), lock_owner: owner.into(), ..FlushIn::new_zeroed() };
        let request = message(Opcode::Flush, nodeid, args.as_bytes());
        tables.answered(&Request::new(&request).unwrap(), Vec::new());
    }
    lose_daemon(&mut tables);
    let lost = handles.iter().map(|&handle| tables.handles.known(handle).unwrap_err());
    assert_eq!(lost.collect::<Vec<_>>(), [Errno::IO, Errno::STALE, Errno::IO, Errno::STALE]);
}

#[test]
fn an_unanswered_rename_leaves_both_names_to_try() {
    let mut tables = Tables::default();
    let nodeid = NodeId(look_up(&mut tables, "from", 700, 5));
    tables.inodes.maybe_renamed(&entry_name("from"), &entry_name("to"));
    lose_daemon(&mut tables);
    let mut lost = tables.inodes.lost_in(NodeId::ROOT);
    lost.sort_by(|one, other| one.0.name.cmp(&other.0.name));
    assert_eq!(lost, [(entry_name("from"), nodeid), (entry_name("to"), nodeid)]);
    tables.inodes.unname_of(nodeid, &entry_name("from"));
    assert_eq!(tables.inodes.found(nodeid, DaemonNode(9), entry_name("to")), LookupVerdict::Same);
    assert!(tables.inodes.lost_in(NodeId::ROOT).is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    LookUp(u8, u8),
    Remove(u8),
    Rename(u8, u8, bool),
    Forget(u8),
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..6u8, 0..6u8).prop_map(|(name, file)| Step::LookUp(name, file)),
        1 => (0..6u8).prop_map(Step::Remove),
        2 => (0..6u8, 0..6u8, any::<bool>()).prop_map(|(from, to, swaps)| Step::Rename(from, to, swaps)),
        2 => (0..6u8).prop_map(Step::Forget),
        1 => Just(Step::Reconnect),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// Names lead to files, in a directory of six names; the daemon's numbers are of the generation of the connection.
    #[test]
    fn after_any_history_a_new_daemon_is_asked_for_each_file_by_a_name_that_leads_to_it(steps in steps()) {
        let mut tables = Tables::default();
        let (mut names, mut held) = (BTreeMap::<u8, u8>::new(), BTreeMap::<u8, (u64, u64, u64)>::new());
        let mut generation = 1;
        let daemon_of = |generation: u64, file: u8| generation * 100 + u64::from(file);
        let name_of = |name: u8| format!("n{name}");
        for step in steps {
            match step {
                Step::LookUp(name, file) => {
                    // A hard link to the file, or the host has put it there.
                    names.insert(name, file);
                    let nodeid = look_up(&mut tables, &name_of(name), daemon_of(generation, file), file.into());
                    let (known, kernels, daemons) = held.entry(file).or_insert((nodeid, 0, 0));
                    prop_assert_eq!(*known, nodeid);
                    (*kernels, *daemons) = (*kernels + 1, *daemons + 1);
                }
                Step::Remove(name) => {
                    names.remove(&name);
                    let request = message(Opcode::Unlink, 1, format!("{}\0", name_of(name)).as_bytes());
                    tables.answered(&Request::new(&request).unwrap(), Vec::new());
                }
                Step::Rename(from, to, swaps) if from != to && names.contains_key(&from) => {
                    let (moved, other) = (names.remove(&from), names.remove(&to));
                    moved.map(|file| names.insert(to, file));
                    other.filter(|_| swaps).map(|file| names.insert(from, file));
                    let flags = if swaps { libc::RENAME_EXCHANGE } else { 0 };
                    let args = Rename2In { newdir: 1.into(), flags: flags.into(), padding: 0.into() };
                    let list = format!("{}\0{}\0", name_of(from), name_of(to));
                    let request = message(Opcode::Rename2, 1, &[args.as_bytes(), list.as_bytes()].concat());
                    tables.answered(&Request::new(&request).unwrap(), Vec::new());
                }
                Step::Rename(..) => {}
                Step::Forget(file) => {
                    if let Some((nodeid, kernels, daemons)) = held.remove(&file) {
                        let is_known = tables.inodes.daemon_of(NodeId(nodeid)).is_ok();
                        let forgotten = tables.inodes.forget(NodeId(nodeid), kernels);
                        let daemon = DaemonNode(daemon_of(generation, file));
                        prop_assert_eq!(forgotten, is_known.then_some(Forgotten { daemon, count: daemons }));
                        // The kernel has no names of it either.
                        names.retain(|_, other| *other != file);
                    }
                }
                Step::Reconnect => {
                    generation += 1;
                    lose_daemon(&mut tables);
                    held.values_mut().for_each(|(_, _, daemons)| *daemons = 0);
                    for (entry_name, nodeid) in tables.inodes.lost_in(NodeId::ROOT) {
                        let name = entry_name.name[1] - b'0';
                        let file = names.get(&name).copied();
                        let meant = held.iter().find(|(_, (known, ..))| *known == nodeid.0).map(|(file, _)| *file);
                        prop_assert_eq!(file, meant);
                        let file = file.unwrap();
                        let found = tables.inodes.found(nodeid, DaemonNode(daemon_of(generation, file)), entry_name);
                        prop_assert_eq!(found, LookupVerdict::Same);
                        held.get_mut(&file).unwrap().2 += 1;
                    }
                    // What has a name is known, and nothing else.
                    for (file, (nodeid, ..)) in &held {
                        let is_named = names.values().any(|other| other == file);
                        prop_assert_eq!(tables.inodes.daemon_of(NodeId(*nodeid)).is_ok(), is_named);
                    }
                    held.retain(|_, (nodeid, ..)| tables.inodes.daemon_of(NodeId(*nodeid)).is_ok());
                }
            }
        }
    }
}
