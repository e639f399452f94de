//! Replies to requests that nobody waits for pass the checks of the blocking operations.

use std::sync::Arc;

use transom_guest::{
    Errno,
    session::{Answer, Pending, Request},
};
use transom_wire::{
    NodeId,
    attr::{Attr, EntryOut},
    header::InHeader,
    operation::{
        CopyFileRange, CopyFileRange64, Create, Getlk, Getxattr, Link, Listxattr, Lookup, Lseek, Mkdir, Mknod, Open,
        Opendir, Operation, Readlink, Symlink,
    },
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        create::{CreateIn, CreateOut},
        init::InitFlags,
        lk::LkOut,
        lseek::{LseekIn, LseekOut},
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        write::WriteOut,
        xattr::GetxattrOut,
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::{
    peer::{ROOT, heap_buffer, name},
    script::{reply, session_with},
};

const FILE: u32 = 0o100_600;
const DIR: u32 = 0o040_700;
const LINK: u32 = 0o120_777;

/// Sends a request to a server that replies with `body`. Returns the outcome, and how many references to inodes were
/// given back.
fn ask<O>(body: &[u8], fill: impl FnOnce(Request<O>) -> Request<O>) -> (Result<Output<O>, Errno>, usize)
where
    O: Operation<Args: FromZeros, Reply: Answer>,
{
    ask_with(&O::Args::new_zeroed(), body, fill)
}

type Output<O> = <<O as Operation>::Reply as Answer>::Output;

fn ask_with<O>(
    args: &O::Args,
    body: &[u8],
    fill: impl FnOnce(Request<O>) -> Request<O>,
) -> (Result<Output<O>, Errno>, usize)
where
    O: Operation<Reply: Answer>,
{
    let body = body.to_vec();
    let (script, session) = session_with(InitFlags::all(), move |header, _| reply(header, 0, &body));
    let request = fill(Request::<O>::new(&ROOT, NodeId(5), args).unwrap());
    let outcome = Pending::start(&session, &ROOT, request).unwrap().wait();
    let impossible = session.counters().impossible_replies;
    assert_eq!(impossible, u64::from(outcome.as_ref().err() == Some(&Errno::IO)));
    let forgets = session.queued_forgets();
    script.turn(|header, _| reply(header, 0, &[]));
    (outcome, forgets)
}

/// Starts a request, drops it or takes its reply, and flushes. Returns which requests the server got after it, with the
/// inodes in their headers and the handles that they name.
fn followers<O>(
    args: &O::Args,
    body: &[u8],
    is_dropped: bool,
    fill: impl FnOnce(Request<O>) -> Request<O>,
) -> Vec<[u64; 3]>
where
    O: Operation<Reply: Answer>,
{
    let body = body.to_vec();
    let (script, session) = session_with(InitFlags::all(), move |header, _| reply(header, 0, &body));
    let request = fill(Request::<O>::new(&ROOT, NodeId(5), args).unwrap());
    let pending = Pending::start(&session, &ROOT, request).unwrap();
    script.last.lock().unwrap().clear();
    if is_dropped {
        drop(pending)
    } else {
        assert_eq!(pending.wait().err(), Some(Errno::IO))
    }
    session.flush_forgets().unwrap();
    let last = std::mem::take(&mut *script.last.lock().unwrap());
    let told = std::mem::take(&mut *script.told.lock().unwrap());
    let describe = |message: &Vec<u8>| {
        let (header, rest) = InHeader::read_from_prefix(message).unwrap();
        [header.opcode.get().into(), header.nodeid.get(), u64::read_from_prefix(rest).unwrap().0]
    };
    [last].iter().chain(&told).filter(|message| !message.is_empty()).map(describe).collect()
}

#[test]
fn a_file_that_nobody_gets_is_closed_and_its_reference_given_back() {
    let create = || CreateOut { open: OpenOut { fh: 77.into(), ..OpenOut::new_zeroed() }, entry: entry(9, DIR) };
    let named = |request: Request<Create>| request.name(name("a")).unwrap();
    let (release, releasedir, forget) = (18, 29, 2);
    // 1. The reply is refused, since it is a directory.
    let sent = followers(&CreateIn::new_zeroed(), create().as_bytes(), false, named);
    assert_eq!(sent, [[release, 9, 77], [forget, 9, 1]]);
    // 2. Nobody waits for the reply.
    let good = CreateOut { entry: entry(9, FILE), ..create() };
    let sent = followers(&CreateIn::new_zeroed(), good.as_bytes(), true, named);
    assert_eq!(sent, [[release, 9, 77], [forget, 9, 1]]);
    let sent = followers::<Open>(&OpenIn::new_zeroed(), create().open.as_bytes(), true, |request| request);
    assert_eq!(sent, [[release, 5, 77]]);
    let sent = followers::<Opendir>(&OpenIn::new_zeroed(), create().open.as_bytes(), true, |request| request);
    assert_eq!(sent, [[releasedir, 5, 77]]);
    let lookup = |request: Request<Lookup>| request.name(name("a")).unwrap();
    assert_eq!(followers::<Lookup>(&(), entry(9, FILE).as_bytes(), true, lookup), [[forget, 9, 1]]);
    assert_eq!(followers::<Lookup>(&(), entry(0, 0).as_bytes(), true, lookup), [[0; 3]; 0]);
}

fn entry(nodeid: u64, mode: u32) -> EntryOut {
    let attr = Attr { mode: mode.into(), ..Attr::default() };
    EntryOut { nodeid: nodeid.into(), attr, ..EntryOut::default() }
}

#[test]
fn only_a_lookup_may_find_nothing() {
    let none = entry(0, 0);
    let body = none.as_bytes();
    assert_eq!(ask::<Lookup>(body, |request| request.name(name("a")).unwrap()).0.unwrap().nodeid.get(), 0);
    let outcomes = [
        ask::<Mkdir>(body, |request| request.name(name("a")).unwrap()),
        ask::<Mknod>(body, |request| request.name(name("a")).unwrap()),
        ask::<Symlink>(body, |request| request.name_and_target(name("a"), b"b").unwrap()),
        ask::<Link>(body, |request| request.name(name("a")).unwrap()),
    ];
    assert!(outcomes.iter().all(|(outcome, _)| outcome.as_ref().err() == Some(&Errno::IO)));
    let none = CreateOut { entry: none, ..CreateOut::new_zeroed() };
    let (outcome, _) = ask::<Create>(none.as_bytes(), |request| request.name(name("a")).unwrap());
    assert_eq!(outcome.err(), Some(Errno::IO));
}

#[test]
fn a_file_that_is_made_has_the_type_that_was_asked_for() {
    let fifo = MknodIn { mode: 0o010_600.into(), ..MknodIn::new_zeroed() };
    for mode in [FILE, DIR, LINK, 0o010_600] {
        let body = entry(9, mode);
        let body = body.as_bytes();
        let created = CreateOut { entry: entry(9, mode), ..CreateOut::new_zeroed() };
        let create = ask::<Create>(created.as_bytes(), |request| request.name(name("a")).unwrap());
        let outcomes = [
            (FILE, (create.0.map(|out| out.entry), create.1)),
            (FILE, ask::<Mknod>(body, |request| request.name(name("a")).unwrap())),
            (0o010_600, ask_with::<Mknod>(&fifo, body, |request| request.name(name("a")).unwrap())),
            (DIR, ask::<Mkdir>(body, |request| request.name(name("a")).unwrap())),
            (LINK, ask::<Symlink>(body, |request| request.name_and_target(name("a"), b"b").unwrap())),
            (mode, ask::<Link>(body, |request| request.name(name("a")).unwrap())),
        ];
        for (right, (outcome, forgets)) in outcomes {
            let expected = if mode == right { Ok(9) } else { Err(Errno::IO) };
            assert_eq!(outcome.map(|entry| entry.nodeid.get()), expected, "{mode:o} for {right:o}");
            assert_eq!(forgets, usize::from(mode != right), "a reference that came with it is given back");
        }
    }
}

#[test]
fn no_more_is_copied_than_was_asked_for() {
    let args = CopyFileRangeIn { len: 10.into(), ..CopyFileRangeIn::new_zeroed() };
    for (copied, expected) in [(0, Ok(0)), (10, Ok(10)), (11, Err(Errno::IO))] {
        let out = CopyFileRangeOut { bytes_copied: u64::from(copied).into() };
        let (outcome, _) = ask_with::<CopyFileRange64>(&args, out.as_bytes(), |request| request);
        assert_eq!(outcome.map(|out| out.bytes_copied.get()), expected);
        let out = WriteOut { size: copied.into(), padding: 0.into() };
        let (outcome, _) = ask_with::<CopyFileRange>(&args, out.as_bytes(), |request| request);
        assert_eq!(outcome.map(|out| u64::from(out.size.get())), expected);
    }
}

#[test]
fn a_position_is_one_that_a_file_can_have() {
    let args = LseekIn { offset: 5.into(), whence: 3.into(), ..LseekIn::new_zeroed() };
    let max = i64::MAX as u64;
    for (found, expected) in [(5, Ok(5)), (4, Err(Errno::IO)), (max, Ok(max)), (max + 1, Err(Errno::IO))] {
        let (outcome, _) = ask_with::<Lseek>(&args, LseekOut { offset: found.into() }.as_bytes(), |request| request);
        assert_eq!(outcome.map(|out| out.offset.get()), expected);
    }
}

#[test]
fn a_lock_is_one_that_there_can_be() {
    let mut out = LkOut::read_from_bytes(&[0; size_of::<LkOut>()]).unwrap();
    assert!(ask::<Getlk>(out.as_bytes(), |request| request).0.is_ok());
    out.lk.start = 1.into();
    assert_eq!(ask::<Getlk>(out.as_bytes(), |request| request).0.err(), Some(Errno::IO));
}

#[test]
fn a_target_is_one_that_a_link_can_have() {
    let long = [b'x'; 4096];
    let cases: [(&[u8], _); 5] = [
        (b"target", Ok(6)),
        (b"", Err(Errno::IO)),
        (b"tar\0get", Err(Errno::IO)),
        (&long[..4095], Ok(4095)),
        (&long, Err(Errno::IO)),
    ];
    for (target, expected) in cases {
        let buffer = Arc::new(heap_buffer(8192).unwrap());
        let room = |request: Request<Readlink>| request.room(Arc::clone(&buffer), 100..8000).unwrap();
        assert_eq!(ask::<Readlink>(target, room).0, expected);
    }
}

#[test]
fn values_and_lists_are_as_long_as_they_can_be() {
    for (size, expected) in [(0, Ok(0)), (65536, Ok(65536)), (65537, Err(Errno::IO)), (u32::MAX, Err(Errno::IO))] {
        let out = GetxattrOut { size: size.into(), padding: 0.into() };
        let (outcome, _) = ask::<Getxattr>(out.as_bytes(), |request| request.xattr_name(b"user.a").unwrap());
        assert_eq!(outcome, expected);
        assert_eq!(ask::<Listxattr>(out.as_bytes(), |request| request).0, expected);
    }
    let cases: [(&[u8], _); 4] =
        [(b"a\0bc\0", Ok(5)), (b"", Ok(0)), (b"a\0b", Err(Errno::IO)), (b"a\0\0", Err(Errno::IO))];
    for (list, expected) in cases {
        let buffer = Arc::new(heap_buffer(4096).unwrap());
        let room = |request: Request<Listxattr>| request.room(Arc::clone(&buffer), 0..100).unwrap();
        assert_eq!(ask::<Listxattr>(list, room).0, expected);
    }
}
