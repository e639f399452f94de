//! The bytes are written out by hand, from virtio 1.3 §5.11.6 and docs/events.md.

extern crate std;

use std::vec::Vec;

use super::*;
use crate::{NodeId, agent::Kind, config::NotifyingConfig};

/// `struct fuse_out_header`, then version 1 and `what`.
fn head(len: u32, what: u32) -> Vec<u8> {
    let mut bytes = Vec::from(len.to_le_bytes());
    bytes.extend(b"nart");
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(what.to_le_bytes());
    bytes
}

fn written(notification: &Notification<'_>) -> Vec<u8> {
    let mut bytes = [0xff; BUF_LEN];
    let len = notification.write(&mut bytes);
    bytes[..len].to_vec()
}

fn change<'a>(name: &'a [u8], new_name: &'a [u8]) -> Change<'a> {
    Change { kind: Kind::Renamed, file_type: 8, parent: NodeId(1), name, new_parent: NodeId(0x0203), new_name }
}

#[test]
fn a_change_has_the_documented_layout() {
    let mut bytes = head(56, 1);
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(0x0203_u64.to_le_bytes());
    bytes.extend([3, 8, 3, 2, 0, 0, 0, 0]);
    bytes.extend(b"oldto\0\0\0");
    let notification = Notification::Change(change(b"old", b"to"));
    assert_eq!(written(&notification), bytes);
    assert_eq!(Notification::parse(&bytes), Ok(Some(notification)));
}

#[test]
fn losses_and_the_end_are_a_head_alone() {
    for (notification, what) in [(Notification::Lost, 2), (Notification::Ended, 3)] {
        assert_eq!(written(&notification), head(24, what));
        assert_eq!(Notification::parse(&head(24, what)), Ok(Some(notification)));
    }
}

#[test]
fn the_longest_names_fit_and_longer_ones_count_as_lost() {
    let longest = [b'x'; NAME_LEN_MAX];
    let notification = Notification::Change(change(&longest, &longest));
    assert_eq!(Notification::parse(&written(&notification)), Ok(Some(notification)));
    assert_eq!(written(&Notification::Change(change(&[b'x'; 256], b""))), head(24, 2));
}

#[test]
fn what_is_no_notification_is_refused_and_other_codes_are_not_ours() {
    let good = written(&Notification::Change(change(b"a", b"")));
    // 1. Each length but the right one.
    assert!((0..good.len()).all(|len| Notification::parse(&good[..len]).is_err()));
    assert!(Notification::parse(&[&good[..], &[0]].concat()).is_err());
    // 2. The length in the header, a negative code, a reply's number, the version, the content, the kind of the change.
    for (at, value) in [(0, 7), (7, 0xff), (8, 1), (16, 2), (20, 9), (40, 99)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(Notification::parse(&bad).is_err(), "byte {at}");
    }
    // 3. FUSE_NOTIFY_INVAL_ENTRY.
    let mut other = good;
    other[4..8].copy_from_slice(&3_i32.to_le_bytes());
    assert_eq!(Notification::parse(&other), Ok(None));
}

#[test]
fn the_size_of_a_buffer_follows_the_number_of_queues() {
    let mut bytes = [0; 44];
    bytes[36] = 3;
    bytes[41] = 4;
    let config = NotifyingConfig::read_from_bytes(&bytes[..]).unwrap();
    assert_eq!((config.config.num_request_queues.get(), config.notify_buf_size.get()), (3, 1024));
}
