//! The longest and shortest parts of requests that are served, and the first ones that are not.

use transom_wire::{
    Opcode,
    limits::{DATA_LEN_MAX, FORGET_COUNT_MAX, MESSAGE_LEN_MAX},
    ops::{
        forget::{BatchForgetIn, ForgetOne},
        init::InitFlags,
        read::ReadIn,
        removemapping::RemovemappingIn,
        xattr::{SetxattrIn, SetxattrInCompat},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    recorder_test::{ask, begun_with, hand_in, message_of},
    *,
};

fn text(len: usize) -> Vec<u8> {
    [vec![b'x'; len], vec![0]].concat()
}

#[test]
fn the_caller_is_the_one_in_the_header() {
    let server = begun_with(InitFlags::empty());
    assert_eq!(ask(&server, Opcode::Statfs, &[]), Ok(()));
    assert_eq!(server.file_system().seen(), ["statfs Unique(0x62) 5 6 7 NodeId(0x1)"]);
}

#[test]
fn a_target_has_1_to_4095_bytes() {
    let server = begun_with(InitFlags::empty());
    let with = |len| ask(&server, Opcode::Symlink, &[&text(255)[..], &text(len)].concat());
    assert_eq!([0, 1, 4095, 4096].map(with), [Err(Errno::NOENT), Ok(()), Ok(()), Err(Errno::NAMETOOLONG)]);
    assert_eq!(server.file_system().seen().len(), 2);
    assert_eq!(ask(&server, Opcode::Symlink, &[&text(256)[..], &text(1)].concat()), Err(Errno::NAMETOOLONG));
    assert_eq!(ask(&server, Opcode::Symlink, b"name\0target without its end"), Err(Errno::INVAL));
}

#[test]
fn a_name_is_one_component() {
    let server = begun_with(InitFlags::empty());
    let with = |name: &[u8]| ask(&server, Opcode::Lookup, &[name, b"\0"].concat());
    for name in [&b""[..], b".", b"..", b"a/b", b"/"] {
        assert_eq!(with(name), Err(Errno::INVAL), "{name:?}");
    }
    for name in [&b"..."[..], b"a", &[0xff; 255]] {
        assert_eq!(with(name), Err(Errno::NOENT), "{name:?}");
    }
    assert_eq!(with(&[b'x'; 256]), Err(Errno::NAMETOOLONG));
}

#[test]
fn an_attributes_name_has_1_to_255_bytes_and_its_value_up_to_64_kib() {
    let server = begun_with(InitFlags::SETXATTR_EXT);
    let with = |name: usize, size: usize, sent: usize| {
        let arg =
            SetxattrIn { size: (size as u32).into(), flags: 1.into(), setxattr_flags: 1.into(), padding: 0.into() };
        ask(&server, Opcode::Setxattr, &[arg.as_bytes(), &text(name), &vec![1; sent]].concat())
    };
    assert_eq!([0, 1, 255, 256].map(|name| with(name, 3, 3)), [Err(Errno::RANGE), Ok(()), Ok(()), Err(Errno::RANGE)]);
    assert_eq!(with(4, 65536, 65536), Ok(()));
    assert_eq!(with(4, 65537, 65537), Err(Errno::TOOBIG));
    assert_eq!(with(4, 4, 3), Err(Errno::INVAL), "the value is shorter than the arguments say");
    assert_eq!(with(4, 3, 4), Ok(()), "what follows it is not part of it");
    let seen = ["setxattr 1 3 (1, 1)", "setxattr 255 3 (1, 1)", "setxattr 4 65536 (1, 1)", "setxattr 4 3 (1, 1)"];
    assert_eq!(server.file_system().seen(), seen);
}

#[test]
fn without_its_extension_setxattr_has_eight_bytes_of_arguments() {
    let server = begun_with(InitFlags::empty());
    let arg = SetxattrInCompat { size: 3.into(), flags: 2.into() };
    assert_eq!(ask(&server, Opcode::Setxattr, &[arg.as_bytes(), &text(9), b"abc"].concat()), Ok(()));
    assert_eq!(server.file_system().seen(), ["setxattr 9 3 (2, 0)"]);
    assert_eq!(ask(&server, Opcode::Setxattr, &arg.as_bytes()[..7]), Err(Errno::INVAL));
}

#[test]
fn as_many_inodes_are_forgotten_as_the_message_has() {
    let server = begun_with(InitFlags::empty());
    let with = |count: u32, sent: usize| {
        let arg = BatchForgetIn { count: count.into(), dummy: 0.into() };
        let ones: Vec<_> = (0..sent as u64).map(|at| ForgetOne { nodeid: at.into(), nlookup: 9.into() }).collect();
        ask(&server, Opcode::BatchForget, &[arg.as_bytes(), ones.as_bytes()].concat()).unwrap();
        server.file_system().seen().remove(0)
    };
    assert_eq!(with(2, 2), "forget 2 Some((1, 9))");
    assert_eq!(with(1, 2), "forget 1 Some((0, 9))");
    assert_eq!(with(3, 2), "forget 2 Some((1, 9))");
    assert_eq!(with(u32::MAX, 0), "forget 0 None");
    // As many as a message of the greatest length has room for after its arguments.
    let most = FORGET_COUNT_MAX - 1;
    assert_eq!(with(u32::MAX, most), format!("forget {most} Some(({}, 9))", most - 1));
}

#[test]
fn a_list_that_is_shorter_than_its_count_unmaps_nothing() {
    let server = begun_with(InitFlags::empty());
    let with = |count: u32, bytes: usize| {
        let arg = RemovemappingIn { count: count.into() };
        ask(&server, Opcode::Removemapping, &[arg.as_bytes(), &vec![0; bytes]].concat())
    };
    assert_eq!((with(2, 32), with(2, 31), with(u32::MAX, 32)), (Ok(()), Err(Errno::INVAL), Err(Errno::INVAL)));
    assert_eq!(server.file_system().seen(), ["unmap 2"]);
}

#[test]
fn a_message_has_a_greatest_length() {
    let server = begun_with(InitFlags::empty());
    let with = |len: usize| ask(&server, Opcode::Lookup, &[&b"a\0"[..], &vec![0; len - 2]].concat());
    assert_eq!(with(MESSAGE_LEN_MAX), Err(Errno::NOENT));
    assert_eq!(with(MESSAGE_LEN_MAX + 1), Err(Errno::TOOBIG));
}

#[test]
fn a_message_ends_where_its_header_says() {
    let server = begun_with(InitFlags::empty());
    let with = |len: u32| {
        let mut request = message_of(6, Opcode::Lookup, b"name\0");
        request[..4].copy_from_slice(&len.to_le_bytes());
        hand_in(&server, request, 144).0.result
    };
    assert_eq!((with(45), with(44)), (Err(Errno::NOENT), Err(Errno::INVAL)), "the name has no end");
    assert_eq!((with(46), with(39), with(40)), (Err(Errno::INVAL), Err(Errno::INVAL), Err(Errno::INVAL)));
    let mut longer = message_of(6, Opcode::Lookup, b"name\0");
    longer.extend([1; 9]);
    assert_eq!(hand_in(&server, longer, 144).0.result, Err(Errno::NOENT), "what the buffers hold past it is ignored");
}

#[test]
fn entries_fill_what_was_asked_for_what_there_is_room_for_and_a_mebibyte() {
    let server = begun_with(InitFlags::empty());
    let with = |size: u32, room: usize| {
        let mut arg = ReadIn::new_zeroed();
        arg.size = size.into();
        let (done, reply) = hand_in(&server, message_of(6, Opcode::Readdir, arg.as_bytes()), 16 + room);
        assert_eq!((done.result, reply.len()), (Ok(()), done.used_len_bytes as usize));
        (server.file_system().seen().remove(0), reply.len() - 16)
    };
    assert_eq!(with(32, 4096), ("readdir 32 1".into(), 32));
    assert_eq!(with(63, 4096), ("readdir 63 1".into(), 32));
    assert_eq!(with(64, 4096), ("readdir 64 2".into(), 64));
    assert_eq!(with(4096, 95), ("readdir 95 2".into(), 64));
    assert_eq!(with(31, 4096), ("readdir 31 0".into(), 0));
    let most = DATA_LEN_MAX as usize;
    assert_eq!(with(u32::MAX, 2 * most), (format!("readdir {most} {}", most / 32), most));
}
