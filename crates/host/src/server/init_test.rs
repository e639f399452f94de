//! INIT: versions, features and lengths of old and new drivers.

use transom_wire::{
    Opcode,
    ops::{
        init::{InitFlags, InitIn, InitOut},
        statfs::StatfsOut,
    },
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    recorder_test::{Recorder, ask, hand_in, message_of},
    *,
};

fn server() -> Server<Recorder> {
    Server::new(Recorder { flags: InitFlags::all(), ..Recorder::default() })
}

fn offer(major: u32, minor: u32, flags: u64) -> InitIn {
    let mut arg = InitIn::new_zeroed();
    (arg.major, arg.minor, arg.max_readahead) = (major.into(), minor.into(), 99.into());
    (arg.flags, arg.flags2) = ((flags as u32).into(), ((flags >> 32) as u32).into());
    arg
}

fn begin(server: &Server<Recorder>, arg: &[u8]) -> Result<InitOut, Errno> {
    let (done, reply) = hand_in(server, message_of(0, Opcode::Init, arg), 80);
    done.result.map(|()| InitOut::read_from_bytes(&reply[16..]).unwrap())
}

fn is_begun(server: &Server<Recorder>) -> bool {
    ask(server, Opcode::Statfs, &[]) != Err(Errno::NOTCONN)
}

#[test]
fn the_older_of_both_minor_versions_is_spoken() {
    for (theirs, ours) in [(27, 27), (31, 31), (44, 44), (45, 45), (46, 45), (u32::MAX, 45)] {
        let server = server();
        let out = begin(&server, offer(7, theirs, 0).as_bytes()).unwrap();
        assert_eq!((out.major.get(), out.minor.get()), (7, ours));
        assert_eq!(server.file_system().seen(), [format!("init {ours} 0x0 99")]);
        assert!(is_begun(&server));
    }
}

#[test]
fn a_version_that_is_too_old_is_refused_and_a_newer_one_is_told_ours() {
    for (major, minor) in [(7, 26), (7, 0), (6, 45), (0, 0)] {
        let server = server();
        assert_eq!(begin(&server, offer(major, minor, 0).as_bytes()).err(), Some(Errno::PROTO), "{major}.{minor}");
        assert!(!is_begun(&server) && server.file_system().seen().is_empty());
    }
    let server = server();
    let out = begin(&server, offer(8, 0, u64::MAX).as_bytes()).unwrap();
    assert_eq!((out.major.get(), out.minor.get(), out.flags.get()), (7, 45, 0));
    assert!(!is_begun(&server), "the driver sends INIT again");
}

#[test]
fn arguments_from_before_minor_36_are_enough_and_shorter_ones_are_not() {
    let arg = offer(7, 31, InitFlags::INIT_EXT.bits() | InitFlags::ASYNC_READ.bits());
    assert_eq!(begin(&server(), &arg.as_bytes()[..15]).err(), Some(Errno::INVAL));
    for len in [16, 17, 64] {
        let out = begin(&server(), &arg.as_bytes()[..len]).unwrap();
        assert_eq!(u64::from(out.flags.get()), (InitFlags::INIT_EXT | InitFlags::ASYNC_READ).bits());
    }
    // A newer driver may send more than is known here.
    assert!(begin(&server(), &[arg.as_bytes(), &[7; 100]].concat()).is_ok());
}

#[test]
fn features_are_on_if_both_have_them_in_either_half() {
    let server = Server::new(Recorder {
        flags: InitFlags::ASYNC_READ | InitFlags::SUBMOUNTS | InitFlags::INIT_EXT | InitFlags::SECURITY_CTX,
        ..Recorder::default()
    });
    let offered =
        InitFlags::ASYNC_READ | InitFlags::POSIX_LOCKS | InitFlags::SECURITY_CTX | InitFlags::CREATE_SUPP_GROUP;
    // Without INIT_EXT the upper half is no flags.
    let out = begin(&server, offer(7, 45, offered.bits()).as_bytes()).unwrap();
    assert_eq!((out.flags.get(), out.flags2.get()), (1, 0));
    assert_eq!(server.file_system().seen(), ["init 45 0x3 99"]);
    let offered = offered | InitFlags::INIT_EXT;
    let out = begin(&server, offer(7, 45, offered.bits()).as_bytes()).unwrap();
    assert_eq!((out.flags.get(), out.flags2.get()), (1 | 1 << 30, 1));
    assert_eq!(server.file_system().seen(), [format!("init 45 {:#x} 99", offered.bits())]);
}

#[test]
fn the_file_systems_numbers_are_in_the_reply() {
    let out = begin(&server(), offer(7, 45, 0).as_bytes()).unwrap();
    assert_eq!((out.max_readahead.get(), out.max_background.get(), out.congestion_threshold.get()), (11, 12, 13));
    assert_eq!(
        (out.max_write.get(), out.time_gran.get(), out.max_pages.get(), out.map_alignment.get()),
        (14, 15, 16, 17)
    );
}

#[test]
fn own_changes_are_meant_only_with_the_magic() {
    let flags = (InitFlags::OWN_CHANGES | InitFlags::INIT_EXT).bits();
    let mut arg = offer(7, 45, flags);
    let out = begin(&server(), arg.as_bytes()).unwrap();
    assert!(out.flags2.get() == 0 && !out.has_magic(), "of a newer version of FUSE");
    arg.set_magic();
    let out = begin(&server(), arg.as_bytes()).unwrap();
    assert!(out.flags2.get() == 1 << 31 && out.has_magic());
    let without = Server::new(Recorder::default());
    let out = begin(&without, arg.as_bytes()).unwrap();
    assert!(out.flags2.get() == 0 && !out.has_magic());
}

#[test]
fn a_request_is_refused_without_being_read() {
    let server = server();
    let refuse = |mut request: Vec<u8>, room: usize| {
        let mut reply = vec![0xee; room];
        let (readable, writable) = ([GuestSlice::from(&mut *request)], [GuestSlice::from(&mut *reply)]);
        let done = server.refuse(&readable, &writable, Errno::BUSY);
        let unique = server.unique_of(&readable);
        reply.truncate(done.used_len_bytes as usize);
        (done, reply, unique)
    };
    let (done, reply, unique) = refuse(message_of(0, Opcode::Statfs, &[]), size_of::<StatfsOut>() + 16);
    let expected = [16, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 98, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!((reply.as_slice(), unique, done.result), (&expected[..], 98, Err(Errno::BUSY)));
    assert_eq!((done.opcode, done.data_len_bytes), (Some(Opcode::Statfs as u32), 0));
    let (done, _, _) = refuse(message_of(0, Opcode::Statfs, &[]), 15);
    assert_eq!(done.used_len_bytes, 0, "there is no room for a header");
    let (done, _, _) = refuse(message_of(0, Opcode::Forget, &[0; 8]), 80);
    assert_eq!((done.used_len_bytes, done.result), (0, Err(Errno::BUSY)), "a forget is not answered");
    let (done, _, unique) = refuse(vec![1; 39], 80);
    assert_eq!((done.used_len_bytes, done.opcode, done.result, unique), (0, None, Err(Errno::PROTO), 0));
    assert!(server.file_system().seen().is_empty());
}
