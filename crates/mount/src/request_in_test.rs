//! [`RequestReader`] with a socket in place of `/dev/fuse`.

use transom_wire::{NodeId, ops::forget::ForgetIn};
use zerocopy::IntoBytes as _;

use super::*;
use crate::testing::{fuse_device, queue, request};

#[test]
fn a_request_lies_in_the_slot_and_its_header_is_returned() {
    let (device, kernel) = fuse_device();
    let (reader, mut queue) = (RequestReader::new(device), queue());
    let slot = queue.take_slot().unwrap();
    let message = request(Opcode::Lookup, 6, 9, b"name\0");
    kernel.send(&message);
    let Ok(Incoming::Request { header, opcode, len_bytes }) = reader.read(&queue, slot) else { panic!() };
    assert_eq!((header.unique.get(), NodeId::from(header.nodeid), opcode), (6, NodeId(9), Some(Opcode::Lookup)));
    assert_eq!(queue.copy_request(slot, &header, len_bytes), message);
    assert!(matches!(reader.read(&queue, slot), Ok(Incoming::Empty)));
}

#[test]
fn an_operation_that_is_unknown_here_is_a_request_like_any_other() {
    let (device, kernel) = fuse_device();
    let (reader, queue) = (RequestReader::new(device), queue());
    let mut message = request(Opcode::Getattr, 6, 1, &[]);
    message[4..8].copy_from_slice(&4_000_u32.to_le_bytes());
    kernel.send(&message);
    let read = reader.read(&queue, queue.spare_slot());
    assert!(matches!(read, Ok(Incoming::Request { opcode: None, .. })), "{read:?}");
}

#[test]
fn messages_without_a_reply_are_copied_out_of_the_slot() {
    let (device, kernel) = fuse_device();
    let (reader, queue) = (RequestReader::new(device), queue());
    let forget = request(Opcode::Forget, 0, 5, ForgetIn { nlookup: 3.into() }.as_bytes());
    let interrupt = request(Opcode::Interrupt, 8, 0, InterruptIn { unique: 6.into() }.as_bytes());
    let short = request(Opcode::Interrupt, 10, 0, &[]);
    for message in [&forget, &interrupt, &short] {
        kernel.send(message);
    }
    let read = || reader.read(&queue, queue.spare_slot()).unwrap();
    assert!(matches!(read(), Incoming::Forget(message) if message == forget));
    assert!(matches!(read(), Incoming::Interrupt(message, Some(6)) if message == interrupt));
    assert!(matches!(read(), Incoming::Interrupt(message, None) if message == short));
}

#[test]
fn a_message_that_is_shorter_than_a_header_is_skipped() {
    let (device, kernel) = fuse_device();
    let (reader, queue) = (RequestReader::new(device), queue());
    kernel.send(&[1; size_of::<InHeader>() - 1]);
    assert!(matches!(reader.read(&queue, queue.spare_slot()), Ok(Incoming::Skipped)));
}
