//! Replies that no server would send cause errors, and nothing worse.

use std::sync::Arc;

use proptest::prelude::*;
use transom_guest::{
    Errno,
    channel::{Sink, Source},
    session::{Caller, Session},
};
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::{Attr, AttrOut, EntryOut},
    dirent::{Dirent, DirentPlus},
    header::{InHeader, OutHeader},
    ops::{
        init::InitFlags,
        setattr::SetattrIn,
        write::{WriteFlags, WriteOut},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use crate::{
    peer::{Plain, ROOT, heap_buffer, name},
    scenarios::write_lock,
    script::{reply, session_with},
};

/// How a reply is wrong, if at all.
#[derive(Debug, Clone)]
struct Mischief {
    body: Vec<u8>,
    /// Whether the body is as long as the room.
    is_whole: bool,
    len: Option<u32>,
    written: Option<usize>,
    error: i32,
    is_other: bool,
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let byte = prop_oneof![2 => Just(0u8), 1 => any::<u8>()];
    (
        prop::collection::vec(byte, 0..400),
        any::<bool>(),
        prop::option::weighted(0.1, any::<u32>()),
        prop::option::weighted(0.1, prop_oneof![0usize..600, any::<usize>()]),
        prop_oneof![6 => Just(0), 1 => -200..200, 1 => any::<i32>()],
        prop::bool::weighted(0.05),
    )
        .prop_map(|(body, is_whole, len, written, error, is_other)| Mischief {
            body,
            is_whole,
            len,
            written,
            error,
            is_other,
        })
}

impl Mischief {
    fn reply(&self, header: &InHeader, room: usize) -> (Vec<u8>, usize) {
        let mut body = self.body.clone();
        if self.is_whole {
            body.resize(room.saturating_sub(size_of::<OutHeader>()), 7);
        }
        let len = size_of::<OutHeader>() + body.len();
        let out = OutHeader {
            len: self.len.unwrap_or(len as u32).into(),
            error: self.error.into(),
            unique: (header.unique.get() + 2 * u64::from(self.is_other)).into(),
        };
        ([out.as_bytes(), &body].concat(), self.written.unwrap_or(len))
    }
}

const NODE: NodeId = NodeId(5);
const FH: Handle = Handle(6);

/// Sends every operation; what it returns of a reply is within what was requested.
fn ask_everything(session: &Session<Plain>) {
    let caller = &Caller { group: Some(1), ..ROOT };
    let (mut bytes, mut small) = ([0; 300], [0; 8]);
    for found in [
        session.lookup(caller, NODE, name("a")),
        session.mkdir(caller, NODE, name("a"), 0o777),
        session.mknod(caller, NODE, name("a"), 0o600, 0),
        session.symlink(caller, NODE, name("a"), b"target"),
        session.link(caller, NODE, NODE, name("a")),
        session.create(caller, NODE, name("a"), 0o600, 2).map(|(entry, _)| entry),
        session.tmpfile(caller, NODE, 0o600, 2).map(|(entry, _)| entry),
    ]
    .into_iter()
    .flatten()
    {
        assert!(found.nodeid == 0 || is_file(&found.attr), "{found:?}");
        session.forget(found.nodeid.into(), 1);
    }
    for out in [session.getattr(caller, NODE, Some(FH)), session.setattr(caller, NODE, &SetattrIn::new_zeroed())] {
        assert!(out.is_err() || out.is_ok_and(|out| is_file(&out.attr)));
    }
    let _ = session.open(caller, NODE, 0o1000);
    let _ = session.opendir(caller, NODE, 0);
    assert!(session.read(caller, NODE, FH, 0, 0, Sink::Bytes(&mut bytes)).unwrap_or(0) <= 300);
    let taken = session.write(caller, NODE, FH, 0, WriteFlags::empty(), 0, Source::Bytes(b"text"));
    assert!(taken.is_err() || taken.is_ok_and(|len| (1..=4).contains(&len)));
    let buffer = Arc::new(heap_buffer(4096).unwrap());
    if let Ok(pending) = session.read_start(caller, NODE, FH, 0, 0, Arc::clone(&buffer), 0..200) {
        assert!(session.read_finish(pending).unwrap_or(0) <= 200);
    }
    if let Ok(pending) = session.write_start(caller, NODE, FH, 0, WriteFlags::empty(), 0, buffer, 0..200) {
        assert!(session.write_finish(pending).unwrap_or(0) <= 200);
    }
    for plus in [false, true] {
        if let Ok(len) = session.readdir(caller, NODE, FH, 0, plus, &mut bytes) {
            assert!(len <= 300);
            walk(session, &bytes[..len], plus);
        }
    }
    if let Ok(target) = session.readlink(caller, NODE) {
        assert!((1..=4095).contains(&target.len()) && !target.contains(&0));
    }
    assert!(session.getxattr(caller, NODE, b"user.a", &mut small).unwrap_or(0) <= 8);
    assert!(session.getxattr(caller, NODE, b"user.a", &mut []).unwrap_or(0) <= 65536);
    assert!(session.listxattr(caller, NODE, &mut small).unwrap_or(0) <= 8);
    let _ = session.setxattr(caller, NODE, b"user.a", b"value", 0, 0);
    let _ = session.removexattr(caller, NODE, b"user.a");
    assert!(session.lseek(caller, NODE, FH, 0, 3).unwrap_or(0) <= i64::MAX as u64);
    assert!(session.copy_file_range(caller, (NODE, FH, 0), (NODE, FH, 0), 10, 0).unwrap_or(0) <= 10);
    assert!(session.ioctl(caller, NODE, FH, 0, 1, 0, b"in", &mut small).map_or(0, |(_, len)| len) <= 8);
    if let Ok(lock) = session.getlk(caller, NODE, &write_lock(FH, 1)) {
        assert!(lock.type_ == 2 || lock.start <= lock.end);
    }
    let _ = session.setlk(caller, NODE, &write_lock(FH, 1));
    let _ = session.setlkw(caller, NODE, &write_lock(FH, 1));
    let _ = session.statfs(caller, NODE);
    let _ = session.statx(caller, NODE, Some(FH), 0, 0);
    let _ = session.poll(caller, NODE, FH, 1);
    let _ = session.rename(caller, (NODE, name("a")), (NODE, name("b")), 1);
    let _ = session.rename(caller, (NODE, name("a")), (NODE, name("b")), 0);
    for nothing in [
        session.unlink(caller, NODE, name("a")),
        session.rmdir(caller, NODE, name("a")),
        session.access(caller, NODE, 1),
        session.flush(caller, NODE, FH, 1),
        session.fsync(caller, NODE, FH, 1),
        session.fsyncdir(caller, NODE, FH, 1),
        session.syncfs(caller, NODE),
        session.fallocate(caller, NODE, FH, 0, 1, 0),
        session.release(caller, NODE, FH, 0, 0, 0),
        session.releasedir(caller, NODE, FH, 0),
    ] {
        assert!(nothing.is_ok() || nothing.is_err_and(|error| (1..=4095).contains(&error.raw())));
    }
}

fn walk(session: &Session<Plain>, bytes: &[u8], plus: bool) {
    for entry in session.entries(bytes, plus).flatten() {
        assert!((1..=255).contains(&entry.name.len()) && !entry.name.contains(&b'/'));
        if let Some(found) = entry.entry {
            assert!(is_file(&found.attr) && found.nodeid.get() > 1);
            session.forget(found.nodeid.into(), 1);
        }
    }
}

fn is_file(attr: &Attr) -> bool {
    let is_type = matches!(attr.mode.get() >> 12, 1 | 2 | 4 | 6 | 8 | 10 | 12);
    is_type && attr.size.get() <= i64::MAX as u64 && attr.mtimensec.get() < 1_000_000_000
}

proptest! {
    #[test]
    fn whatever_is_replied_errors_come_of_it_and_nothing_worse(replies in prop::collection::vec(mischief(), 1..40)) {
        let mut at = 0;
        let (_script, session) = session_with(InitFlags::all(), move |header, room| {
            at += 1;
            replies[at % replies.len()].reply(header, room)
        });
        ask_everything(&session);
        ask_everything(&session);
    }

    #[test]
    fn entries_of_random_bytes_are_names_or_errors(bytes in prop::collection::vec(
        prop_oneof![4 => Just(0u8), 1 => Just(1u8), 1 => any::<u8>()], 0..2000), plus: bool)
    {
        let (_script, session) = session_with(InitFlags::all(), |header, _| reply(header, 0, &[]));
        walk(&session, &bytes, plus);
    }
}

fn file() -> Attr {
    Attr { mode: 0o100_600.into(), ..Attr::default() }
}

/// Returns the errors of a lookup and a mkdir with this entry, and the number of replies counted as impossible.
fn answers_to(entry: EntryOut) -> (Option<Errno>, Option<Errno>, u64, usize) {
    let (_script, session) = session_with(InitFlags::all(), move |header, _| match header.opcode.get() {
        38 => reply(header, 0, &[]),
        _ => reply(header, 0, entry.as_bytes()),
    });
    let found = session.lookup(&ROOT, NODE, name("a")).err();
    let made = session.mkdir(&ROOT, NODE, name("a"), 0o755).err();
    (found, made, session.counters().impossible_replies, session.queued_forgets())
}

#[test]
fn entries_that_no_file_can_have_are_refused_and_forgotten() {
    let entry = |nodeid: u64, attr| EntryOut { nodeid: nodeid.into(), attr, ..EntryOut::default() };
    let too_long = Attr { size: (1 << 63).into(), ..file() };
    let typeless = Attr { mode: 0o600.into(), ..file() };
    let io = Some(Errno::IO);
    assert_eq!(answers_to(entry(7, file())), (None, io, 1, 1), "a regular file is no directory");
    assert_eq!(answers_to(entry(7, too_long)), (io, io, 2, 1));
    assert_eq!(answers_to(entry(7, typeless)), (io, io, 2, 1));
    assert_eq!(answers_to(entry(1, file())), (io, io, 2, 0), "the root is nowhere inside");
    assert_eq!(answers_to(entry(0, file())), (None, io, 1, 0), "an absent name is found absent, but not made");
}

#[test]
fn attributes_with_impossible_values_are_refused_and_long_seconds_cut() {
    let answer = |attr: Attr| {
        let out = AttrOut { attr, ..AttrOut::default() };
        let (_script, session) = session_with(InitFlags::all(), move |header, _| match header.opcode.get() {
            38 => reply(header, 0, &[]),
            _ => reply(header, 0, out.as_bytes()),
        });
        session.getattr(&ROOT, NODE, None).map(|out| out.attr.mtimensec.get())
    };
    assert_eq!(answer(Attr { mtimensec: u32::MAX.into(), ..file() }), Ok(999_999_999));
    assert_eq!(answer(Attr { mode: 0o170_600.into(), ..file() }), Err(Errno::IO));
    assert_eq!(answer(Attr { size: u64::MAX.into(), ..file() }), Err(Errno::IO));
}

#[test]
fn a_write_of_more_than_was_sent_is_impossible() {
    for (size, answer) in [(4, Ok(4)), (3, Ok(3)), (5, Err(Errno::IO)), (0, Err(Errno::IO))] {
        let (_script, session) = session_with(InitFlags::all(), move |header, _| match header.opcode.get() {
            38 => reply(header, 0, &[]),
            _ => reply(header, 0, WriteOut { size: size.into(), padding: 0.into() }.as_bytes()),
        });
        let taken = session.write(&ROOT, NODE, FH, 0, WriteFlags::empty(), 0, Source::Bytes(b"text"));
        assert_eq!(taken, answer);
    }
}

/// Returns an entry of READDIRPLUS if `plus`, of READDIR otherwise.
fn dir_entry(nodeid: u64, name: &[u8], plus: bool) -> Vec<u8> {
    let entry = EntryOut { nodeid: nodeid.into(), attr: file(), ..EntryOut::default() };
    let dirent = Dirent { ino: nodeid.into(), off: 1.into(), namelen: (name.len() as u32).into(), type_: 8.into() };
    let head = if plus { DirentPlus { entry, dirent }.as_bytes().to_vec() } else { dirent.as_bytes().to_vec() };
    let mut bytes = [&head[..], name].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn entries_that_nobody_asks_for_are_forgotten_with_the_listing() {
    let (_script, session) = session_with(InitFlags::all(), |header, _| reply(header, 0, &[]));
    let mut bytes = Vec::new();
    for (nodeid, text) in [(10u64, b".".as_slice()), (11, b"one"), (12, b"two"), (0, b"three"), (13, b"four")] {
        bytes.extend(dir_entry(nodeid, text, true));
    }
    let mut entries = session.entries(&bytes, true);
    assert!(entries.next().unwrap().unwrap().entry.is_none(), "the directory itself counts nothing");
    let one = entries.next().unwrap().unwrap();
    assert_eq!((one.name, one.entry.unwrap().nodeid.get()), (&b"one"[..], 11));
    drop(entries);
    assert_eq!(session.queued_forgets(), 2, "two and four");
    assert_eq!(session.entries(&bytes, true).flatten().count(), 5);
}

#[test]
fn a_listing_shows_names_that_only_a_listing_can_carry() {
    for (name_len, plus) in [(255, true), (256, true), (1024, true), (256, false), (1024, false)] {
        let (_script, session) = session_with(InitFlags::all(), |header, _| reply(header, 0, &[]));
        let long = vec![b'x'; name_len];
        let bytes: Vec<u8> = [&b"short"[..], &long].into_iter().flat_map(|name| dir_entry(11, name, plus)).collect();
        let names: Result<Vec<_>, _> = session.entries(&bytes, plus).map(|entry| entry.map(|one| one.name)).collect();
        assert_eq!(names, Ok(vec![&b"short"[..], &long]), "{name_len} {plus}");
        assert_eq!(session.counters().impossible_replies, 0);
    }
}

#[test]
fn every_operation_can_be_asked_for() {
    let (_script, session) = session_with(InitFlags::all(), |header, _| {
        assert!(Opcode::from_u32(header.opcode.get()).is_some());
        reply(header, -13, &[])
    });
    ask_everything(&session);
    assert_eq!(session.counters().impossible_replies, 0);
}
