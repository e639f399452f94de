//! Front ends that refuse, fall silent, close the channel, or have none: the share goes on.

use std::{fs, thread};

use rustix::io::Errno;
use transom_frontend::{
    Options,
    fuse::Session,
    queue::Queue,
    window::{Hold, Reaction, Rules},
};
use transom_wire::{Opcode, ops::init::InitFlags};
use zerocopy::IntoBytes;

use crate::host::{Kind, QUEUES, RANGE, Share, contents, lookup};

/// The share works without its window.
fn is_served(session: &mut Session<Queue>, nodeid: u64, seed: u8) {
    let fh = session.open(nodeid, libc::O_RDWR as u32).unwrap();
    assert_eq!(session.read(nodeid, fh, 5, 4000).unwrap(), &contents(4005, seed)[5..]);
    session.write(nodeid, fh, 5, &contents(4005, seed)[5..]).unwrap();
    session.release(nodeid, fh).unwrap();
}

fn map(session: &mut Session<Queue>, nodeid: u64, range: u64) -> Result<(), Errno> {
    session.setupmapping(nodeid, 0, RANGE, range * RANGE, true).map_err(|error| error.errno().unwrap())
}

#[test]
fn a_refusal_costs_one_mapping() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        front_end.expect_window().react(&[Reaction::Refuse]);
        assert_eq!(map(&mut session, nodeid, 0), Err(Errno::IO));
        share.agrees(&front_end);
        map(&mut session, nodeid, 0).unwrap();
        assert_eq!(front_end.expect_window().read(0, 9).unwrap(), contents(9, 1));
        is_served(&mut session, nodeid, 1);
        share.agrees(&front_end);
    }
}

#[test]
fn a_channel_that_closes_costs_the_window_and_nothing_else() {
    for (share, reaction) in Share::each().zip([Reaction::Close, Reaction::ServeAndClose].into_iter().cycle()) {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let window = front_end.expect_window();
        map(&mut session, nodeid, 0).unwrap();
        window.react(&[reaction]);
        assert_eq!(map(&mut session, nodeid, 1), Err(Errno::NOTCONN));
        window.wait_for_close().unwrap();
        // 1. Existing mappings remain, and mapping them again succeeds; new ranges are refused, and removal succeeds.
        map(&mut session, nodeid, 0).unwrap();
        assert_eq!(map(&mut session, nodeid, 2), Err(Errno::NOTCONN));
        assert_eq!(window.read(0, 9).unwrap(), contents(9, 1));
        session.removemapping(nodeid, &[(0, RANGE)]).unwrap();
        is_served(&mut session, nodeid, 1);
        // 2. The next session is told that there is no window.
        session.destroy().unwrap();
        let flags = session.init(InitFlags::all()).unwrap().flags.get();
        assert!(!InitFlags::from_bits_retain(flags.into()).contains(InitFlags::MAP_ALIGNMENT));
        let nodeid = lookup(&mut session, &path);
        assert_eq!(map(&mut session, nodeid, 0), Err(Errno::NOSYS));
        is_served(&mut session, nodeid, 1);
        // 3. The next front end has its window.
        drop((session, front_end));
        share.is_healthy();
    }
}

#[test]
fn a_channel_closed_between_requests_is_found_closed() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        map(&mut session, nodeid, 0).unwrap();
        front_end.expect_window().close();
        assert_eq!(map(&mut session, nodeid, 1), Err(Errno::NOTCONN));
        is_served(&mut session, nodeid, 1);
        drop((session, front_end));
        share.is_healthy();
    }
}

/// A request that is never answered holds up its own guest request, none on another queue, and no stop.
#[test]
fn a_silent_front_end_holds_up_nothing_but_mappings() {
    for (share, reaction) in Share::each().zip([Reaction::Ignore, Reaction::ServeUnanswered].into_iter().cycle()) {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        front_end.expect_window().react(&[reaction]);
        let (token, unique) = submit_map(&mut session, nodeid, 0);
        front_end.expect_window().wait_for_reactions().unwrap();
        let mut other = Session::new(front_end.start_queue(QUEUES[1]).unwrap());
        is_served(&mut other, nodeid, 1);
        front_end.stop_queue(QUEUES[0]).unwrap();
        assert_eq!(answer(&mut session, token, unique), Err(Errno::AGAIN));
        is_served(&mut other, nodeid, 1);
        drop((session, other, front_end));
        share.is_healthy();
    }
}

#[test]
fn many_requests_that_wait_for_a_slow_front_end_all_end_well() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let mut other = Session::new(front_end.start_queue(QUEUES[1]).unwrap());
        for hold in [Hold::Requests, Hold::Answers] {
            let held = front_end.expect_window().hold(hold);
            let submitted: Vec<_> = (0..40).map(|index| submit_map(&mut session, nodeid, index % 6)).collect();
            held.wait_for_request().unwrap();
            thread::scope(|scope| {
                // The pool's threads all wait; the other queue has its turn when they are done.
                scope.spawn(|| is_served(&mut other, nodeid, 1));
                drop(held);
                for (token, unique) in submitted {
                    answer(&mut session, token, unique).unwrap();
                }
            });
            share.agrees(&front_end);
            assert_eq!(share.ranges(), 6);
            session.removemapping(nodeid, &[(0, 6 * RANGE)]).unwrap();
        }
    }
}

#[test]
fn a_front_end_without_a_window_has_the_share_and_one_line_in_the_log() {
    let share = Share::process(Kind::Qemu, "");
    let path = share.file("file", RANGE, 1);
    let front_end = share.connect(Options::default());
    let mut session = Session::begin(front_end.start_queue(QUEUES[0]).unwrap()).unwrap();
    let nodeid = lookup(&mut session, &path);
    assert_eq!(map(&mut session, nodeid, 0), Err(Errno::NOSYS));
    assert_eq!(session.removemapping(nodeid, &[(0, RANGE)]).unwrap_err().errno(), Some(Errno::NOSYS));
    let attr = session.getattr(nodeid, None).unwrap();
    assert_eq!(attr.flags.get() & 2, 0, "no file is given DAX");
    is_served(&mut session, nodeid, 1);
    drop((session, front_end));
    let said = share.end();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("SHMEM") || line.contains("window")).collect();
    assert_eq!(lines.len(), 1, "{said}");
}

#[test]
fn a_front_end_without_shared_objects_still_maps() {
    let share = Share::process(Kind::Qemu, "");
    let path = share.file("file", RANGE, 1);
    let rules = Rules { has_shared_objects: false, shows_late: false, ..Rules::QEMU };
    let (front_end, mut session) = share.session_with(rules);
    let nodeid = lookup(&mut session, &path);
    map(&mut session, nodeid, 0).unwrap();
    map(&mut session, nodeid, 1).unwrap();
    assert_eq!(front_end.expect_window().read(RANGE, 9).unwrap(), contents(9, 1));
    assert_eq!(front_end.expect_window().counts().barriers, 0);
    share.agrees(&front_end);
    drop((session, front_end));
    let said = share.end();
    let lines = said.lines().filter(|line| line.contains("that a mapping is complete"));
    assert_eq!(lines.count(), 1, "the lack of a barrier is said once: {said}");
}

#[test]
fn a_front_end_that_vanishes_while_it_is_asked_leaves_nothing_behind() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        map(&mut session, nodeid, 0).unwrap();
        let held = front_end.expect_window().hold(Hold::Requests);
        for range in 1..4 {
            submit_map(&mut session, nodeid, range);
        }
        held.wait_for_request().unwrap();
        std::mem::forget(held);
        drop((session, front_end));
        share.is_healthy();
        assert_eq!(share.ranges(), 0);
        assert!(fs::read(&path).unwrap() == contents(RANGE, 1));
    }
}

/// Asks for a mapping and does not wait for the answer.
pub(crate) fn submit_map(
    session: &mut Session<Queue>,
    nodeid: u64,
    range: u64,
) -> (transom_frontend::queue::Token, u64) {
    let arg = transom_wire::ops::setupmapping::SetupmappingIn {
        fh: u64::MAX.into(),
        foffset: 0.into(),
        len: RANGE.into(),
        flags: 3.into(),
        moffset: (range * RANGE).into(),
    };
    let header = session.header(Opcode::Setupmapping as u32, nodeid, 40);
    let token = session.exchange.submit(&[header.as_bytes(), arg.as_bytes()], &[16]).unwrap();
    session.exchange.notify().unwrap();
    (token, header.unique.get())
}

/// Waits for the answer.
pub(crate) fn answer(
    session: &mut Session<Queue>,
    token: transom_frontend::queue::Token,
    unique: u64,
) -> Result<(), Errno> {
    let completion = session.exchange.wait(token).unwrap();
    transom_frontend::fuse::check_reply(&completion, unique).map(drop).map_err(|error| error.errno().unwrap())
}
