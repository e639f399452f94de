//! The front end and real daemons, and peers that are no daemons.

mod common;

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
};

use common::{daemons, tree};
use transom_guest::transport::{Transport as _, TransportError};
use transom_user::{
    arena::Arena,
    daemon::{Daemon, Program},
    transport::{ConnectError, VhostUser},
};

fn arena() -> Arc<Arena> {
    Arc::new(Arena::new(1 << 20).unwrap())
}

#[test]
fn a_daemon_is_a_file_system_device_with_request_queues() {
    for program in daemons() {
        let dir = tree();
        let (daemon, stream) = Daemon::start(&program, dir.path()).unwrap();
        let device = VhostUser::connect(stream, arena(), b"share")
            .unwrap_or_else(|error| panic!("{error}: {}", daemon.messages()));
        assert_eq!(device.device_type(), 26);
        let mut queues = [0; 4];
        device.read_config(36, &mut queues).unwrap();
        let queues = u32::from_le_bytes(queues);
        assert!(queues >= 1, "{queues}");
        assert!(device.queue_len_max(queues as u16).unwrap() > 0);
        assert_eq!(device.queue_len_max(queues as u16 + 1).unwrap(), 0);
        device.set_driver_features(device.device_features().unwrap()).unwrap();
        device.reset().unwrap();
        drop(device);
    }
}

#[test]
fn a_daemon_that_is_killed_is_gone_for_everyone_who_waits() {
    for program in daemons() {
        let dir = tree();
        let (mut daemon, stream) = Daemon::start(&program, dir.path()).unwrap();
        let device = VhostUser::connect(stream, arena(), b"share").unwrap();
        thread::scope(|scope| {
            let waiters = [0, 1, 1].map(|queue| {
                scope.spawn({
                    let device = &device;
                    move || loop {
                        if let Err(error) = device.wait(queue, device.notifications(queue), None) {
                            break error;
                        }
                    }
                })
            });
            daemon.kill();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), TransportError::Gone);
            }
        });
        assert_eq!(device.set_driver_features(0), Err(TransportError::Gone));
        assert_eq!(device.reset(), Ok(()));
    }
}

#[test]
fn a_daemon_that_cannot_serve_says_why() {
    for program in daemons() {
        let (mut daemon, stream) = Daemon::start(&program, "/nonexistent/share".as_ref()).unwrap();
        let error = VhostUser::connect(stream, arena(), b"share").err().unwrap();
        assert!(matches!(error, ConnectError::HungUp { .. }), "{error}");
        let status = daemon.wait(std::time::Duration::from_secs(30)).unwrap();
        assert!(!status.success());
        assert!(daemon.messages().contains("/nonexistent/share"), "{}", daemon.messages());
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error_with_its_name() {
    let error = Daemon::start(&Program::new("/nonexistent/daemon"), "/".as_ref()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/daemon"), "{error}");
}

#[test]
fn a_peer_that_speaks_something_else_is_refused() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let peer = thread::spawn(move || {
        theirs.read_exact(&mut [0; 12]).unwrap();
        // It may be closed while it writes.
        let _ = theirs.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        theirs
    });
    let error = VhostUser::connect(ours, arena(), b"share").err().unwrap();
    assert!(matches!(error, ConnectError::Request { request: "GET_FEATURES", .. }), "{error}");
    peer.join().unwrap();
}

#[test]
fn a_peer_that_hangs_up_is_no_daemon() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let error = VhostUser::connect(ours, arena(), b"share").err().unwrap();
    assert!(
        matches!(error, ConnectError::HungUp { request: "GET_FEATURES" } | ConnectError::Request { .. }),
        "{error}"
    );
}
