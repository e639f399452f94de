//! [`ReconnectStage`] without a daemon, and with a socket in place of `/dev/fuse`.

use transom_wire::{NodeId, attr::EntryOut, ops::forget::ForgetOne};
use zerocopy::FromBytes as _;

use super::*;
use crate::{
    passthrough::RequestKind,
    reconnect::tables_test::entry,
    reply_out::Reply,
    testing::{FakeKernel, SLOTS, answer, fuse_device, header_of, queue, request},
};

/// The daemon's number of the file that the tests look up.
const DAEMON_NODE: u64 = 700;

/// A worker's queue, the stages that reconnecting uses, and the kernel's side.
struct Worker {
    queue: RequestQueue,
    stage: ReconnectStage,
    replies: ReplyWriter,
    kernel: FakeKernel,
}

impl Worker {
    fn new() -> Self {
        let (device, kernel) = fuse_device();
        let stage = ReconnectStage::new(Arc::new(Reconnect::new().unwrap()), usize::from(SLOTS) + 1);
        Self { queue: queue(), stage, replies: ReplyWriter::new(device), kernel }
    }

    /// Puts a request into a slot, and renumbers it.
    fn renumber(&mut self, message: &[u8]) -> (u16, RenumberVerdict) {
        let slot = self.queue.take_slot().unwrap();
        self.queue.write_request(slot, message);
        (slot, self.stage.renumber_request(&self.queue, slot, &header_of(message), message.len()))
    }

    /// Sends a request to the daemon. Returns its slot, and the request as the daemon gets it.
    fn send(&mut self, message: &[u8]) -> (u16, Vec<u8>) {
        let (slot, verdict) = self.renumber(message);
        assert_eq!(verdict, RenumberVerdict::Send);
        let args = self.queue.args(slot, message.len());
        self.queue.submit(slot, &header_of(message), message.len(), &args, RequestKind::Forwarded);
        let mut sent = vec![0; message.len()];
        self.queue.read_request(slot, &mut sent);
        (slot, sent)
    }

    /// Passes on a reply of the daemon. Returns the message for the daemon that follows from it.
    fn reply(&mut self, slot: u16, unique: u64, error: i32, body: &[u8]) -> Option<Vec<u8>> {
        let used = answer(&self.queue, slot, unique, error, body);
        let (header, body) = Reply::read(&self.queue, used).message.unwrap();
        let message = self.stage.reply(&self.replies, slot, &header, body).unwrap();
        self.queue.complete(slot);
        message
    }

    /// Looks a file up, and returns the kernel's number of it.
    fn look_up(&mut self) -> u64 {
        let (slot, _) = self.send(&request(Opcode::Lookup, 2, 1, b"file\0"));
        assert_eq!(self.reply(slot, 2, 0, entry(DAEMON_NODE, 5).as_bytes()), None);
        let (_, body) = self.kernel.reply().unwrap();
        EntryOut::read_from_bytes(&body).unwrap().nodeid.get()
    }
}

#[test]
fn the_kernel_gets_the_mounts_numbers_and_the_daemon_its_own() {
    let mut worker = Worker::new();
    let nodeid = worker.look_up();
    assert_ne!(nodeid, DAEMON_NODE);
    let getattr = request(Opcode::Getattr, 4, nodeid, &[0; 16]);
    let (slot, sent) = worker.send(&getattr);
    assert_eq!(sent, request(Opcode::Getattr, 4, DAEMON_NODE, &[0; 16]));
    // A reply without numbers is passed on as it is.
    assert_eq!(worker.reply(slot, 4, 0, b"attributes"), None);
    assert_eq!(worker.kernel.reply().unwrap().1, b"attributes");
}

#[test]
fn an_unanswered_request_is_kept_as_the_kernel_sent_it_whatever_the_daemon_writes_there() {
    let mut worker = Worker::new();
    let nodeid = worker.look_up();
    let getattr = request(Opcode::Getattr, 4, nodeid, &[0; 16]);
    let (slot, _) = worker.send(&getattr);
    worker.queue.write_request(slot, &[0xff; 56]);
    let unanswered = worker.stage.unanswered(&worker.queue, 3);
    assert_eq!(unanswered.len(), 1);
    assert_eq!((unanswered[0].worker, &unanswered[0].message), (3, &getattr));
    worker.reply(slot, 4, 0, &[]);
    assert!(worker.stage.unanswered(&worker.queue, 3).is_empty());
}

#[test]
fn a_request_about_an_inode_that_the_daemon_does_not_know_is_answered_here() {
    let mut worker = Worker::new();
    let (_, verdict) = worker.renumber(&request(Opcode::Getattr, 4, 99, &[0; 16]));
    assert_eq!(verdict, RenumberVerdict::Answer(Err(Errno::STALE)));
}

#[test]
fn an_invalid_reply_fails_with_eio_and_adds_no_inode() {
    let mut worker = Worker::new();
    let (slot, _) = worker.send(&request(Opcode::Lookup, 2, 1, b"file\0"));
    worker.reply(slot, 2, 0, &[1; 8]);
    worker.kernel.expect_error(2, Errno::IO);
    assert_eq!(worker.stage.shared.tables.lock().inodes.count(), 0);
}

#[test]
fn an_error_of_the_daemon_reaches_the_kernel() {
    let mut worker = Worker::new();
    let (slot, _) = worker.send(&request(Opcode::Getattr, 2, 1, &[0; 16]));
    worker.reply(slot, 2, -libc::EACCES, &[]);
    worker.kernel.expect_error(2, Errno::ACCESS);
}

#[test]
fn the_daemon_forgets_by_its_own_number_once_the_kernel_has_dropped_all_references() {
    let mut worker = Worker::new();
    let nodeid = worker.look_up();
    assert_eq!(worker.look_up(), nodeid);
    let forget = request(Opcode::Forget, 0, nodeid, &1_u64.to_le_bytes());
    assert_eq!(worker.stage.forget(&forget), None);
    let message = worker.stage.forget(&forget).unwrap();
    let header = header_of(&message);
    assert_eq!((header.opcode.get(), header.len.get() as usize), (Opcode::BatchForget as u32, message.len()));
    let one = ForgetOne::read_from_bytes(&message[size_of::<InHeader>() + size_of::<BatchForgetIn>()..]).unwrap();
    assert_eq!((NodeId::from(one.nodeid), one.nlookup.get()), (NodeId(DAEMON_NODE), 2));
}
