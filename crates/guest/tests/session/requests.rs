//! Requests as the server gets them, byte for byte where the specification says so.

use std::sync::{Arc, Mutex};

use transom_guest::{
    Errno,
    session::{Caller, SessionConfig},
};
use transom_wire::{NodeId, attr::EntryOut, header::InHeader, ops::init::InitFlags};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::{
    peer::{ROOT, in_memory, name},
    script::{Script, init_out, reply, session_with},
};

const GROUP: u32 = 0x0102_0304;

/// Returns a directory's entry.
fn directory() -> EntryOut {
    let mut entry = EntryOut { nodeid: 9.into(), ..EntryOut::new_zeroed() };
    entry.attr.mode = 0o040_755.into();
    entry
}

/// Makes a directory with `caller` in a session that has negotiated `flags`; returns the request.
fn mkdir_sent(flags: InitFlags, caller: &Caller<'_>) -> Vec<u8> {
    let (script, session) = session_with(flags, |header, _| reply(header, 0, directory().as_bytes()));
    session.mkdir(caller, NodeId::ROOT, name("abc"), 0o755).unwrap();
    let sent = std::mem::take(&mut *script.last.lock().unwrap());
    script.turn(|header, _| reply(header, 0, &[]));
    sent
}

/// FUSE 7.38: `fuse_ext_header` with the type `FUSE_EXT_GROUPS`, `fuse_supp_groups`, and their length in the header in
/// units of 8 bytes.
#[test]
fn a_supplementary_group_follows_the_names() {
    let caller = Caller { group: Some(GROUP), ..ROOT };
    let sent = mkdir_sent(InitFlags::CREATE_SUPP_GROUP, &caller);
    let (header, rest) = InHeader::read_from_prefix(&sent).unwrap();
    assert_eq!((header.total_extlen.get(), header.len.get() as usize), (2, sent.len()));
    // Mode and umask, the name, and padding to 8 bytes in between.
    let (args, extension) = rest.split_at(rest.len() - 16);
    assert_eq!(&args[8..12], b"abc\0");
    let numbers: Vec<u32> = extension.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(numbers, [16, 32, 1, GROUP]);
}

#[test]
fn a_server_that_does_not_take_groups_is_sent_none() {
    let with_group = Caller { group: Some(GROUP), ..ROOT };
    let without = mkdir_sent(InitFlags::empty(), &ROOT);
    let (header, rest) = InHeader::read_from_prefix(&without).unwrap();
    assert_eq!((header.total_extlen.get(), rest.len()), (0, 12));
    assert_eq!(mkdir_sent(InitFlags::empty(), &with_group).len(), without.len());
    assert_eq!(mkdir_sent(InitFlags::CREATE_SUPP_GROUP, &ROOT).len(), without.len());
}

/// INIT has a number of its own, and no two requests have the same. Odd numbers belong to INTERRUPT.
#[test]
fn no_two_requests_have_one_number() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let script = Script::new(move |header, _| {
        noted.lock().unwrap().push(header.unique.get());
        reply(header, 0, init_out(InitFlags::empty()).as_bytes())
    });
    let session = script.begin(SessionConfig::default()).unwrap();
    let noted = Arc::clone(&seen);
    script.turn(move |header, _| {
        noted.lock().unwrap().push(header.unique.get());
        reply(header, -95, &[])
    });
    for _ in 0..3 {
        assert_eq!(session.statfs(&ROOT, NodeId::ROOT).err(), Some(Errno::OPNOTSUPP));
    }
    let mut numbers = seen.lock().unwrap().clone();
    assert!(numbers.len() >= 4 && numbers.iter().all(|&unique| unique != 0 && unique % 2 == 0), "{numbers:?}");
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
    script.turn(|header, _| reply(header, 0, &[]));
}

#[test]
fn an_interrupt_is_requested_until_it_is_cleared() {
    let (_peer, session) = in_memory();
    let interrupt = session.interrupt();
    assert!(!interrupt.is_raised());
    interrupt.raise().unwrap();
    assert!(interrupt.is_raised());
    interrupt.clear();
    assert!(!interrupt.is_raised());
}
