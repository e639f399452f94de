//! Numbers in every kind of message: those of the kernel become the daemon's and back, and what the kernel refuses
//! leaves nothing.

use std::mem::{offset_of, size_of};

use proptest::prelude::*;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::EntryOut,
    dirent::{Dirent, DirentPlus, padded_len},
    header::InHeader,
    ops::{
        copy_file_range::CopyFileRangeIn,
        link::LinkIn,
        open::OpenOut,
        rename::Rename2In,
        setattr::{SetattrIn, SetattrValid},
    },
};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use super::{
    Tables,
    inodes::{DaemonNode, Forgotten},
    reply::RenumberedReply,
    request::RenumberVerdict,
    tables_test::{entry, look_up, message, open},
};
use crate::request::Request;

/// What the daemon gets of a request.
fn sent(tables: &mut Tables, opcode: Opcode, nodeid: u64, args: &[u8]) -> Vec<u8> {
    let mut message = message(opcode, nodeid, args);
    assert_eq!(tables.renumber(&mut message), RenumberVerdict::Send, "{opcode:?}");
    message
}

fn answered(tables: &mut Tables, opcode: Opcode, args: &[u8], body: &[u8]) -> RenumberedReply {
    tables.answered(&Request::new(&message(opcode, 1, args)).unwrap(), body.to_vec())
}

fn body(answer: RenumberedReply) -> Vec<u8> {
    let RenumberedReply::Body(body) = answer else { panic!("{answer:?}") };
    body
}

/// One entry of READDIRPLUS.
fn plus(entry: EntryOut, name: &[u8]) -> Vec<u8> {
    let dirent = Dirent { ino: 5.into(), off: 1.into(), namelen: (name.len() as u32).into(), type_: 8.into() };
    let mut bytes = [DirentPlus { entry, dirent }.as_bytes(), name].concat();
    bytes.resize(padded_len(size_of::<DirentPlus>(), name.len()), 0);
    bytes
}

fn with_open(entry: EntryOut) -> Vec<u8> {
    [entry.as_bytes(), OpenOut { fh: 44.into(), ..OpenOut::new_zeroed() }.as_bytes()].concat()
}

#[test]
fn every_number_of_a_request_is_the_daemons() {
    let mut tables = Tables::default();
    let (one, two) = (look_up(&mut tables, "one", 701, 5), look_up(&mut tables, "two", 702, 6));
    let handle = open(&mut tables, one);
    let copy = CopyFileRangeIn {
        fh_in: handle.into(),
        fh_out: handle.into(),
        nodeid_out: two.into(),
        ..CopyFileRangeIn::new_zeroed()
    };
    for opcode in [Opcode::CopyFileRange, Opcode::CopyFileRange64] {
        let sent = sent(&mut tables, opcode, one, copy.as_bytes());
        let request = Request::new(&sent).unwrap();
        let longs =
            [offset_of!(CopyFileRangeIn, fh_in), offset_of!(CopyFileRangeIn, fh_out)].map(|at| request.long(at));
        assert_eq!((request.nodeid(), longs), (NodeId(701), [33, 33]));
        assert_eq!(request.long(offset_of!(CopyFileRangeIn, nodeid_out)), 702);
    }
    let link = [LinkIn { oldnodeid: two.into() }.as_bytes(), b"new\0"].concat();
    assert_eq!(Request::new(&sent(&mut tables, Opcode::Link, 1, &link)).unwrap().long(0), 702);
    let rename = Rename2In { newdir: two.into(), flags: 0.into(), padding: 0.into() };
    for opcode in [Opcode::Rename, Opcode::Rename2] {
        let sent = sent(&mut tables, opcode, 1, &[rename.as_bytes(), b"a\0b\0"].concat());
        assert_eq!(Request::new(&sent).unwrap().long(offset_of!(Rename2In, newdir)), 702);
    }
    let mut setattr = SetattrIn { valid: SetattrValid::FH.bits().into(), fh: handle.into(), ..SetattrIn::new_zeroed() };
    let fh = |sent: &[u8]| Request::new(sent).unwrap().long(offset_of!(SetattrIn, fh));
    assert_eq!(fh(&sent(&mut tables, Opcode::Setattr, one, setattr.as_bytes())), 33);
    setattr.valid = 0.into();
    assert_eq!(fh(&sent(&mut tables, Opcode::Setattr, one, setattr.as_bytes())), handle.0);
}

#[test]
fn an_operation_that_nobody_knows_does_not_reach_the_daemon() {
    let header = InHeader { opcode: 5000.into(), nodeid: 1.into(), ..InHeader::new_zeroed() };
    let verdict = Tables::default().renumber(&mut [header.as_bytes(), &[0; 64]].concat());
    assert_eq!(verdict, RenumberVerdict::Answer(Err(rustix::io::Errno::NOSYS)));
}

#[test]
fn every_number_of_a_reply_is_the_kernels() {
    let mut tables = Tables::default();
    let made = body(answered(&mut tables, Opcode::Tmpfile, &[0; 24], &with_open(entry(703, 7))));
    let (made, out) = EntryOut::read_from_prefix(&made).unwrap();
    assert_eq!(tables.inodes.daemon_of(made.nodeid.into()), Ok(DaemonNode(703)));
    let handle = Handle(OpenOut::read_from_bytes(out).unwrap().fh.get());
    assert_eq!(tables.handles.known(handle).unwrap().handle.0, 44);
    // The two that are always there keep their places and have no numbers; a file without one is not counted.
    let list = [plus(entry(1, 1), b"."), plus(entry(9, 1), b".."), plus(entry(704, 8), b"x"), plus(entry(0, 9), b"y")];
    let list = body(answered(&mut tables, Opcode::Readdirplus, &[0; 40], &list.concat()));
    let nodeids: Vec<_> = list.chunks(160).map(|one| EntryOut::read_from_prefix(one).unwrap().0.nodeid.get()).collect();
    assert_eq!((nodeids[0], nodeids[1], nodeids[3]), (0, 0, 0));
    assert_eq!(tables.inodes.daemon_of(NodeId(nodeids[2])), Ok(DaemonNode(704)));
    assert_eq!((tables.inodes.count(), tables.handles.count()), (2, 1));
}

#[test]
fn what_the_kernel_refuses_and_never_forgets_is_not_entered() {
    let with = |change: fn(&mut EntryOut)| {
        let mut entry = entry(700, 5);
        change(&mut entry);
        entry
    };
    let bad = [
        with(|entry| entry.attr.size = (i64::MAX as u64 + 1).into()),
        with(|entry| entry.attr.mode = 0o644.into()),
        with(|entry| entry.attr.mode = 0o170_644.into()),
    ];
    let mut tables = Tables::default();
    for entry in bad {
        assert_eq!(answered(&mut tables, Opcode::Lookup, b"name\0", entry.as_bytes()), RenumberedReply::Broken);
    }
    let dir = with(|entry| entry.attr.mode = 0o040_755.into());
    let of_root = entry(1, 5);
    for entry in bad.into_iter().chain([dir, of_root, entry(0, 5)]) {
        for (opcode, args) in [(Opcode::Create, &b"0123456789abcdefname\0"[..]), (Opcode::Tmpfile, &[0; 24])] {
            assert_eq!(answered(&mut tables, opcode, args, &with_open(entry)), RenumberedReply::Broken, "{opcode:?}");
        }
        let mknod = [&0o100_644_u32.to_le_bytes()[..], &[0; 12], b"name\0"].concat();
        assert_eq!(answered(&mut tables, Opcode::Mknod, &mknod, entry.as_bytes()), RenumberedReply::Broken);
    }
    for opcode in [Opcode::Mkdir, Opcode::Symlink] {
        let answer = answered(&mut tables, opcode, b"01234567name\0to\0", entry(700, 5).as_bytes());
        assert_eq!(answer, RenumberedReply::Broken, "{opcode:?}");
    }
    // Of a list, nothing of the whole.
    let good = plus(entry(700, 5), b"good");
    let unpadded = plus(entry(701, 6), b"name")[..size_of::<DirentPlus>() + 4].to_vec();
    let bad = [plus(entry(701, 6), b"a/b"), plus(entry(701, 6), &[b'x'; 1025]), plus(entry(701, 6), b""), unpadded];
    for bad in bad {
        let answer = answered(&mut tables, Opcode::Readdirplus, &[0; 40], &[&good[..], &bad].concat());
        assert_eq!(answer, RenumberedReply::Broken);
    }
    assert_eq!((tables.inodes.count(), tables.handles.count()), (0, 0));
}

#[test]
fn a_listing_with_names_of_more_than_255_bytes_reaches_the_kernel() {
    for name_len in [256, 1024] {
        let mut tables = Tables::default();
        let list = [plus(entry(700, 5), b"short"), plus(entry(701, 6), &vec![b'x'; name_len])].concat();
        let list = body(answered(&mut tables, Opcode::Readdirplus, &[0; 40], &list));
        let long = EntryOut::read_from_prefix(&list[160..]).unwrap().0;
        assert_eq!(tables.inodes.daemon_of(long.nodeid.into()), Ok(DaemonNode(701)), "{name_len}");
    }
}

#[test]
fn what_the_kernel_did_not_take_is_dropped_again() {
    let mut tables = Tables::default();
    let forgotten = |daemon| Forgotten { daemon: DaemonNode(daemon), count: 1 };
    let list = [plus(entry(9, 1), b"."), plus(entry(700, 5), b"a"), plus(entry(701, 6), b"b")].concat();
    for (opcode, args, reply, expected) in [
        (Opcode::Lookup, &b"name\0"[..], entry(700, 5).as_bytes().to_vec(), vec![forgotten(700)]),
        (Opcode::Create, b"0123456789abcdefname\0", with_open(entry(700, 5)), vec![forgotten(700)]),
        (Opcode::Tmpfile, &[0; 24], with_open(entry(700, 5)), vec![forgotten(700)]),
        (Opcode::Readdirplus, &[0; 40], list, vec![forgotten(700), forgotten(701)]),
        (Opcode::Opendir, &[0; 8], OpenOut::new_zeroed().as_bytes().to_vec(), vec![]),
    ] {
        let body = body(answered(&mut tables, opcode, args, &reply));
        let untaken = tables.untaken(&Request::new(&message(opcode, 1, args)).unwrap(), &body);
        assert_eq!(untaken, expected, "{opcode:?}");
        assert_eq!((tables.inodes.count(), tables.handles.count()), (0, 0), "{opcode:?}");
    }
}

#[test]
fn only_what_may_be_done_twice_is_sent_again() {
    let is_sent = |opcode: Opcode, args: &[u8]| Request::new(&message(opcode, 2, args)).unwrap().is_repeatable();
    let word_at = |offset: usize, word: u32| {
        let mut args = vec![0; 64];
        args[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
        args
    };
    let never = [
        Opcode::Mknod,
        Opcode::Mkdir,
        Opcode::Symlink,
        Opcode::Link,
        Opcode::Unlink,
        Opcode::Rmdir,
        Opcode::Rename,
        Opcode::Rename2,
        Opcode::CopyFileRange,
        Opcode::CopyFileRange64,
        Opcode::Removexattr,
        Opcode::Ioctl,
    ];
    assert!(never.into_iter().all(|opcode| !is_sent(opcode, &[0; 64])));
    let always =
        [Opcode::Lookup, Opcode::Getattr, Opcode::Setattr, Opcode::Read, Opcode::Open, Opcode::Fsync, Opcode::Setlkw];
    assert!(always.into_iter().all(|opcode| is_sent(opcode, &[0; 64])));
    // WRITE: `write_flags` is at 20, `flags` at 32. From the kernel's cache the offset is exact whatever the flags of
    // the file.
    let append = word_at(32, libc::O_APPEND as u32);
    let mut cached = append.clone();
    cached[20] = 1;
    assert_eq!([&vec![0; 64], &append, &cached].map(|args| is_sent(Opcode::Write, args)), [true, false, true]);
    for (opcode, offset, bits) in [
        (Opcode::Fallocate, 24, libc::FALLOC_FL_COLLAPSE_RANGE as u32),
        (Opcode::Fallocate, 24, libc::FALLOC_FL_INSERT_RANGE as u32),
        (Opcode::Setxattr, 4, libc::XATTR_CREATE as u32),
        (Opcode::Setxattr, 4, libc::XATTR_REPLACE as u32),
        (Opcode::Create, 0, libc::O_EXCL as u32),
    ] {
        assert!(is_sent(opcode, &[0; 64]) && !is_sent(opcode, &word_at(offset, bits)), "{opcode:?} {bits}");
    }
}

/// Replies that are right, with a few bytes that are not.
fn replies() -> impl Strategy<Value = (Opcode, Vec<u8>, Vec<u8>)> {
    let right = prop_oneof![
        Just((Opcode::Lookup, b"name\0".to_vec(), entry(700, 5).as_bytes().to_vec())),
        Just((Opcode::Create, b"0123456789abcdefname\0".to_vec(), with_open(entry(700, 5)))),
        Just((Opcode::Tmpfile, vec![0; 24], with_open(entry(700, 5)))),
        Just((Opcode::Opendir, vec![0; 8], OpenOut::new_zeroed().as_bytes().to_vec())),
        Just((Opcode::Readdirplus, vec![0; 40], [plus(entry(700, 5), b"a"), plus(entry(701, 6), b"bcd")].concat())),
        Just((Opcode::Rename2, [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], b"a\0b\0"].concat(), vec![])),
        (0..60u32, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(opcode, bytes)| (
            Opcode::from_u32(opcode).unwrap_or(Opcode::Link),
            bytes.clone(),
            bytes
        )),
    ];
    let wrong = || prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let spoil = |mut bytes: Vec<u8>, wrong: Vec<(prop::sample::Index, u8)>| {
        if !bytes.is_empty() {
            wrong.into_iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = byte);
        }
        bytes
    };
    (right, wrong(), wrong(), 0..40_usize).prop_map(move |((opcode, args, body), in_args, in_body, cut)| {
        let mut body = spoil(body, in_body);
        // Often whole.
        body.truncate(body.len() - cut.saturating_sub(30).min(body.len()));
        (opcode, spoil(args, in_args), body)
    })
}

proptest! {
    /// What is refused enters nothing, and what is taken and dropped again leaves nothing.
    #[test]
    fn no_bytes_of_either_side_make_it_panic_or_keep_what_nobody_forgets((opcode, args, body) in replies()) {
        let mut tables = Tables::default();
        let kept = message(opcode, 1, &args);
        let request = Request::new(&kept).unwrap();
        request.is_repeatable();
        tables.renumber(&mut kept.clone());
        tables.forgotten(&kept);
        if let RenumberedReply::Body(body) = tables.answered(&request, body) {
            tables.untaken(&request, &body);
        }
        prop_assert_eq!((tables.inodes.count(), tables.handles.count()), (0, 0));
    }
}
