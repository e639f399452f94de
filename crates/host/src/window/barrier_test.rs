//! Mappings that wait together, against a front end that answers when the test says so.
//!
//! The front end shows each request to the test and waits for its answer. So a test sees the order of requests, and
//! what the window believes at each of them.

use std::{
    iter,
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use transom_wire::NodeId;

use super::{Channel, ChannelError, FrontEnd, MappedFile, Mapping, RANGE_LEN, Window};
use crate::Errno;

const RANGES: u64 = 32;
type Waiting = JoinHandle<Result<(), Errno>>;

/// A request, by the number of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Map(u64),
    Unmap(u64),
    Barrier,
}

use Request::{Barrier, Map, Unmap};

/// The side of the window. It asks, and waits for the answer.
struct Asking {
    requests: mpsc::Sender<Request>,
    answers: Mutex<mpsc::Receiver<Result<(), ChannelError>>>,
}

impl Asking {
    fn ask(&self, request: Request) -> Result<(), ChannelError> {
        let gone = || ChannelError::Lost("the test has ended".into());
        self.requests.send(request).map_err(|_| gone())?;
        self.answers.lock().unwrap().recv().unwrap_or_else(|_| Err(gone()))
    }
}

impl Channel for Asking {
    fn map(&self, mapping: &Mapping<'_>) -> Result<(), ChannelError> {
        self.ask(Map(mapping.window_offset / RANGE_LEN))
    }

    fn unmap(&self, window_offset: u64, _: u64) -> Result<(), ChannelError> {
        self.ask(Unmap(window_offset / RANGE_LEN))
    }

    fn barrier(&self) -> Result<(), ChannelError> {
        self.ask(Barrier)
    }
}

/// The side of the front end, played by the test.
struct Script {
    window: Arc<Window>,
    requests: mpsc::Receiver<Request>,
    answers: mpsc::Sender<Result<(), ChannelError>>,
}

impl Script {
    fn new(front_end: FrontEnd) -> Self {
        let ((sent, requests), (answers, received)) = (mpsc::channel(), mpsc::channel());
        let window = Arc::new(Window::new(RANGES * RANGE_LEN, front_end));
        window.connect(Box::new(Asking { requests: sent, answers: Mutex::new(received) })).unwrap();
        Self { window, requests, answers }
    }

    /// Waits for the next request, which has to be this one. It stays unanswered.
    fn expect(&self, request: Request) {
        assert_eq!(self.requests.recv().unwrap(), request);
    }

    fn answer(&self, answer: Result<(), ChannelError>) {
        self.answers.send(answer).unwrap();
    }

    /// Waits for these requests, and answers each.
    fn serve(&self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.expect(request);
            self.answer(Ok(()));
        }
    }

    /// Begins to map a range to the same range of a file of its own, in a thread.
    fn begin(&self, range: u64) -> Waiting {
        let window = self.window.clone();
        thread::spawn(move || map(&window, range, range))
    }

    fn map_range_0(&self) {
        let mapping = self.begin(0);
        self.serve([Map(0), Barrier]);
        mapping.join().unwrap().unwrap();
    }

    /// Begins to map these ranges while the front end has a request, so that all of them wait in this order.
    fn queue(&self, ranges: impl IntoIterator<Item = u64>) -> Vec<Waiting> {
        let queue = |range| {
            let jobs = self.window.shared_jobs();
            let waiting = self.begin(range);
            while self.window.shared_jobs() == jobs {
                thread::yield_now();
            }
            waiting
        };
        ranges.into_iter().map(queue).collect()
    }

    fn mapped(&self) -> Vec<u64> {
        self.window.offsets().into_iter().map(|offset| offset / RANGE_LEN).collect()
    }

    /// Checks that the front end has been sent all that it will be sent.
    fn has_no_request(self) {
        self.window.disconnect();
        assert_eq!(self.requests.iter().next(), None, "the channel ends with the connection");
    }
}

fn map(window: &Window, nodeid: u64, range: u64) -> Result<(), Errno> {
    let open = || {
        let fd = memfd_create("file", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, RANGES * RANGE_LEN)?;
        MappedFile::new(NodeId(nodeid), String::new(), fd, true, false, Box::new(()))
    };
    window.map(NodeId(nodeid), range * RANGE_LEN, range * RANGE_LEN, true, open)
}

fn outcomes(waiting: Vec<Waiting>) -> Vec<Result<(), Errno>> {
    waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn none_has_ended(waiting: &[Waiting]) -> bool {
    !waiting.iter().any(JoinHandle::is_finished)
}

fn refused() -> Result<(), ChannelError> {
    Err(ChannelError::Refused("no".into()))
}

fn lost() -> Result<(), ChannelError> {
    Err(ChannelError::Lost("closed".into()))
}

#[test]
fn six_mappings_that_come_during_a_barrier_share_the_next_one() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.serve([Map(0)]);
    script.expect(Barrier);
    let six = script.queue(1..7);
    assert!(script.mapped().is_empty());
    script.answer(Ok(()));
    assert_eq!(first.join().unwrap(), Ok(()));
    // That barrier was sent before they were mapped: it says nothing about them.
    script.serve((1..7).map(Map));
    script.expect(Barrier);
    assert_eq!(script.mapped(), [0]);
    assert!(none_has_ended(&six));
    script.answer(Ok(()));
    assert_eq!(outcomes(six), [Ok(()); 6]);
    assert_eq!(script.mapped(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(script.window.usage().maps, 7);
    script.has_no_request();
}

#[test]
fn a_mapping_that_comes_while_another_is_mapped_joins_it() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(3);
    script.expect(Map(3));
    let second = script.queue([2]);
    script.answer(Ok(()));
    script.serve([Map(2), Barrier]);
    assert_eq!((first.join().unwrap(), outcomes(second)), (Ok(()), vec![Ok(())]));
    script.has_no_request();
}

#[test]
fn a_front_end_that_needs_no_barrier_is_sent_none_and_nobody_waits_for_others() {
    let script = Script::new(FrontEnd::CROSVM);
    let first = script.begin(0);
    script.expect(Map(0));
    let second = script.queue([1]);
    script.answer(Ok(()));
    script.expect(Map(1));
    assert_eq!(first.join().unwrap(), Ok(()));
    assert!(none_has_ended(&second));
    script.answer(Ok(()));
    assert_eq!(outcomes(second), [Ok(())]);
    script.has_no_request();
}

#[test]
fn a_barrier_that_is_lost_fails_all_that_share_it() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.serve([Map(0)]);
    script.expect(Barrier);
    let six = script.queue(1..7);
    script.answer(Ok(()));
    first.join().unwrap().unwrap();
    script.serve((1..7).map(Map));
    script.expect(Barrier);
    let later = script.queue([7]);
    script.answer(lost());
    assert_eq!(outcomes(six), [Err(Errno::NOTCONN); 6]);
    assert_eq!(outcomes(later), [Err(Errno::NOTCONN)]);
    assert_eq!((script.mapped(), script.window.is_open(), script.window.usage().maps), (vec![0], false, 1));
    assert!(!script.window.has_node(NodeId(3)), "nothing keeps their files");
    script.has_no_request();
}

#[test]
fn a_channel_lost_between_mappings_fails_those_before_and_after_without_a_barrier() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let others = script.queue(1..5);
    script.answer(Ok(()));
    script.serve([Map(1)]);
    script.expect(Map(2));
    script.answer(lost());
    assert_eq!((first.join().unwrap(), outcomes(others)), (Err(Errno::NOTCONN), vec![Err(Errno::NOTCONN); 4]));
    assert_eq!((script.mapped(), script.window.is_open()), (vec![], false));
    script.has_no_request();
}

#[test]
fn what_was_unmapped_for_a_mapping_that_is_lost_is_not_mapped() {
    let script = Script::new(FrontEnd::QEMU);
    script.map_range_0();
    let window = script.window.clone();
    let over = thread::spawn(move || map(&window, 9, 0));
    script.serve([Unmap(0)]);
    script.expect(Map(0));
    script.answer(lost());
    assert_eq!(over.join().unwrap(), Err(Errno::NOTCONN));
    assert!(script.mapped().is_empty());
    assert_eq!(map(&script.window, 0, 0), Err(Errno::NOTCONN), "the guest would read what is not there");
    script.has_no_request();
}

#[test]
fn what_could_not_be_unmapped_on_a_lost_channel_stays_mapped() {
    let script = Script::new(FrontEnd::QEMU);
    script.map_range_0();
    let window = script.window.clone();
    let over = thread::spawn(move || map(&window, 9, 0));
    script.expect(Unmap(0));
    script.answer(lost());
    assert_eq!(over.join().unwrap(), Err(Errno::NOTCONN));
    assert_eq!((script.mapped(), map(&script.window, 0, 0)), (vec![0], Ok(())));
    script.has_no_request();
}

#[test]
fn a_refusal_fails_one_of_those_that_wait_together() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let others = script.queue(1..3);
    script.answer(Ok(()));
    script.expect(Map(1));
    script.answer(refused());
    script.serve([Map(2), Barrier]);
    assert_eq!((first.join().unwrap(), outcomes(others)), (Ok(()), vec![Err(Errno::IO), Ok(())]));
    assert_eq!(script.mapped(), [0, 2]);
    script.has_no_request();
}

#[test]
fn a_barrier_that_is_refused_fails_all_that_share_it() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let others = script.queue(1..3);
    script.answer(Ok(()));
    script.serve([Map(1), Map(2)]);
    script.expect(Barrier);
    script.answer(refused());
    assert_eq!((first.join().unwrap(), outcomes(others)), (Err(Errno::NOTCONN), vec![Err(Errno::NOTCONN); 2]));
    assert_eq!((script.mapped(), script.window.is_open()), (vec![], false));
    script.has_no_request();
}

#[test]
fn what_was_replaced_without_being_unmapped_is_not_mapped_when_the_barrier_is_lost() {
    let script = Script::new(FrontEnd::QEMU);
    script.map_range_0();
    let window = script.window.clone();
    let over = thread::spawn(move || map(&window, 9, 0));
    script.expect(Unmap(0));
    script.answer(refused());
    script.serve([Map(0)]);
    script.expect(Barrier);
    script.answer(lost());
    assert_eq!(over.join().unwrap(), Err(Errno::NOTCONN));
    assert!(script.mapped().is_empty(), "the front end shows another file there");
    script.has_no_request();
}

#[test]
fn others_go_on_while_mappings_wait_for_their_barrier() {
    let script = Script::new(FrontEnd::QEMU);
    script.map_range_0();
    let second = script.begin(1);
    script.expect(Map(1));
    let window = script.window.clone();
    let removal = thread::spawn(move || window.unmap(&[(0, RANGE_LEN)]));
    while script.window.shared_jobs() == 0 {
        thread::yield_now();
    }
    script.answer(Ok(()));
    script.serve([Unmap(0)]);
    script.expect(Barrier);
    // A removal needs no barrier. What is mapped is served, and the record can be read.
    assert_eq!(removal.join().unwrap(), Ok(()));
    assert_eq!((script.mapped(), script.window.has_node(NodeId(1))), (vec![], true));
    assert_eq!(script.window.unmap(&[(5 * RANGE_LEN, RANGE_LEN)]), Ok(()));
    script.answer(Ok(()));
    assert_eq!(second.join().unwrap(), Ok(()));
    script.has_no_request();
}

#[test]
fn the_first_mapping_waits_for_no_more_than_fifteen_others() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let others = script.queue(1..20);
    script.answer(Ok(()));
    script.serve((1..16).map(Map).chain([Barrier]));
    first.join().unwrap().unwrap();
    script.serve((16..20).map(Map).chain([Barrier]));
    assert_eq!(outcomes(others), [Ok(()); 19]);
    script.has_no_request();
}

#[test]
fn a_stop_withdraws_what_was_not_sent_and_confirms_what_was() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let others = script.queue(1..3);
    while !others.iter().chain(iter::once(&first)).all(JoinHandle::is_finished) {
        script.window.interrupt();
        thread::yield_now();
    }
    assert_eq!(outcomes(others), [Err(Errno::AGAIN); 2]);
    assert_eq!(first.join().unwrap(), Err(Errno::AGAIN));
    script.answer(Ok(()));
    script.expect(Barrier);
    assert!(script.mapped().is_empty());
    script.answer(Ok(()));
    // The late answer counts: the same mapping again needs no request.
    assert_eq!(map(&script.window, 0, 0), Ok(()));
    assert_eq!(script.mapped(), [0]);
    script.has_no_request();
}

#[test]
fn a_reset_ends_those_that_were_answered_before_it() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let second = script.queue([1]);
    script.answer(Ok(()));
    script.expect(Map(1));
    script.window.reset();
    script.answer(Ok(()));
    script.serve([Barrier]);
    assert_eq!((first.join().unwrap(), outcomes(second)), (Ok(()), vec![Ok(())]));
    assert_eq!(script.mapped(), [1]);
    script.has_no_request();
}

#[test]
fn a_new_connection_in_the_middle_fails_those_of_the_old_one() {
    let script = Script::new(FrontEnd::QEMU);
    let first = script.begin(0);
    script.expect(Map(0));
    let second = script.queue([1]);
    script.window.disconnect();
    assert_eq!(outcomes(second), [Err(Errno::NOTCONN)]);
    script.answer(Ok(()));
    // The old channel is sent no mapping of the new connection.
    script.expect(Barrier);
    script.answer(Ok(()));
    assert_eq!(first.join().unwrap(), Err(Errno::NOTCONN));
    assert!(script.mapped().is_empty());
    script.has_no_request();
}
