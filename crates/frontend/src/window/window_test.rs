//! The window against a back end that sends whatever a test writes.

use std::{
    io::Read,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::message::{Channel, NEED_REPLY, VERSION, header, u64s};

const RANGE: u64 = 2 << 20;

struct BackEnd(Channel);

impl BackEnd {
    /// Returns what the front end answers; `None` where it closes the channel.
    fn ask(&self, number: u32, body: &[u64], fds: &[BorrowedFd<'_>]) -> Option<bool> {
        self.send(number, body, fds);
        self.answer_to(number)
    }

    fn answer_to(&self, number: u32) -> Option<bool> {
        let mut reply = [0; 20];
        self.0.stream().read_exact(&mut reply).ok()?;
        assert_eq!(reply[..4], number.to_le_bytes());
        Some(reply[12..] == [0; 8])
    }

    fn send(&self, number: u32, body: &[u64], fds: &[BorrowedFd<'_>]) {
        let body = u64s(body);
        self.0.send_raw(&[header(number, VERSION | NEED_REPLY, body.len()), body].concat(), fds).unwrap();
    }

    fn map(&self, file: &impl AsFd, file_offset: u64, offset: u64, len: u64) -> Option<bool> {
        self.ask(9, &[0, file_offset, offset, len, 1], &[file.as_fd()])
    }

    fn unmap(&self, offset: u64, len: u64) -> Option<bool> {
        self.ask(10, &[0, 0, offset, len, 0], &[])
    }

    fn barrier(&self) {
        assert_eq!(self.ask(7, &[0, 0], &[]), Some(false));
    }
}

fn pair(rules: Rules) -> (Window, BackEnd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Window::new(8 * RANGE, rules, ours, Arc::default()).unwrap(), BackEnd(Channel::new(theirs).unwrap()))
}

fn file(len: u64) -> OwnedFd {
    let fd = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, len).unwrap();
    fd
}

#[test]
fn what_is_mapped_shows_with_the_next_request_and_both_ways() {
    let (window, back_end) = pair(Rules::QEMU);
    let file = file(2 * RANGE);
    rustix::io::pwrite(&file, b"from the host", RANGE + 5).unwrap();
    assert_eq!(back_end.map(&file, RANGE, 3 * RANGE, RANGE), Some(true));
    assert!(window.read(3 * RANGE + 5, 13).is_err());
    back_end.barrier();
    assert_eq!(window.read(3 * RANGE + 5, 13).unwrap(), b"from the host");
    window.store(3 * RANGE + 5, b"from a guest!").unwrap();
    let mut bytes = [0; 13];
    rustix::io::pread(&file, &mut bytes, RANGE + 5).unwrap();
    assert_eq!(&bytes, b"from a guest!");
    assert!(window.read(2 * RANGE, 1).is_err() && window.read(4 * RANGE, 1).is_err());
    ftruncate(&file, 0).unwrap();
    assert!(window.read(3 * RANGE, 1).is_err() && window.store(3 * RANGE, b"x").is_err());
    assert_eq!(back_end.unmap(3 * RANGE, RANGE), Some(true));
    assert_eq!((window.mappings(), window.refusals()), (Vec::new(), Vec::new()));
}

/// Asks for something with a whole file or an empty one; returns the answer.
type Offence = fn(&BackEnd, &OwnedFd, &OwnedFd) -> Option<bool>;

#[test]
fn what_is_against_the_rules_closes_the_channel() {
    let (whole, empty) = (file(8 * RANGE), file(0));
    let offences: [(&str, Offence); 11] = [
        ("at 1048576 over", |back_end, whole, _| back_end.map(whole, 0, RANGE / 2, RANGE)),
        ("at 0 over", |back_end, whole, _| back_end.map(whole, 0, 0, RANGE)),
        ("of a file of 0", |back_end, _, empty| back_end.map(empty, 0, RANGE, RANGE)),
        ("from 14680064 of a file of 16777216", |back_end, whole, _| back_end.map(whole, 7 * RANGE, RANGE, 2 * RANGE)),
        ("no region 1", |back_end, whole, _| back_end.ask(9, &[1, 0, RANGE, RANGE, 1], &[whole.as_fd()])),
        ("of a window of", |back_end, whole, _| back_end.map(whole, 0, 7 * RANGE, 2 * RANGE)),
        ("are not whole pages", |back_end, whole, _| back_end.map(whole, 0, RANGE, 0)),
        ("and 0 descriptors", |back_end, _, _| back_end.ask(9, &[0, 0, RANGE, RANGE, 1], &[])),
        ("is not a mapping", |back_end, _, _| back_end.unmap(0, RANGE / 2)),
        ("is not a mapping", |back_end, _, _| back_end.unmap(0, 2 * RANGE)),
        ("request 77", |back_end, _, _| back_end.ask(77, &[], &[])),
    ];
    for (reason, offend) in offences {
        let (window, back_end) = pair(Rules::QEMU);
        assert_eq!(back_end.map(&whole, 0, 0, RANGE), Some(true));
        assert_eq!(offend(&back_end, &whole, &empty), None, "{reason}");
        window.wait_for_close().unwrap();
        let refusals = window.refusals();
        assert!(refusals.len() == 1 && refusals[0].contains(reason), "{reason}: {refusals:?}");
        assert_eq!(window.mappings().len(), 1);
    }
}

#[test]
fn each_reaction_is_for_one_request() {
    let (window, back_end) = pair(Rules { closes_at_refusal: false, shows_late: false, ..Rules::QEMU });
    let file = file(RANGE);
    window.react(&[Reaction::Refuse, Reaction::Serve, Reaction::Ignore, Reaction::ServeUnanswered]);
    assert_eq!(back_end.map(&file, 0, 0, RANGE), Some(false));
    assert_eq!(back_end.map(&file, 0, 0, RANGE), Some(true));
    back_end.send(10, &[0, 0, 0, RANGE, 0], &[]);
    back_end.barrier();
    assert_eq!(window.mappings().len(), 1);
    back_end.send(10, &[0, 0, 0, RANGE, 0], &[]);
    back_end.barrier();
    assert_eq!(window.mappings(), []);
    let held = window.hold(Hold::Answers);
    back_end.send(9, &[0, 0, RANGE, RANGE, 1], &[file.as_fd()]);
    held.wait_for_request().unwrap();
    assert_eq!(window.mappings().len(), 1);
    window.react(&[Reaction::ServeAndClose]);
    drop(held);
    assert_eq!(back_end.answer_to(9), Some(true));
    assert_eq!(back_end.unmap(RANGE, RANGE), None);
    window.wait_for_close().unwrap();
    assert_eq!((window.mappings(), window.refusals()), (Vec::new(), Vec::new()));
}

#[test]
fn crosvm_replaces_and_answers_errors() {
    let (window, back_end) = pair(Rules::CROSVM);
    let (old, new) = (file(RANGE), file(19));
    assert_eq!(back_end.map(&old, 0, 0, RANGE), Some(true));
    assert_eq!(back_end.map(&new, 0, 0, RANGE), Some(true));
    assert_eq!(back_end.map(&new, 0, RANGE / 2, RANGE), Some(false));
    assert_eq!((window.mappings().len(), window.most_mappings()), (1, 1));
    assert!(window.read(0, 4096).is_ok() && window.read(4096, 1).is_err());
    window.device_was_reset();
    assert_eq!(window.mappings().len(), 1);
}
