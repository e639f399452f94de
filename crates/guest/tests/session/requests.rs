//! Requests as the server gets them, byte for byte where the specification says so.

use std::sync::{Arc, Mutex};

use transom_guest::{
    Errno,
    session::{Caller, Pending, Request, SessionConfig},
};
use transom_wire::{
    NodeId, Opcode,
    attr::EntryOut,
    header::InHeader,
    operation::{Open, Symlink},
    ops::{
        init::InitFlags,
        open::{OpenIn, OpenOut},
        release::ReleaseIn,
    },
};
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

/// FUSE: INTERRUPT has the number of its request, and one of its own: that number with bit 0 set.
#[test]
fn an_interrupt_names_the_request_in_flight() {
    let (script, session) = session_with(InitFlags::empty(), |header, _| reply(header, 0, &[]));
    let interrupt = Arc::new(session.interrupt());
    let (raising, asked) = (Arc::clone(&interrupt), Arc::new(Mutex::new(0)));
    let number = Arc::clone(&asked);
    script.turn(move |header, _| {
        *number.lock().unwrap() = header.unique.get();
        assert_eq!(raising.raise(), Ok(true));
        reply(header, -4, &[])
    });
    let caller = Caller { interrupt: Some(&interrupt), ..ROOT };
    assert_eq!(session.getattr(&caller, NodeId::ROOT, None).err(), Some(Errno::INTR));
    let told = std::mem::take(&mut *script.told.lock().unwrap());
    let [message] = &told[..] else { panic!("{} messages", told.len()) };
    let (header, arg) = InHeader::read_from_prefix(message).unwrap();
    let asked = *asked.lock().unwrap();
    assert_eq!((header.opcode.get(), header.unique.get()), (36, asked | 1));
    assert_eq!(u64::from_le_bytes(arg.try_into().unwrap()), asked);
    script.turn(|header, _| reply(header, 0, &[]));
}

#[test]
fn a_second_request_of_an_interrupt_is_refused_while_the_first_is_in_flight() {
    let (script, session) = session_with(InitFlags::empty(), |header, _| reply(header, -5, &[]));
    let session = Arc::new(session);
    let interrupt = Arc::new(session.interrupt());
    let (inner, other) = (Arc::downgrade(&session), Arc::clone(&interrupt));
    let mut is_first = true;
    let second = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&second);
    let raising = Arc::clone(&interrupt);
    script.turn(move |header, _| {
        if std::mem::take(&mut is_first) {
            let caller = Caller { interrupt: Some(&other), ..ROOT };
            let session = inner.upgrade().unwrap();
            *noted.lock().unwrap() = session.getattr(&caller, NodeId::ROOT, None).err();
            raising.raise().unwrap();
        }
        reply(header, -4, &[])
    });
    let caller = Caller { interrupt: Some(&interrupt), ..ROOT };
    assert_eq!(session.getattr(&caller, NodeId::ROOT, None).err(), Some(Errno::INTR));
    assert_eq!(*second.lock().unwrap(), Some(Errno::BUSY));
    script.turn(|header, _| reply(header, 0, &[]));
}

/// RELEASE has the flags of the open file, which some servers look at.
#[test]
fn a_file_that_nobody_gets_is_closed_with_the_flags_it_was_opened_with() {
    const FLAGS: u32 = 0o2_001;
    let (script, session) = session_with(InitFlags::empty(), |header, _| {
        reply(header, 0, OpenOut { fh: 77.into(), ..OpenOut::new_zeroed() }.as_bytes())
    });
    let args = OpenIn { flags: FLAGS.into(), ..OpenIn::new_zeroed() };
    let request = Request::<Open>::new(&ROOT, NodeId(5), &args).unwrap();
    let pending = Pending::start(&session, &ROOT, request).unwrap();
    assert!(pending.is_ready());
    drop(pending);
    session.flush_forgets().unwrap();
    let last = std::mem::take(&mut *script.last.lock().unwrap());
    let (header, args) = InHeader::read_from_prefix(&last).unwrap();
    assert_eq!(header.opcode.get(), Opcode::Release as u32);
    let arg = ReleaseIn::read_from_prefix(args).unwrap().0;
    assert_eq!((arg.fh.get(), arg.flags.get()), (77, FLAGS));
    script.turn(|header, _| reply(header, 0, &[]));
}

/// symlink(2): ENOENT for an empty target, ENAMETOOLONG for one of PATH_MAX bytes and more.
#[test]
fn a_target_has_1_to_4095_bytes() {
    let request = |target: &[u8]| {
        let request = Request::<Symlink>::new(&ROOT, NodeId::ROOT, &()).unwrap();
        request.name_and_target(name("link"), target).err()
    };
    assert_eq!((request(b""), request(b"x")), (Some(Errno::NOENT), None));
    assert_eq!((request(&[b'x'; 4095]), request(&[b'x'; 4096])), (None, Some(Errno::NAMETOOLONG)));
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
