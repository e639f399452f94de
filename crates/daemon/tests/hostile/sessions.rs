//! Healthy sessions in every shape that a front end may choose; without them no other test would mean anything.

use std::time::Duration;

use transom_conformance::memfs::MemFs;
use transom_frontend::{Options, fuse::Session, wake::WakeKind};
use transom_wire::config::QUEUE_HIPRIO;

use crate::host::{Daemon, use_it};

#[test]
fn every_shape_of_queue_serves_a_session() {
    for poll_max in [Duration::ZERO, Duration::from_micros(50)] {
        let daemon = Daemon::with(MemFs::default().deferring(2), poll_max);
        for shape in 0..16 {
            let options = Options {
                event_idx: shape & 1 != 0,
                indirect: shape & 2 != 0,
                wake: if shape & 4 != 0 { WakeKind::EventFd } else { WakeKind::Pipe },
                acknowledged: shape & 8 != 0,
                ..Options::default()
            };
            let (_front_end, mut session) = daemon.session_with(options);
            use_it(&mut session);
        }
        daemon.is_healthy();
    }
}

#[test]
fn many_requests_in_flight_are_all_completed() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session_with(Options { queue_size: 256, ..Options::default() });
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let mut second = Session::new(front_end.start_queue(2).unwrap());
    for _ in 0..20 {
        let mut tokens = Vec::new();
        loop {
            let header = session.header(transom_wire::Opcode::Getattr as u32, file.entry.nodeid.get(), 16);
            let message = [zerocopy::IntoBytes::as_bytes(&header), &[0; 16]].concat();
            match session.exchange.submit(&[&message], &[16, 104]) {
                Some(token) => tokens.push((token, header.unique.get())),
                None => break,
            }
        }
        assert_eq!(tokens.len(), 256);
        session.exchange.notify().unwrap();
        second.getattr(1, None).unwrap();
        for (token, unique) in tokens {
            let completion = session.exchange.wait(token).unwrap();
            assert_eq!(transom_frontend::fuse::check_reply(&completion, unique).unwrap().len(), 104);
        }
    }
    drop((session, second, front_end));
    daemon.is_healthy();
}

#[test]
fn forgets_go_through_the_high_priority_queue() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let mut forgetting = Session::new(front_end.start_queue(QUEUE_HIPRIO as u32).unwrap());
    let nodeids: Vec<u64> = (0..50u8).map(|n| session.mkdir(1, &[b'a', n + 100], 0).unwrap().nodeid.get()).collect();
    assert_eq!(daemon.held().lookups, 50);
    forgetting.forget(nodeids[0], 1).unwrap();
    forgetting.batch_forget(&nodeids[1..].iter().map(|&nodeid| (nodeid, 1)).collect::<Vec<_>>()).unwrap();
    assert_eq!(daemon.held().lookups, 0);
}

#[test]
fn the_configuration_names_tag_and_queues() {
    let daemon = Daemon::start();
    let front_end = daemon.connect();
    let config = front_end.config(40).unwrap();
    assert_eq!((&config[..6], &config[36..]), (&b"share\0"[..], &[2, 0, 0, 0][..]));
    assert_eq!(front_end.queue_count, 3);
}
