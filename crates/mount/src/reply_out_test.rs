//! Replies in slots, and a socket in place of `/dev/fuse`.

use transom_wire::Opcode;
use zerocopy::IntoBytes as _;

use super::*;
use crate::testing::{answer, fuse_device, fuse_device_with_short_replies, queue, request, submit};

/// Returns whether a header with `len` and `error` is valid if the device says to have written `written_bytes`.
fn is_valid(len: u32, error: i32, written_bytes: usize) -> bool {
    let mut queue = queue();
    let slot = submit(&mut queue, &request(Opcode::Getattr, 2, 1, &[0; 16]), RequestKind::Forwarded);
    let buffer = queue.reply_buffer(slot, 56);
    let header = OutHeader { len: len.into(), error: error.into(), unique: 2.into() };
    buffer.memory.write(buffer.offset, header.as_bytes());
    read_header(buffer.memory, buffer.offset, written_bytes).is_some()
}

#[test]
fn a_reply_longer_than_what_was_written_or_shorter_than_its_header_is_invalid() {
    assert!(is_valid(16, 0, 16) && is_valid(24, 0, 24));
    for (len, written_bytes) in [(25, 24), (u32::MAX, 4096), (15, 24), (0, 24), (16, 15), (16, 0)] {
        assert!(!is_valid(len, 0, written_bytes), "{len} {written_bytes}");
    }
}

#[test]
fn an_error_that_no_system_call_returns_is_invalid() {
    assert!(is_valid(16, -2, 16) && is_valid(16, -ERRNO_MAX, 16));
    for error in [1, -512, i32::MIN, i32::MAX] {
        assert!(!is_valid(16, error, 16), "{error}");
    }
}

#[test]
fn a_reply_reaches_the_kernel_as_the_daemon_wrote_it() {
    let ((device, kernel), mut queue) = (fuse_device(), queue());
    let slot = submit(&mut queue, &request(Opcode::Getattr, 2, 1, &[0; 16]), RequestKind::Forwarded);
    let reply = Reply::read(&queue, answer(&queue, slot, 2, 0, b"attributes"));
    assert_eq!(reply.outcome(), Ok(()));
    let (header, body) = reply.message.unwrap();
    let replies = ReplyWriter::new(device);
    assert_eq!(replies.write(&header, body), Ok(true));
    let (header, body) = kernel.reply().unwrap();
    assert_eq!((header.unique.get(), header.error.get(), &body[..]), (2, 0, &b"attributes"[..]));
    assert!(kernel.reply().is_none());
}

#[test]
fn a_reply_to_another_request_is_invalid() {
    let mut queue = queue();
    let slot = submit(&mut queue, &request(Opcode::Getattr, 2, 1, &[0; 16]), RequestKind::Forwarded);
    let reply = Reply::read(&queue, answer(&queue, slot, 4, 0, &[]));
    assert!(reply.message.is_none());
    assert_eq!((reply.unique, reply.outcome()), (2, Err(Errno::IO)));
}

#[test]
fn an_error_of_the_daemon_is_the_outcome() {
    let mut queue = queue();
    let slot = submit(&mut queue, &request(Opcode::Getattr, 2, 1, &[0; 16]), RequestKind::Forwarded);
    let reply = Reply::read(&queue, answer(&queue, slot, 2, -2, &[]));
    assert!(reply.message.is_some());
    assert_eq!(reply.outcome(), Err(Errno::NOENT));
}

#[test]
fn a_reply_that_the_kernel_rejects_is_replaced_by_eio() {
    let ((device, kernel), mut queue) = (fuse_device_with_short_replies(), queue());
    let slot = submit(&mut queue, &request(Opcode::Readlink, 2, 1, &[]), RequestKind::Forwarded);
    let reply = Reply::read(&queue, answer(&queue, slot, 2, 0, &[0; 32 << 10]));
    let (header, body) = reply.message.unwrap();
    assert_eq!(ReplyWriter::new(device).write(&header, body), Ok(false));
    kernel.expect_error(2, Errno::IO);
}

#[test]
fn a_request_is_finished_with_success_or_an_errno() {
    let (device, kernel) = fuse_device();
    let replies = ReplyWriter::new(device);
    assert!(replies.finish(2, Ok(())).is_ok() && replies.finish(4, Err(Errno::TXTBSY)).is_ok());
    let (header, body) = kernel.reply().unwrap();
    assert_eq!((header.unique.get(), header.error.get(), body.len()), (2, 0, 0));
    kernel.expect_error(4, Errno::TXTBSY);
}
