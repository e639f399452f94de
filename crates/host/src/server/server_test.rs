//! Tests of the server itself, with a file system of a single file.

use transom_wire::operation::{Forget, Getattr, Lookup, Read, Write};
use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    header::{InHeader, OutHeader},
    ops::{
        init::{InitIn, InitOut},
        read::ReadIn,
        write::{WriteIn, WriteOut},
    },
};
use vm_memory::VolatileSlice;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;

/// Knows the name "hello" in the root. READ returns the offset's low byte, and waits at offset 7.
struct OneFile;

impl FileSystem for OneFile {
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        Ok(InitAnswer {
            flags: offer.flags,
            max_readahead: 0,
            max_background: 1,
            congestion_threshold: 1,
            max_write: 4096,
            time_gran: 1,
            max_pages: 1,
            map_alignment: 0,
        })
    }

    fn destroy(&self, _: End) {}
}

impl Serve<Lookup> for OneFile {
    fn serve(&self, call: Call<'_, Lookup>) -> Result<EntryOut, Errno> {
        let name = call.name;
        if name.as_bytes() != b"hello" {
            return Err(Errno::NOENT);
        }
        Ok(EntryOut { nodeid: 2.into(), ..EntryOut::default() })
    }
}

impl Serve<Forget> for OneFile {
    fn serve(&self, _: Call<'_, Forget>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Serve<Getattr> for OneFile {
    fn serve(&self, _: Call<'_, Getattr>) -> Result<AttrOut, Errno> {
        Ok(AttrOut::default())
    }
}

impl Serve<Read> for OneFile {
    fn serve(&self, call: Call<'_, Read>) -> Result<usize, Errno> {
        let (ctx, arg, data) = (&call.ctx, &call.arg, call.out);
        if arg.offset.get() == 7 && ctx.blocking == BlockingMode::MustNotBlock {
            return Err(Errno::AGAIN);
        }
        Ok(data.iter().map(|slice| slice.copy_from(&vec![arg.offset.get() as u8; slice.len()])).map(|()| 1).sum())
    }
}

impl Serve<Write> for OneFile {
    fn serve(&self, call: Call<'_, Write>) -> Result<WriteOut, Errno> {
        let data = call.rest;
        Ok(WriteOut::new(data.iter().map(|slice| slice.len() as u32).sum()))
    }
}

crate::unserved!(OneFile, except Lookup Forget Getattr Read Write);

fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let mut header = InHeader::new_zeroed();
    header.len = ((40 + body.len()) as u32).into();
    header.opcode = opcode.into();
    header.unique = 99.into();
    header.nodeid = 1.into();
    [header.as_bytes(), body].concat()
}

/// Hands in `request`, cut into pieces of `piece` bytes, with `room` bytes for the reply; returns outcome and reply.
fn call(
    server: &Server<impl FileSystem>,
    mut request: Vec<u8>,
    piece: usize,
    room: usize,
    blocking: BlockingMode,
) -> (ServeOutcome, Vec<u8>) {
    let mut answer = vec![0xee; room];
    let outcome = {
        let readable: Vec<_> = request.chunks_mut(piece).map(VolatileSlice::from).collect();
        let writable: Vec<_> = answer.chunks_mut(piece).map(VolatileSlice::from).collect();
        server.handle(&readable, &writable, &mut Scratch::default(), blocking)
    };
    (outcome, answer)
}

fn begun() -> Server<OneFile> {
    let server = Server::new(OneFile);
    let mut init = InitIn::new_zeroed();
    init.major = 7.into();
    init.minor = 38.into();
    let (outcome, answer) =
        call(&server, message(Opcode::Init as u32, init.as_bytes()), 17, 80, BlockingMode::MustNotBlock);
    assert!(matches!(outcome, ServeOutcome::Done(Done { used_len_bytes: 80, result: Ok(()), .. })), "{outcome:?}");
    let out = InitOut::read_from_bytes(&answer[16..]).unwrap();
    assert_eq!((out.major.get(), out.minor.get(), out.max_write.get()), (7, 38, 4096));
    server
}

fn errno_of(outcome: ServeOutcome, answer: &[u8]) -> i32 {
    let ServeOutcome::Done(done) = outcome else { panic!("{outcome:?}") };
    assert_eq!(done.used_len_bytes, 16);
    let header = OutHeader::read_from_bytes(&answer[..16]).unwrap();
    assert_eq!((header.len.get(), header.unique.get()), (16, 99));
    -header.error.get()
}

#[test]
fn a_name_is_found_whatever_the_borders_of_the_buffers() {
    let server = begun();
    for piece in [1, 3, 39, 40, 41, 4096] {
        let (outcome, answer) = call(&server, message(1, b"hello\0"), piece, 144, BlockingMode::MustNotBlock);
        assert!(matches!(outcome, ServeOutcome::Done(Done { used_len_bytes: 144, .. })), "piece {piece}: {outcome:?}");
        let entry = EntryOut::read_from_bytes(&answer[16..]).unwrap();
        assert_eq!(entry.nodeid.get(), 2);
    }
}

#[test]
fn bad_requests_are_answered_with_an_error() {
    let server = begun();
    let cases: [(&str, Vec<u8>, Errno); 7] = [
        ("an unknown operation", message(7, &[]), Errno::NOSYS),
        ("a name without NUL", message(1, b"hello"), Errno::INVAL),
        ("a name with a slash", message(1, b"a/b\0"), Errno::INVAL),
        ("a name of 256 bytes", message(1, &[[b'x'; 256].as_slice(), b"\0"].concat()), Errno::NAMETOOLONG),
        ("arguments too short", message(15, &[0; 39]), Errno::INVAL),
        (
            "a header longer than the buffers",
            {
                let mut m = message(1, b"hello\0");
                m[0] = 47;
                m
            },
            Errno::INVAL,
        ),
        (
            "a header shorter than itself",
            {
                let mut m = message(1, b"hello\0");
                m[0] = 39;
                m
            },
            Errno::INVAL,
        ),
    ];
    for (what, request, errno) in cases {
        let (outcome, answer) = call(&server, request, 64, 144, BlockingMode::MustNotBlock);
        assert_eq!(errno_of(outcome, &answer), errno.raw_os_error(), "{what}");
    }
}

#[test]
fn a_request_without_header_or_room_is_finished_with_nothing() {
    let server = begun();
    for (request, room) in [(vec![0; 39], 144), (message(1, b"hello\0"), 15), (vec![], 0)] {
        let (outcome, answer) = call(&server, request, 64, room, BlockingMode::MustNotBlock);
        assert!(matches!(outcome, ServeOutcome::Done(Done { used_len_bytes: 0, result: Err(_), .. })), "{outcome:?}");
        assert!(answer.iter().all(|&byte| byte == 0xee));
    }
}

#[test]
fn nothing_is_done_whose_answer_would_not_fit() {
    let server = begun();
    let mut arg = WriteIn::new_zeroed();
    arg.size = 4.into();
    let unlink = message(Opcode::Unlink as u32, b"hello\0");
    let write = message(Opcode::Write as u32, &[arg.as_bytes(), b"data"].concat());
    for (request, room) in [(unlink, 15), (write, 23)] {
        let (outcome, _) = call(&server, request, 64, room, BlockingMode::MustNotBlock);
        assert!(matches!(outcome, ServeOutcome::Done(Done { result: Err(Errno::INVAL), .. })), "{outcome:?}");
    }
}

#[test]
fn before_init_nothing_is_served() {
    let server = Server::new(OneFile);
    let (outcome, answer) = call(&server, message(1, b"hello\0"), 64, 144, BlockingMode::MustNotBlock);
    assert_eq!(errno_of(outcome, &answer), Errno::NOTCONN.raw_os_error());
}

#[test]
fn a_read_that_would_wait_is_deferred_and_then_served() {
    let server = begun();
    let mut arg = ReadIn::new_zeroed();
    arg.offset = 7.into();
    arg.size = 1.into();
    let request = message(15, arg.as_bytes());
    let (outcome, _) = call(&server, request.clone(), 64, 17, BlockingMode::MustNotBlock);
    assert_eq!(outcome, ServeOutcome::Defer(ExecutionTarget::Pool));
    let (outcome, answer) = call(&server, request, 64, 17, BlockingMode::MayBlock);
    assert!(matches!(outcome, ServeOutcome::Done(Done { used_len_bytes: 17, data_len_bytes: 1, .. })), "{outcome:?}");
    assert_eq!(answer[16], 7);
}

#[test]
fn a_write_larger_than_its_data_is_refused() {
    let server = begun();
    let mut arg = WriteIn::new_zeroed();
    arg.size = 5.into();
    let (outcome, answer) =
        call(&server, message(16, &[arg.as_bytes(), b"data"].concat()), 64, 24, BlockingMode::MustNotBlock);
    assert_eq!(errno_of(outcome, &answer), Errno::INVAL.raw_os_error());
    arg.size = 4.into();
    let (outcome, _) =
        call(&server, message(16, &[arg.as_bytes(), b"data"].concat()), 64, 24, BlockingMode::MustNotBlock);
    assert!(matches!(outcome, ServeOutcome::Done(Done { used_len_bytes: 24, data_len_bytes: 4, .. })), "{outcome:?}");
}
