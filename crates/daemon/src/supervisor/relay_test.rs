//! What passes between a front end and a daemon that sends what nobody has asked for.

use std::{
    io::{Read as _, Write as _},
    thread,
};

use rustix::event::{PollFd, Timespec, poll};

use super::*;

/// A relay, its front end and its daemon.
fn relay() -> (Relay, UnixStream, UnixStream) {
    let ((front_end, near), (daemon, far)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    (Relay::new(near, far).unwrap(), front_end, daemon)
}

fn message(number: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = [number, 1 | flags, payload.len() as u32].map(u32::to_le_bytes).concat();
    [&header, payload].concat()
}

fn reply(number: u32) -> Vec<u8> {
    message(number, 1 << 2, &[7; 8])
}

/// Passes messages on, in both directions, until there is nothing more.
fn settle(relay: &mut Relay) {
    let is_ready = |relay: &Relay| {
        let awaited = relay.awaited().into_iter().map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
        poll(&mut awaited.collect::<Vec<_>>(), Some(&Timespec::default())).unwrap() > 0
    };
    while is_ready(relay) {
        assert_eq!(relay.pass().unwrap(), Passed::GoesOn);
    }
}

#[test]
fn a_flood_of_replies_hides_none_that_was_asked_for_though_the_front_end_reads_nothing() {
    /// Many times what sockets hold.
    const FLOOD: usize = 1000;
    let (mut relay, mut front_end, mut daemon) = relay();
    relay.ask(&Message::request(request::GET_FEATURES, &[], vec![])).unwrap();
    let flood = thread::spawn(move || {
        let unasked = message(request::GET_CONFIG, 1 << 2, &[7; 4096]);
        (0..FLOOD).for_each(|_| daemon.write_all(&unasked).unwrap());
        daemon.write_all(&reply(request::GET_FEATURES)).unwrap();
        daemon
    });
    while relay.is_asked() {
        assert_eq!(relay.pass_replies().unwrap(), Passed::GoesOn);
        assert!(!relay.front_end.has_unsent(), "the front end is sent what it has not asked for");
    }
    assert_eq!(relay.take_answers().len(), 1);
    drop(flood.join().unwrap());
    drop(relay);
    assert_eq!(front_end.read(&mut [0; 1]).unwrap(), 0, "nothing has come but the end");
}

#[test]
fn the_front_end_gets_what_it_has_asked_for_once() {
    // Known requests, and one of a later version.
    for number in [request::GET_CONFIG, request::GET_FEATURES, request::GET_VRING_BASE, 77] {
        let (mut relay, mut front_end, mut daemon) = relay();
        front_end.write_all(&message(number, 0, &[])).unwrap();
        settle(&mut relay);
        for _ in 0..3 {
            daemon.write_all(&reply(number)).unwrap();
        }
        settle(&mut relay);
        drop(relay);
        let mut got = Vec::new();
        front_end.read_to_end(&mut got).unwrap();
        assert_eq!(got, reply(number), "request {number}");
    }
}

#[test]
fn requests_that_want_an_acknowledgement_get_it_if_both_sides_know_them() {
    const NEEDS_REPLY: u32 = 1 << 3;
    for (features, expected) in [(F_REPLY_ACK, 1), (0, 0)] {
        let (mut relay, mut front_end, mut daemon) = relay();
        let features = message(request::SET_PROTOCOL_FEATURES, 0, &features.to_le_bytes());
        front_end.write_all(&features).unwrap();
        front_end.write_all(&message(request::SET_OWNER, NEEDS_REPLY, &[])).unwrap();
        settle(&mut relay);
        daemon.write_all(&reply(request::SET_OWNER)).unwrap();
        settle(&mut relay);
        drop(relay);
        let mut got = Vec::new();
        front_end.read_to_end(&mut got).unwrap();
        assert_eq!(got, reply(request::SET_OWNER).repeat(expected));
    }
}
