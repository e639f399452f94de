//! How a session ends while its requests are in progress.

use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use transom_wire::operation::{Forget, Getattr, Lookup};
use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    header::{InHeader, OutHeader},
    ops::init::InitIn,
};
use vm_memory::VolatileSlice;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;

/// How long a step may take before it counts as hanging.
const HANG_AFTER: Duration = Duration::from_secs(30);

/// A file system whose GETATTR blocks until [`Slow::go_on`], and then leaves something behind, as an OPEN does.
#[derive(Default)]
struct Slow {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    may_go_on: bool,
    in_getattr: usize,
    left_behind: usize,
    interrupts: usize,
    destroyed: Vec<End>,
}

impl Slow {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let waited = self.changed.wait_timeout_while(self.lock(), HANG_AFTER, |state| !is_so(state)).unwrap();
        assert!(!waited.1.timed_out(), "it does not come");
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn go_on(&self) {
        self.change(|state| state.may_go_on = true);
    }
}

/// Lets requests continue when a test ends, even one that fails.
struct GoOn<'a>(&'a Slow);

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

impl FileSystem for Slow {
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        Ok(InitAnswer {
            flags: offer.flags,
            max_readahead: 0,
            max_background: 1,
            congestion_threshold: 1,
            max_write: 4096,
            time_gran: 1,
            max_pages: 1,
            map_alignment: 0,
        })
    }

    fn destroy(&self, end: End) {
        self.change(|state| {
            state.left_behind = 0;
            state.destroyed.push(end);
        });
    }

    fn interrupt_all(&self) {
        self.change(|state| state.interrupts += 1);
    }
}

impl Serve<Lookup> for Slow {
    fn serve(&self, _: Call<'_, Lookup>) -> Result<EntryOut, Errno> {
        Err(Errno::NOENT)
    }
}

impl Serve<Forget> for Slow {
    fn serve(&self, _: Call<'_, Forget>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Serve<Getattr> for Slow {
    fn serve(&self, _: Call<'_, Getattr>) -> Result<AttrOut, Errno> {
        self.change(|state| state.in_getattr += 1);
        self.wait_until(|state| state.may_go_on);
        thread::yield_now();
        self.change(|state| state.left_behind += 1);
        Ok(AttrOut::default())
    }
}

crate::unserved!(Slow, except Lookup Forget Getattr);

/// Hands in a request; returns its errno, or 0, unless it is deferred.
fn call(server: &Server<Slow>, opcode: Opcode, body: &[u8], blocking: BlockingMode) -> Option<i32> {
    let mut header = InHeader::new_zeroed();
    header.len = ((size_of::<InHeader>() + body.len()) as u32).into();
    header.opcode = (opcode as u32).into();
    header.nodeid = 1.into();
    let (mut request, mut answer) = ([header.as_bytes(), body].concat(), [0; 256]);
    let readable = [VolatileSlice::from(&mut request[..])];
    let writable = [VolatileSlice::from(&mut answer[..])];
    match server.handle(&readable, &writable, &mut Scratch::default(), blocking) {
        ServeOutcome::Done(_) => Some(-OutHeader::read_from_prefix(&answer).unwrap().0.error.get()),
        ServeOutcome::Defer(target) => {
            assert_eq!(target, ExecutionTarget::Pool);
            None
        }
    }
}

fn init(server: &Server<Slow>, blocking: BlockingMode) -> Option<i32> {
    let mut arg = InitIn::new_zeroed();
    (arg.major, arg.minor) = (7.into(), 38.into());
    call(server, Opcode::Init, arg.as_bytes(), blocking)
}

fn begun() -> Server<Slow> {
    let server = Server::new(Slow::default());
    assert_eq!(init(&server, BlockingMode::MustNotBlock), Some(0));
    server.file_system().lock().destroyed.clear();
    server
}

const NOTCONN: Option<i32> = Some(libc::ENOTCONN);

/// Checks one way to end a session while a request is in progress on another thread: it ends after that request.
fn ends_after_its_requests(how: End, end: impl Fn(&Server<Slow>, BlockingMode) -> Option<i32> + Sync) {
    let server = begun();
    let fs = server.file_system();
    thread::scope(|scope| {
        let _go_on = GoOn(fs);
        let request = scope.spawn(|| call(&server, Opcode::Getattr, &[0; 16], BlockingMode::MayBlock));
        fs.wait_until(|state| state.in_getattr == 1);
        // 1. A caller that must not wait gets EAGAIN, and further requests are refused.
        if how != End::Reset {
            assert_eq!(end(&server, BlockingMode::MustNotBlock), None, "{how:?}");
            assert_eq!(call(&server, Opcode::Getattr, &[0; 16], BlockingMode::MustNotBlock), NOTCONN);
        }
        // 2. A caller that may wait does so, and wakes requests that wait for others.
        let ending = scope.spawn(|| end(&server, BlockingMode::MayBlock));
        fs.wait_until(|state| state.interrupts >= 2);
        assert_eq!(fs.lock().destroyed, [], "{how:?}");
        fs.go_on();
        assert_eq!(request.join().unwrap(), Some(0), "what has begun is answered");
        assert_eq!(ending.join().unwrap(), Some(0), "{how:?}");
    });
    let state = fs.lock();
    assert_eq!((&state.destroyed[..], state.left_behind), (&[how][..], 0));
}

#[test]
fn destroy_waits_for_requests_in_progress() {
    ends_after_its_requests(End::Destroy, |server, blocking| call(server, Opcode::Destroy, &[], blocking));
}

#[test]
fn init_waits_for_requests_of_the_session_before() {
    ends_after_its_requests(End::Init, init);
}

#[test]
fn the_end_of_the_transport_waits_for_requests_in_progress() {
    ends_after_its_requests(End::Reset, |server, _| {
        server.end_session();
        Some(0)
    });
}

#[test]
fn a_session_that_is_over_ends_once() {
    let server = begun();
    assert_eq!(call(&server, Opcode::Destroy, &[], BlockingMode::MustNotBlock), Some(0));
    assert_eq!(call(&server, Opcode::Destroy, &[], BlockingMode::MustNotBlock), NOTCONN);
    server.end_session();
    assert_eq!(server.file_system().lock().destroyed, [End::Destroy]);
}

#[test]
fn no_request_outlives_its_session_however_the_two_meet() {
    let server = begun();
    server.file_system().go_on();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let errno = call(&server, Opcode::Getattr, &[0; 16], BlockingMode::MayBlock);
                    assert!(errno == Some(0) || errno == NOTCONN);
                }
            });
        }
        for _ in 0..2000 {
            assert_eq!(call(&server, Opcode::Destroy, &[], BlockingMode::MayBlock), Some(0));
            assert_eq!(server.file_system().lock().left_behind, 0, "after the answer to DESTROY nothing is left");
            assert_eq!(init(&server, BlockingMode::MayBlock), Some(0));
        }
    });
}
