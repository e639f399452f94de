//! Stops, resets, INIT, DESTROY and other front ends, with mappings alive or under way.

use std::thread;

use rustix::io::Errno;
use transom_frontend::{
    FrontEnd,
    fuse::Session,
    queue::Queue,
    window::{Hold, Reaction},
};
use transom_wire::ops::init::InitFlags;

use crate::{
    channel::{answer, submit_map},
    host::{Kind, QUEUES, RANGE, RANGES, Share, contents, lookup},
};

/// What QEMU does: it stops each queue, resets the device, and drops the mappings.
fn reset(front_end: &FrontEnd, session: Session<Queue>) -> Session<Queue> {
    front_end.stop_and_reset(&QUEUES[..1]).unwrap();
    drop(session);
    Session::begin(front_end.start_queue(QUEUES[0]).unwrap()).unwrap()
}

#[test]
fn init_destroy_and_reset_begin_with_an_empty_window() {
    for share in Share::each() {
        let path = share.file("file", 2 * RANGE, 1);
        let (front_end, mut session) = share.session();
        for round in 0..6 {
            let nodeid = lookup(&mut session, &path);
            for range in 0..RANGES {
                session.setupmapping(nodeid, range % 2 * RANGE, RANGE, range * RANGE, range % 3 == 0).unwrap();
            }
            assert_eq!(share.ranges(), RANGES);
            share.agrees(&front_end);
            match round % 3 {
                0 => session.destroy().unwrap(),
                1 => {}
                _ => session = reset(&front_end, session),
            }
            if round % 3 < 2 {
                session.init(InitFlags::all()).unwrap();
            }
            if share.kind == Kind::Qemu || round % 3 < 2 {
                assert_eq!((share.ranges(), front_end.expect_window().mappings().len()), (0, 0), "round {round}");
            }
            share.agrees(&front_end);
        }
    }
}

/// A pause of the device, for a migration for example, is no reset.
#[test]
fn a_stop_keeps_what_is_mapped() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        session.setupmapping(nodeid, 0, RANGE, RANGE, true).unwrap();
        let base = front_end.stop_queue(QUEUES[0]).unwrap();
        front_end.restart_queue(QUEUES[0], &session.exchange, base).unwrap();
        let before = front_end.expect_window().counts();
        session.setupmapping(nodeid, 0, RANGE, RANGE, true).unwrap();
        assert_eq!(front_end.expect_window().counts(), before);
        session.removemapping(nodeid, &[(RANGE, RANGE)]).unwrap();
        assert_eq!(front_end.expect_window().mappings(), []);
        share.agrees(&front_end);
    }
}

/// QEMU reads nothing from the back end while it stops the device: the answer to SHMEM_MAP and that to GET_VRING_BASE
/// must not wait for each other. What it answers afterwards counts.
#[test]
fn a_stop_does_not_wait_for_a_mapping_that_is_asked_for() {
    for share in Share::each() {
        for hold in [Hold::Requests, Hold::Answers] {
            let path = share.file("file", RANGE, 1);
            let (front_end, mut session) = share.session();
            let nodeid = lookup(&mut session, &path);
            session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap();
            let held = front_end.expect_window().hold(hold);
            let submitted: Vec<_> = (1..5).map(|range| submit_map(&mut session, nodeid, range)).collect();
            held.wait_for_request().unwrap();
            let base = front_end.stop_queue(QUEUES[0]).unwrap();
            let ended = session.exchange.reap().unwrap();
            assert!(ended > 0, "one was with the front end");
            drop(held);
            // Those that were still in the ring are served now.
            front_end.restart_queue(QUEUES[0], &session.exchange, base).unwrap();
            let answers: Vec<_> =
                submitted.into_iter().map(|(token, unique)| answer(&mut session, token, unique)).collect();
            assert_eq!(answers.iter().filter(|answer| **answer == Err(Errno::AGAIN)).count(), ended, "{answers:?}");
            assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 4 - ended, "{answers:?}");
            // What was done after all is either known or undone, and every range can be had.
            for range in 0..RANGES {
                session.setupmapping(nodeid, 0, RANGE, range * RANGE, true).unwrap();
                assert_eq!(front_end.expect_window().read(range * RANGE, 9).unwrap(), contents(9, 1));
            }
            share.agrees(&front_end);
        }
    }
}

/// The same followed by a reset: a request from before the reset may be served after it.
#[test]
fn what_is_mapped_after_a_reset_by_an_earlier_request_is_undone() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap();
        let held = front_end.expect_window().hold(Hold::Requests);
        submit_map(&mut session, nodeid, 1);
        held.wait_for_request().unwrap();
        front_end.stop_and_reset(&QUEUES[..1]).unwrap();
        drop((session, held));
        let mut session = Session::begin(front_end.start_queue(QUEUES[0]).unwrap()).unwrap();
        let nodeid = lookup(&mut session, &path);
        for range in 0..RANGES {
            session.setupmapping(nodeid, 0, RANGE, range * RANGE, true).unwrap();
        }
        share.agrees(&front_end);
        session.destroy().unwrap();
        assert_eq!(front_end.expect_window().mappings(), []);
        share.agrees(&front_end);
    }
}

/// The mapping was made and answered, and its barrier is under way: what the reset ends is that mapping too.
#[test]
fn a_reset_between_a_mapping_and_its_barrier_ends_the_mapping() {
    for share in [Share::thread(Kind::Qemu), Share::process(Kind::Qemu, "")] {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let window = front_end.expect_window();
        let held = window.hold(Hold::Answers);
        submit_map(&mut session, nodeid, 3);
        held.wait_for_request().unwrap();
        let barrier = window.hold(Hold::Requests);
        barrier.wait_for_request().unwrap();
        assert_eq!(window.mappings().len(), 1);
        front_end.stop_and_reset(&QUEUES[..1]).unwrap();
        drop((session, barrier, held));
        let mut session = Session::begin(front_end.start_queue(QUEUES[0]).unwrap()).unwrap();
        assert_eq!((share.ranges(), window.mappings().len()), (0, 0));
        let nodeid = lookup(&mut session, &path);
        session.setupmapping(nodeid, 0, RANGE, 3 * RANGE, true).unwrap();
        share.agrees(&front_end);
    }
}

/// A reset that the daemon is told nothing of but that its queues stop, as with a front end that lacks RESET_DEVICE.
#[test]
fn a_reset_that_is_only_seen_as_a_stop_is_known_by_the_next_init() {
    for share in [Share::thread(Kind::Qemu), Share::process(Kind::Qemu, "")] {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        for range in 0..RANGES {
            session.setupmapping(nodeid, 0, RANGE, range * RANGE, true).unwrap();
        }
        front_end.stop_queue(QUEUES[0]).unwrap();
        front_end.expect_window().drop_mappings();
        drop(session);
        let mut session = Session::begin(front_end.start_queue(QUEUES[0]).unwrap()).unwrap();
        assert_eq!(share.ranges(), 0);
        let nodeid = lookup(&mut session, &path);
        session.setupmapping(nodeid, 0, RANGE, 3 * RANGE, true).unwrap();
        share.agrees(&front_end);
    }
}

/// A guest that maps without a pause while the device is reset and the session begun anew, a hundred times.
///
/// A request to unmap that is under way while QEMU resets the device names a mapping that is gone, and QEMU closes the
/// channel for it: nothing that a back end could do about it, but the share goes on.
#[test]
fn resets_among_requests_leave_both_maps_equal() {
    for share in Share::each() {
        let path = share.file("file", 2 * RANGE, 1);
        let (mut front_end, mut session) = share.session();
        let mut other = Session::new(front_end.start_queue(QUEUES[1]).unwrap());
        for round in 0..100u64 {
            if front_end.expect_window().stale_refusals() > 0 {
                assert_eq!(front_end.expect_window().refusals(), Vec::<String>::new());
                drop((front_end, session, other));
                (front_end, session) = share.session();
                other = Session::new(front_end.start_queue(QUEUES[1]).unwrap());
            }
            let nodeid = lookup(&mut session, &path);
            for index in 0..1 + round % 30 {
                submit_map(&mut session, nodeid, (index * 5 + round) % RANGES);
            }
            // Some are done, some under way, some waiting.
            if round % 4 == 0 {
                session.exchange.wait_for_all().unwrap();
            }
            match round % 3 {
                0 => {
                    front_end.stop_and_reset(&QUEUES).unwrap();
                    session = Session::begin(front_end.start_queue(QUEUES[0]).unwrap()).unwrap();
                    other = Session::new(front_end.start_queue(QUEUES[1]).unwrap());
                }
                1 => drop(other.init(InitFlags::all()).unwrap()),
                _ => {
                    other.destroy().unwrap();
                    other.init(InitFlags::all()).unwrap();
                }
            }
            session.exchange.wait_for_all().unwrap();
        }
        session.init(InitFlags::all()).unwrap();
        if front_end.expect_window().stale_refusals() == 0 {
            share.agrees(&front_end);
        }
        drop((front_end, session, other));
        share.is_healthy();
    }
}

#[test]
fn the_next_front_end_finds_an_empty_window() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        for _ in 0..3 {
            let (front_end, mut session) = share.session();
            assert_eq!(share.ranges(), 0);
            let nodeid = lookup(&mut session, &path);
            for range in 0..RANGES {
                session.setupmapping(nodeid, 0, RANGE, range * RANGE, false).unwrap();
            }
            share.agrees(&front_end);
        }
        share.is_healthy();
    }
}

/// Refusals and silence while it is reset: the counts of both sides stay together.
#[test]
fn reactions_of_every_kind_among_resets_leave_a_daemon_that_serves() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        for reaction in [Reaction::Refuse, Reaction::Ignore, Reaction::ServeUnanswered, Reaction::Close] {
            let (front_end, mut session) = share.session();
            let nodeid = lookup(&mut session, &path);
            session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap();
            front_end.expect_window().react(&[reaction]);
            for range in 1..4 {
                submit_map(&mut session, nodeid, range);
            }
            thread::scope(|scope| {
                scope.spawn(|| front_end.stop_queue(QUEUES[0]).unwrap());
            });
            front_end.reset().unwrap();
            drop((session, front_end));
            share.is_healthy();
        }
    }
}
