//! One message to a server, in pieces, and the invariants of every reply.

use transom_host::{
    Errno,
    server::{BlockingMode, Done, ExecutionTarget, FileSystem, GuestSlice, Scratch, ServeOutcome, Server},
};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
};
use zerocopy::FromBytes;

use super::filled::is_filled;

/// What the reply's buffers hold where nothing was written.
const UNTOUCHED: u8 = 0xee;
/// As many buffers as a chain of descriptors can have: a queue has no more.
const PIECES_MAX: usize = 1024;

/// Hands `message` in, cut into pieces of `piece` bytes, with `room` bytes for the answer; returns what was answered.
/// Where there would be too many pieces, they are longer.
///
/// A request that wants to wait for another lock owner is refused, since there is nobody to wait for.
pub(super) fn answer<F: FileSystem>(server: &Server<F>, message: &[u8], piece: usize, room: usize) -> Vec<u8> {
    let (mut sent, mut writable) = (message.to_vec(), vec![UNTOUCHED; room]);
    let done = {
        let readable = pieces(&mut sent, piece);
        let writable = pieces(&mut writable, piece);
        let handle = |blocking| server.handle(&readable, &writable, &mut Scratch::default(), blocking);
        match handle(BlockingMode::MustNotBlock) {
            ServeOutcome::Done(done) => done,
            ServeOutcome::Defer(ExecutionTarget::OwnThread(_)) => server.refuse(&readable, &writable, Errno::NOLCK),
            ServeOutcome::Defer(ExecutionTarget::Pool) => match handle(BlockingMode::MayBlock) {
                ServeOutcome::Done(done) => done,
                ServeOutcome::Defer(target) => panic!("deferred to {target:?} though it may block"),
            },
        }
    };
    assert_eq!(sent, message, "what the device only reads is as it was");
    check(message, &writable, &done);
    writable.truncate(done.used_len_bytes as usize);
    writable
}

fn pieces(bytes: &mut [u8], len: usize) -> Vec<GuestSlice<'_>> {
    let len = len.max(bytes.len().div_ceil(PIECES_MAX));
    bytes.chunks_mut(len).map(GuestSlice::from).collect()
}

fn check(message: &[u8], writable: &[u8], done: &Done) {
    let used_len = done.used_len_bytes as usize;
    let header = InHeader::read_from_prefix(message).ok().map(|(header, _)| header);
    let is_silent = header.is_none_or(|header| {
        Opcode::from_u32(header.opcode.get()).is_some_and(Opcode::has_no_reply)
            || writable.len() < size_of::<OutHeader>()
    });
    assert!(used_len <= writable.len(), "{used_len} bytes used of {}", writable.len());
    assert_eq!(used_len == 0, is_silent, "{used_len} bytes used: {header:?}");
    assert!(is_filled::<UNTOUCHED>(&writable[used_len..]), "bytes behind the answer were written");
    let (Some(request), false) = (header, is_silent) else { return };
    let (reply, payload) = OutHeader::read_from_prefix(writable).expect("the room was checked");
    assert_eq!(reply.len.get() as usize, used_len);
    assert_eq!(reply.unique, request.unique);
    let error = done.result.err().map_or(0, |errno| -errno.raw_os_error());
    assert_eq!(reply.error.get(), error);
    assert!((-4095..=0).contains(&error), "error {error}");
    assert!(error == 0 || used_len == size_of::<OutHeader>(), "an error with {} bytes", payload.len());
}
