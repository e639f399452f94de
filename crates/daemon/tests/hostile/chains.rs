//! Chains whose buffers do not fit what they carry.

use transom_frontend::{
    fuse::{Exchange, Session, check_reply},
    queue::{Completion, Queue},
};
use transom_wire::{Opcode, attr::EntryOut, header::InHeader};
use zerocopy::IntoBytes;

use crate::host::{Daemon, use_it};

const OUT_HEADER_LEN: usize = 16;

/// Sends pieces as they are, with rooms as they are.
fn send(session: &mut Session<Queue>, readable: &[&[u8]], writable: &[usize]) -> Completion {
    let token = session.exchange.submit(readable, writable).unwrap();
    session.exchange.wait(token).unwrap()
}

fn message(session: &mut Session<Queue>, opcode: Opcode, nodeid: u64, body: &[u8]) -> (Vec<u8>, u64) {
    let header = session.header(opcode as u32, nodeid, body.len());
    ([header.as_bytes(), body].concat(), header.unique.get())
}

/// The errno of an answer, or 0 for success.
fn errno(completion: &Completion, unique: u64) -> i32 {
    match check_reply(completion, unique) {
        Ok(_) => 0,
        Err(failure) => failure.errno().unwrap_or_else(|| panic!("{failure}")).raw_os_error(),
    }
}

#[test]
fn a_request_may_be_cut_anywhere_and_so_may_its_room() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    session.mkdir(1, b"directory", 0o755).unwrap();
    let room = OUT_HEADER_LEN + size_of::<EntryOut>();
    for cut in 0..=50 {
        let (message, unique) = message(&mut session, Opcode::Lookup, 1, b"directory\0");
        let (first, second) = message.split_at(cut);
        let completion = send(&mut session, &[first, second], &[cut, room - cut]);
        assert_eq!(errno(&completion, unique), 0, "cut at {cut}");
    }
    let (message, unique) = message(&mut session, Opcode::Lookup, 1, b"directory\0");
    let bytes: Vec<&[u8]> = message.chunks(1).collect();
    let completion = send(&mut session, &bytes, &vec![1; room]);
    assert_eq!(errno(&completion, unique), 0, "a descriptor for each byte");
    drop((front_end, session));
    daemon.is_healthy();
}

#[test]
fn without_a_whole_header_there_is_no_answer() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let (message, _) = message(&mut session, Opcode::Getattr, 1, &[0; 16]);
    for len in 0..size_of::<InHeader>() {
        for room in [0, 15, 16, 120] {
            assert_eq!(send(&mut session, &[&message[..len]], &[room]).used_len, 0, "{len} bytes, room {room}");
        }
    }
    assert_eq!(send(&mut session, &[], &[120]).used_len, 0, "nothing readable");
    use_it(&mut session);
}

#[test]
fn without_room_for_its_answer_nothing_is_done() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let full = OUT_HEADER_LEN + size_of::<EntryOut>();
    for room in (0..full).rev() {
        let (message, unique) = message(&mut session, Opcode::Mkdir, 1, b"\xed\x01\0\0\0\0\0\0directory\0");
        let completion = send(&mut session, &[&message], &[room]);
        match room {
            0..OUT_HEADER_LEN => assert_eq!(completion.used_len, 0, "room {room}"),
            _ => assert_eq!(errno(&completion, unique), libc::EINVAL, "room {room}"),
        }
    }
    assert_eq!(daemon.held().inodes, 1, "no directory was made");
    session.mkdir(1, b"directory", 0o755).unwrap();
    for room in 0..OUT_HEADER_LEN {
        let (message, _) = message(&mut session, Opcode::Rmdir, 1, b"directory\0");
        assert_eq!(send(&mut session, &[&message], &[room]).used_len, 0);
    }
    session.rmdir(1, b"directory").unwrap();
    use_it(&mut session);
}

#[test]
fn what_lies_behind_the_answer_is_left_alone() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let (message, unique) = message(&mut session, Opcode::Lookup, 1, b"absent\0");
    let token = session.exchange.submit(&[&message], &[OUT_HEADER_LEN + 4096]).unwrap();
    let completion = session.exchange.wait(token).unwrap();
    assert_eq!(errno(&completion, unique), libc::ENOENT);
    assert_eq!(completion.used_len as usize, OUT_HEADER_LEN);
}

#[test]
fn a_directory_is_read_with_any_room_and_never_in_halves() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    for n in 0..20usize {
        let name = vec![b'n'; n * 10 + 1];
        session.mkdir(1, &name, 0o755).unwrap();
    }
    for is_plus in [false, true] {
        let header = if is_plus { 152 } else { 24 };
        let fh = session.opendir(1).unwrap();
        for size in 0..header + 300 {
            // Each entry as it comes is whole, or the parser of the test's client refuses it.
            let entries = session.readdir_once(1, fh, 0, size as u32, is_plus).unwrap();
            assert_eq!(entries.is_empty(), size < header + 8, "room {size}");
        }
        session.releasedir(1, fh).unwrap();
        let names = session.readdir(1, header as u32 + 200, is_plus).unwrap().len();
        assert_eq!(names, 22);
    }
}

#[test]
fn a_header_that_lies_about_the_length_is_refused() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    session.mkdir(1, b"directory", 0o755).unwrap();
    for len in (0..=60).chain([0x7fff_ffff, 0x8000_0000, u32::MAX - 39, u32::MAX]) {
        let (mut message, unique) = message(&mut session, Opcode::Lookup, 1, b"directory\0");
        message[..4].copy_from_slice(&len.to_le_bytes());
        let completion = send(&mut session, &[&message], &[OUT_HEADER_LEN + size_of::<EntryOut>()]);
        let expected = if len == 50 { 0 } else { libc::EINVAL };
        assert_eq!(errno(&completion, unique), expected, "length {len}");
    }
    use_it(&mut session);
}

#[test]
fn a_message_without_end_is_refused() {
    let daemon = Daemon::start();
    let (_front_end, mut session) = daemon.session();
    let (message, unique) = message(&mut session, Opcode::Lookup, 1, &vec![b'x'; 1 << 20]);
    let completion = send(&mut session, &[&message], &[OUT_HEADER_LEN + size_of::<EntryOut>()]);
    assert_eq!(errno(&completion, unique), libc::E2BIG);
    session.exchange.exchange(&[&message], 0).unwrap();
    use_it(&mut session);
}
