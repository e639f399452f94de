//! The notification queue, from the driver's side (virtio 1.3 §5.11): the back end in this process, whose changes the
//! test makes up. What it reads is compared with bytes that are written out by hand.

use std::{
    os::unix::net::UnixListener,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use transom_conformance::memfs::{Limits, MemFs};
use transom_daemon::backend::{BackendConfig, Monitor, serve};
use transom_frontend::{
    FrontEnd, NOTIFICATION, Options,
    fuse::Session,
    message::HANG_AFTER,
    queue::{Queue, Token},
    ring::{Descriptor, WRITE},
};
use transom_host::{
    notifications::Notifications,
    replay::{Change, Kind},
    server::Server,
};
use transom_wire::NodeId;

const REQUEST_QUEUES: u16 = 2;
/// `notify_buf_size`.
const BUF_LEN: usize = 1024;
/// Changes that the daemon keeps.
const KEPT: usize = 1024;

struct Daemon {
    directory: tempfile::TempDir,
    listener: UnixListener,
    changes: Arc<Notifications>,
    ended: mpsc::Receiver<()>,
}

impl Daemon {
    fn start() -> Self {
        Self::with(true)
    }

    fn with(has_queue: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let changes = Arc::new(Notifications::new().unwrap());
        let mut tag = [0; 36];
        tag[..5].copy_from_slice(b"share");
        let config = BackendConfig {
            tag: Some(tag),
            request_queues: REQUEST_QUEUES,
            poll_max: Duration::ZERO,
            rate: None,
            pool_threads: 0,
            window: None,
            versions: None,
            notifications: has_queue.then(|| changes.clone()),
            keep_serving: true,
            ownership: Arc::default(),
            journal: None,
            migration: None,
        };
        let server = Arc::new(Server::new(MemFs::new(Limits::default())));
        let (ends, ended) = mpsc::channel();
        let served = listener.try_clone().unwrap();
        thread::spawn(move || {
            drop(serve(served, server, &config, &Arc::new(Monitor::default())).expect_err("it serves until it cannot"));
            drop::<mpsc::Sender<()>>(ends);
        });
        Self { directory, listener, changes, ended }
    }

    fn connect(&self, notifications: bool) -> FrontEnd {
        let options = Options { notifications, indirect: false, ..Options::default() };
        FrontEnd::connect(&self.directory.path().join("socket"), options).unwrap()
    }

    fn push(&self, name: &str) {
        let session = self.changes.session().expect("the driver has accepted the queue");
        self.changes.push(session, Change::of_name(Kind::Created, 8, NodeId(7), name.as_bytes()));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(self.ended.recv_timeout(HANG_AFTER), Err(mpsc::RecvTimeoutError::Disconnected), "it ends");
    }
}

/// A driver that has accepted the queue, in a session.
struct Guest {
    front_end: FrontEnd,
    _hiprio: Queue,
    told: Queue,
    session: Session<Queue>,
}

impl Guest {
    fn begin(daemon: &Daemon) -> Self {
        let front_end = daemon.connect(true);
        assert_ne!(front_end.features() & NOTIFICATION, 0);
        let (hiprio, told) = (front_end.start_queue(0).unwrap(), front_end.start_queue(1).unwrap());
        let session = Session::begin(front_end.start_queue(2).unwrap()).unwrap();
        Self { front_end, _hiprio: hiprio, told, session }
    }

    /// Provides a buffer without a kick.
    fn provide(&mut self) -> Token {
        self.told.submit(&[], &[BUF_LEN]).unwrap()
    }

    /// Waits for the device to fill the buffer.
    fn filled(&mut self, buffer: Token) -> Vec<u8> {
        let done = self.told.wait(buffer).unwrap();
        done.writable[..done.used_len as usize].to_vec()
    }

    fn next(&mut self) -> Vec<u8> {
        let buffer = self.provide();
        self.filled(buffer)
    }

    fn assert_serves(&mut self) {
        self.session.getattr(1, None).unwrap();
    }
}

/// The bytes of a notification: `struct fuse_out_header`, version 1, what it says, and its body.
fn message(what: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![24 + body.len() as u8, 0, 0, 0];
    bytes.extend(b"nart\0\0\0\0\0\0\0\0");
    bytes.extend([1, 0, 0, 0, what, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

/// The creation of a regular file in the directory 7.
fn created(name: &str) -> Vec<u8> {
    let mut body = vec![7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 8, name.len() as u8, 0, 0, 0, 0, 0];
    body.extend(name.as_bytes());
    body.resize(body.len().next_multiple_of(8), 0);
    message(1, &body)
}

fn lost() -> Vec<u8> {
    message(2, &[])
}

#[test]
fn a_driver_that_does_not_accept_the_queue_finds_the_usual_ones() {
    let daemon = Daemon::start();
    let front_end = daemon.connect(false);
    assert_eq!((front_end.features() & NOTIFICATION, front_end.queue_count), (0, 4));
    let _hiprio = front_end.start_queue(0).unwrap();
    let mut session = Session::begin(front_end.start_queue(1).unwrap()).unwrap();
    assert!(daemon.changes.session().is_none(), "nothing is kept for it");
    session.getattr(1, None).unwrap();
}

#[test]
fn the_queue_is_offered_only_where_it_is_asked_for() {
    for (has_queue, queues) in [(false, 3), (true, 4)] {
        let daemon = Daemon::with(has_queue);
        let front_end = daemon.connect(true);
        assert_eq!((front_end.features() & NOTIFICATION != 0, front_end.queue_count), (has_queue, queues));
        let config = front_end.config(40).unwrap();
        assert_eq!((&config[..6], &config[36..]), (&b"share\0"[..], &[2, 0, 0, 0][..]));
        let longer = front_end.config(44);
        match has_queue {
            true => assert_eq!(longer.unwrap()[40..], [0, 4, 0, 0]),
            false => assert!(longer.is_err(), "there is no such configuration"),
        }
    }
}

#[test]
fn what_waits_is_told_in_order_as_buffers_come() {
    let daemon = Daemon::start();
    let mut guest = Guest::begin(&daemon);
    // 1. Changes before buffers, one at a time.
    (0..3).for_each(|number| daemon.push(&number.to_string()));
    for number in 0..3 {
        assert_eq!(guest.next(), created(&number.to_string()));
    }
    // 2. Buffers before changes: the device does not use them.
    let buffers = [(); 3].map(|()| guest.provide());
    guest.told.notify().unwrap();
    guest.assert_serves();
    assert_eq!(guest.told.ring.used_idx(), 3);
    for (number, buffer) in buffers.into_iter().enumerate() {
        daemon.push(&number.to_string());
        assert_eq!(guest.filled(buffer), created(&number.to_string()));
    }
}

#[test]
fn a_guest_that_provides_nothing_is_told_of_a_loss_and_of_what_came_after_it() {
    let daemon = Daemon::start();
    let mut guest = Guest::begin(&daemon);
    for number in 0..KEPT + 3 {
        daemon.push(&number.to_string());
    }
    guest.assert_serves();
    assert_eq!(guest.next(), lost());
    for number in KEPT..KEPT + 3 {
        assert_eq!(guest.next(), created(&number.to_string()));
    }
}

#[test]
fn a_buffer_that_is_no_good_comes_back_empty_and_loses_nothing() {
    let daemon = Daemon::start();
    let mut guest = Guest::begin(&daemon);
    let bad = [
        guest.told.submit(&[], &[BUF_LEN - 1]).unwrap(),
        guest.told.submit(&[b"read me"], &[BUF_LEN]).unwrap(),
        guest.told.submit(&[b"read me"], &[]).unwrap(),
    ];
    // Two pieces are as good as one.
    let good = guest.told.submit(&[], &[5, BUF_LEN]).unwrap();
    guest.told.notify().unwrap();
    daemon.push("a");
    for buffer in bad {
        assert_eq!(guest.told.wait(buffer).unwrap().used_len, 0);
    }
    assert_eq!(guest.filled(good), created("a"));
    // One outside of the guest's memory.
    let head = guest.told.ring.take().unwrap();
    let outside = Descriptor { addr: u64::MAX - (1 << 20), len: BUF_LEN as u32, flags: WRITE, next: 0 };
    guest.told.ring.set_descriptor(head, outside);
    guest.told.ring.publish(head);
    daemon.push("b");
    assert_eq!(guest.told.wait_for_used().unwrap(), (u32::from(head), 0));
    assert_eq!(guest.next(), created("b"));
}

#[test]
fn a_broken_ring_ends_the_notifications_and_nothing_else() {
    let daemon = Daemon::start();
    let mut guest = Guest::begin(&daemon);
    guest.told.ring.publish(u16::MAX);
    daemon.push("a");
    guest.told.kick.wake().unwrap();
    guest.assert_serves();
    daemon.push("b");
    guest.assert_serves();
    // The next one is told nothing of it.
    drop(guest);
    let mut guest = Guest::begin(&daemon);
    daemon.push("c");
    assert_eq!(guest.next(), created("c"));
}

#[test]
fn a_stop_finds_no_buffer_taken_and_the_rest_is_told_after_it() {
    let daemon = Daemon::start();
    let mut guest = Guest::begin(&daemon);
    daemon.push("0");
    assert_eq!(guest.next(), created("0"));
    let buffers = [(); 2].map(|()| guest.provide());
    guest.told.notify().unwrap();
    daemon.push("1");
    assert_eq!(guest.filled(buffers[0]), created("1"));
    assert_eq!(guest.front_end.stop_queue(1).unwrap(), 2, "the buffer that is not used was not taken");
    daemon.push("2");
    daemon.push("3");
    guest.assert_serves();
    assert_eq!(guest.told.ring.used_idx(), 2);
    guest.front_end.restart_queue(1, &guest.told, 2).unwrap();
    assert_eq!(guest.filled(buffers[1]), created("2"));
    assert_eq!(guest.next(), created("3"));
}

#[test]
fn a_session_is_told_nothing_of_the_one_before() {
    let daemon = Daemon::start();
    let guest = Guest::begin(&daemon);
    daemon.push("old");
    guest.front_end.reset().unwrap();
    let Guest { front_end, .. } = guest;
    let (_hiprio, told) = (front_end.start_queue(0).unwrap(), front_end.start_queue(1).unwrap());
    let session = Session::begin(front_end.start_queue(2).unwrap()).unwrap();
    let mut guest = Guest { front_end, _hiprio, told, session };
    daemon.push("new");
    assert_eq!(guest.next(), created("new"));
}
