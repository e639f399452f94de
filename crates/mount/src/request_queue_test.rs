//! [`RequestQueue`] without a device.

use transom_wire::Opcode;
use zerocopy::FromZeros as _;

use super::*;
use crate::testing::{SLOTS, header_of, queue, request, submit};

#[test]
fn a_request_is_pending_until_it_is_answered_and_its_slot_taken_until_it_is_complete() {
    let mut queue = queue();
    let slot = submit(&mut queue, &request(Opcode::Getattr, 2, 1, &[0; 16]), RequestKind::Forwarded);
    assert_eq!(queue.pending().map(|(slot, request)| (slot, request.unique)).collect::<Vec<_>>(), [(slot, 2)]);
    assert_eq!(queue.pending_count(), 1);
    queue.set_answered(slot);
    assert_eq!((queue.pending().count(), queue.take_slot(), queue.take_slot()), (0, Some(1), None));
    queue.complete(slot);
    assert_eq!(queue.take_slot(), Some(slot));
}

#[test]
fn the_spare_slot_is_never_taken() {
    let mut queue = queue();
    let taken: Vec<_> = std::iter::from_fn(|| queue.take_slot()).collect();
    assert_eq!(taken.len(), usize::from(SLOTS));
    assert!(!taken.contains(&queue.spare_slot()));
    // It has room for a request all the same.
    let message = request(Opcode::Lookup, 2, 1, b"name\0");
    queue.write_request(queue.spare_slot(), &message);
    assert_eq!(queue.copy_request(queue.spare_slot(), &header_of(&message), message.len()), message);
}

#[test]
fn a_header_that_the_daemon_changes_after_it_was_read_is_not_used() {
    let mut queue = queue();
    let slot = queue.take_slot().unwrap();
    let message = request(Opcode::BatchForget, 2, 1, &[7; 8]);
    queue.write_request(slot, &message);
    queue.write_request(slot, InHeader::new_zeroed().as_bytes());
    assert_eq!(queue.copy_request(slot, &header_of(&message), message.len()), message);
}

#[test]
fn arguments_that_are_missing_are_zero_whatever_lies_after_the_request() {
    let mut queue = queue();
    let slot = queue.take_slot().unwrap();
    queue.write_request(slot, &[0xff; 200]);
    let message = request(Opcode::Readlink, 2, 1, &[5; 8]);
    queue.write_request(slot, &message);
    let args = queue.args(slot, message.len());
    assert_eq!((&args[..8], &args[8..]), (&[5; 8][..], &[0; ARGS_LEN - 8][..]));
}
