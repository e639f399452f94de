//! Every operation with real servers: the file system in memory, and a directory of the host.

use std::sync::Arc;

use transom_guest::{
    Errno,
    channel::{Channel, Sink, Source},
    session::{Caller, PAGE_LEN, Session},
};
use transom_host::{
    passthrough::{Config, Passthrough},
    server::FileSystem,
};
use transom_wire::{Handle, NodeId, linux::O_RDWR, ops::write::WriteFlags};

use crate::{
    peer::{Peer, Plain, ROOT, in_memory, name, session},
    scenarios::SCENARIOS,
};

fn visit_all<F: FileSystem + 'static>(peer: &Arc<Peer<F>>) -> Session<Plain> {
    let session = session(peer);
    for (what, scenario) in SCENARIOS {
        scenario(&session).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert_eq!(session.counters().impossible_replies, 0);
    session.flush_forgets().unwrap();
    session
}

#[test]
fn every_operation_does_its_work_in_memory() {
    let (peer, _) = in_memory();
    let session = visit_all(&peer);
    let held = peer.fs().held();
    assert_eq!((held.inodes, held.lookups, held.handles), (1, 0, 0), "what was looked up was forgotten");
    session.destroy().unwrap();
}

#[test]
fn every_operation_does_its_work_on_a_directory_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { xattr: true, posix_lock: true, flock: true, ..Config::default() };
    let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
    let session = visit_all(&peer);
    assert_eq!(peer.fs().inode_count(), 0, "the root alone is held, and not counted");
    session.destroy().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn reads_and_writes_go_through_buffers_and_tickets() {
    let (peer, session) = in_memory();
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("file"), 0o600, O_RDWR).unwrap();
    let (node, fh) = (NodeId::from(entry.nodeid), Handle::from(open.fh));
    let buffer = Arc::new(peer.buffer(2 * PAGE_LEN).unwrap());
    buffer.write(10, b"through a buffer");

    let pending =
        session.write_start(&ROOT, node, fh, O_RDWR, WriteFlags::CACHE, 0, Arc::clone(&buffer), 10..26).unwrap();
    assert!(session.is_write_finished(&pending));
    assert_eq!(session.write_finish(pending), Ok(16));
    let pending = session.read_start(&ROOT, node, fh, O_RDWR, 8, Arc::clone(&buffer), 100..200).unwrap();
    assert_eq!(session.read_finish(pending), Ok(8));
    let mut back = [0; 8];
    buffer.read(100, &mut back);
    assert_eq!(&back, b"a buffer");

    assert_eq!(session.read(&ROOT, node, fh, O_RDWR, 0, Sink::Buffer(&buffer, 300, 7)), Ok(7));
    buffer.read(300, &mut back);
    assert_eq!(&back, b"through\0");
    let source = Source::Buffer(&buffer, 300, 8);
    assert_eq!(session.write(&ROOT, node, fh, O_RDWR, WriteFlags::empty(), 0, source), Ok(8));

    let outside = session.read(&ROOT, node, fh, O_RDWR, 0, Sink::Buffer(&buffer, 2 * PAGE_LEN, 1));
    assert_eq!(outside, Err(Errno::INVAL));
    let outside = session.read_start(&ROOT, node, fh, O_RDWR, 0, Arc::clone(&buffer), 0..2 * PAGE_LEN + 1);
    assert_eq!(outside.err(), Some(Errno::INVAL));
    session.release(&ROOT, node, fh, O_RDWR, 0, 0).unwrap();
    session.forget(node, 1);
}

#[test]
fn a_longer_read_or_write_is_cut_to_what_one_message_carries() {
    let (peer, session) = in_memory();
    let len_max = peer.data_len_max();
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("file"), 0o600, O_RDWR).unwrap();
    let (node, fh) = (NodeId::from(entry.nodeid), Handle::from(open.fh));
    let mut bytes = vec![1; len_max + 1];
    let written = session.write(&ROOT, node, fh, O_RDWR, WriteFlags::empty(), 0, Source::Bytes(&bytes));
    assert_eq!(written, Ok(len_max));
    assert_eq!(session.read(&ROOT, node, fh, O_RDWR, 0, Sink::Bytes(&mut bytes)), Ok(len_max));
    let before = peer.messages();
    assert_eq!(session.read(&ROOT, node, fh, O_RDWR, 0, Sink::Empty), Ok(0));
    assert_eq!(peer.messages(), before, "nothing is asked for nothing");
    session.forget(node, 1);
}

#[test]
fn a_file_without_a_name_is_made_and_written() {
    let (peer, session) = in_memory();
    let (entry, open) = session.tmpfile(&ROOT, NodeId::ROOT, 0o600, O_RDWR).unwrap();
    let (node, fh) = (NodeId::from(entry.nodeid), Handle::from(open.fh));
    assert_eq!(session.write_whole(&ROOT, node, fh, O_RDWR, WriteFlags::empty(), 0, b"text"), Ok(4));
    session.release(&ROOT, node, fh, O_RDWR, 0, 0).unwrap();
    session.forget(node, 1);
    session.flush_forgets().unwrap();
    assert_eq!(peer.fs().held().inodes, 1);
}

#[test]
fn callers_take_the_queue_that_they_name() {
    let (peer, session) = in_memory();
    peer.queues.lock().unwrap().clear();
    for queue in [0, 1, 2, 3, 65535] {
        session.getattr(&Caller { queue, ..ROOT }, NodeId::ROOT, None).unwrap();
    }
    assert_eq!(*peer.queues.lock().unwrap(), [0, 1, 2, 0, 0]);
}

#[test]
fn a_group_beside_the_callers_reaches_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::new(Passthrough::open(dir.path(), Config::default()).unwrap());
    let session = session(&peer);
    let caller = Caller { group: Some(0), ..ROOT };
    let entries = [
        session.mkdir(&caller, NodeId::ROOT, name("dir"), 0o755).unwrap(),
        session.symlink(&caller, NodeId::ROOT, name("symlink"), b"target").unwrap(),
        session.mknod(&caller, NodeId::ROOT, name("file"), 0o100_600, 0).unwrap(),
        session.create(&caller, NodeId::ROOT, name("created"), 0o600, O_RDWR).unwrap().0,
    ];
    assert_eq!(std::fs::read_link(dir.path().join("symlink")).unwrap().as_os_str(), "target");
    entries.iter().for_each(|entry| session.forget(entry.nodeid.into(), 1));
}
