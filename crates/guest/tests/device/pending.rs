//! Requests that nobody waits for, on one thread: with wakers, in any order, dropped, and with a device that goes away.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use transom_conformance::memfs::MemFs;
use transom_guest::{
    Errno,
    channel::{Channel, ChannelError},
    device::{Settings, VirtioFs},
    session::{Caller, Pending, Request, Session, SessionConfig},
};
use transom_host::server::Server;
use transom_wire::{
    Name, NodeId,
    operation::{Create, Getattr, Lookup, Read, Write},
    ops::{create::CreateIn, getattr::GetattrIn, read::ReadIn, write::WriteIn},
};
use zerocopy::FromZeros as _;

use crate::{
    calls::call,
    fake::{ALL, EVENT_IDX, Fake, FakeTransport},
    platform::{Device, SLEEPING, Threads, device, direct},
    server::answer,
};

const CALLER: Caller<'static> =
    Caller { uid: 0, gid: 0, pid: 1, group: None, umask: 0, queue: 0, interrupt: None, raised: None };
const IN_FLIGHT: usize = 16;
/// Longer than anything here takes, unless it waits forever.
const FOREVER: Duration = Duration::from_secs(60);

/// Marks its task as ready.
struct Ready(Mutex<Vec<usize>>, AtomicUsize);

struct Task(usize, Arc<Ready>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.0.lock().unwrap().push(self.0);
        self.1.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs all tasks on this thread, which calls `idle` when none is ready.
fn run(mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>, mut idle: impl FnMut(&dyn Fn() -> bool)) {
    let ready = Arc::new(Ready(Mutex::new((0..tasks.len()).collect()), AtomicUsize::new(0)));
    let mut left = tasks.len();
    let mut is_over = vec![false; left];
    while left > 0 {
        let now = std::mem::take(&mut *ready.0.lock().unwrap());
        for task in now {
            let waker = Waker::from(Arc::new(Task(task, Arc::clone(&ready))));
            if !is_over[task] && tasks[task].as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                is_over[task] = true;
                left -= 1;
            }
        }
        if left > 0 {
            idle(&|| !ready.0.lock().unwrap().is_empty());
        }
    }
}

/// Serves a request queue: `batch` requests at a time, the last first, and calls `interrupt` after each batch for which
/// the driver wants an interrupt. Until `at_once` requests have been served, they are served one by one.
fn serve(
    fake: Arc<Fake>,
    batch: usize,
    at_once: usize,
    interrupt: impl Fn() + Send + 'static,
) -> thread::JoinHandle<()> {
    let server = Server::new(MemFs::default());
    thread::spawn(move || {
        let mut served = 0;
        loop {
            let mut chains = Vec::new();
            while chains.len() < if served < at_once { 1 } else { batch } {
                let Some(chain) = fake.pop_wait(1) else { return };
                chains.push(chain);
            }
            served += chains.len();
            let mut is_wanted = false;
            while let Some(chain) = chains.pop() {
                fake.while_running(1, || {
                    let written = chain.reply(&answer(&server, &chain));
                    is_wanted |= fake.push(1, chain.head.into(), written);
                });
            }
            if is_wanted {
                interrupt();
            }
        }
    })
}

fn begin(device: &Arc<Device>) -> Session<Threads> {
    Session::begin(Arc::clone(device) as Arc<dyn Channel>, Arc::new(Threads), SessionConfig::default()).unwrap()
}

/// Creates a file, writes its number to it, reads that, and compares.
async fn use_a_file(session: &Session<Threads>, number: usize) {
    let name = format!("file{number}");
    let args = CreateIn { flags: 2.into(), mode: 0o100_644.into(), ..CreateIn::new_zeroed() };
    let name = Name::new(name.as_bytes()).unwrap();
    let create = Request::<Create>::new(&CALLER, NodeId::ROOT, &args).unwrap().name(name).unwrap();
    let made = Pending::start(session, &CALLER, create).unwrap().await.unwrap();
    let (node, fh) = (NodeId::from(made.entry.nodeid), made.open.fh);

    let buffer = Arc::new(session.channel().buffer(4096).unwrap());
    buffer.write(0, &[number as u8; 100]);
    let args = WriteIn { fh, size: 100.into(), ..WriteIn::new_zeroed() };
    let write = Request::<Write>::new(&CALLER, node, &args).unwrap().data(Arc::clone(&buffer), 0..100).unwrap();
    assert_eq!(Pending::start(session, &CALLER, write).unwrap().await.unwrap().size.get(), 100);

    let args = ReadIn { fh, size: 1000.into(), ..ReadIn::new_zeroed() };
    let read = Request::<Read>::new(&CALLER, node, &args).unwrap().room(Arc::clone(&buffer), 1000..2000).unwrap();
    assert_eq!(Pending::start(session, &CALLER, read).unwrap().await, Ok(100));
    let mut bytes = [0; 100];
    buffer.read(1000, &mut bytes);
    assert_eq!(bytes, [number as u8; 100]);

    let lookup = Request::<Lookup>::new(&CALLER, NodeId::ROOT, &()).unwrap().name(name).unwrap();
    let found = Pending::start(session, &CALLER, lookup).unwrap().await.unwrap();
    assert_eq!(NodeId::from(found.nodeid), node);
    let getattr = Request::<Getattr>::new(&CALLER, node, &GetattrIn::new_zeroed()).unwrap();
    assert_eq!(Pending::start(session, &CALLER, getattr).unwrap().await.unwrap().attr.size.get(), 100);
}

#[test]
fn sixteen_operations_are_in_flight_on_one_thread_and_end_in_any_order() {
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    let device = Arc::new(device(&fake, SLEEPING));
    // INIT alone. After it, the device waits for sixteen requests: with fewer in flight, this test never ends.
    let server = serve(Arc::clone(&fake), IN_FLIGHT, 1, || {});
    let session = begin(&device);
    let tasks = (0..IN_FLIGHT).map(|number| Box::pin(use_a_file(&session, number)) as Pin<Box<dyn Future<Output = _>>>);
    run(tasks.collect(), |is_ready| session.drive(0, &mut || is_ready()));
    fake.vanish();
    server.join().unwrap();
}

#[test]
fn an_interrupt_handler_wakes_the_tasks() {
    for features in [ALL, ALL & !EVENT_IDX] {
        let fake = Arc::new(Fake::new(features, 1, 64));
        let device = Arc::new(device(&fake, SLEEPING));
        let handler = Arc::downgrade(&device);
        let server = serve(Arc::clone(&fake), IN_FLIGHT, 1, move || {
            if let Some(device) = handler.upgrade() {
                device.interrupt(1);
            }
        });
        let session = begin(&device);
        let tasks =
            (0..IN_FLIGHT).map(|number| Box::pin(use_a_file(&session, number)) as Pin<Box<dyn Future<Output = _>>>);
        // The thread that runs the tasks never looks at the device.
        run(tasks.collect(), |is_ready| {
            let begin = Instant::now();
            while !is_ready() {
                if begin.elapsed() > FOREVER {
                    fake.vanish();
                    panic!("no interrupt was requested for a reply");
                }
                thread::yield_now();
            }
        });
        fake.vanish();
        server.join().unwrap();
    }
}

#[test]
fn a_driver_that_does_not_lead_sees_a_change_that_comes_without_a_reply() {
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    let device = Arc::new(device(&fake, SLEEPING));
    let leader = {
        let device = Arc::clone(&device);
        thread::spawn(move || call(&device, 0, &[1; 40], &[]))
    };
    while device.queue_counts(1).unwrap().sleeps == 0 {
        thread::yield_now();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let driver = {
        let (device, is_over) = (Arc::clone(&device), Arc::clone(&is_over));
        thread::spawn(move || {
            let mut looks = 0;
            device.drive(0, &mut || {
                looks += 1;
                if looks == 1 {
                    sender.send(()).unwrap();
                }
                is_over.load(Ordering::SeqCst)
            });
            sender.send(()).unwrap();
        })
    };
    receiver.recv().unwrap();
    // Most likely, it sleeps by now; either way, it has to see this.
    thread::sleep(Duration::from_millis(50));
    is_over.store(true, Ordering::SeqCst);
    let outcome = receiver.recv_timeout(FOREVER);
    fake.vanish();
    assert_eq!(leader.join().unwrap(), Err(ChannelError::Gone));
    driver.join().unwrap();
    outcome.expect("the driver sleeps until there is a reply");
}

#[test]
fn requests_that_are_dropped_give_their_places_back() {
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    let settings = Settings { in_flight_max: 4, ..SLEEPING };
    let device: Arc<Device> =
        Arc::new(VirtioFs::new(FakeTransport(Arc::clone(&fake)), Arc::new(Threads), &direct(), settings).unwrap());
    let server = serve(Arc::clone(&fake), 1, 0, || {});
    let session = begin(&device);
    let getattr = || Request::<Getattr>::new(&CALLER, NodeId::ROOT, &GetattrIn::new_zeroed()).unwrap();
    for _ in 0..100 {
        let mut pending = pin!(Pending::start(&session, &CALLER, getattr()).unwrap());
        let _ = pending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    assert!(Pending::start(&session, &CALLER, getattr()).unwrap().wait().is_ok());
    fake.vanish();
    server.join().unwrap();
}

#[test]
fn a_device_that_goes_away_ends_what_is_pending() {
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    let device = Arc::new(device(&fake, SLEEPING));
    // Serves INIT, and then waits for more requests than there will be.
    let server = serve(Arc::clone(&fake), 1000, 1, || {});
    let session = Arc::new(begin(&device));
    let task = |session: Arc<Session<Threads>>| async move {
        let getattr = Request::<Getattr>::new(&CALLER, NodeId::ROOT, &GetattrIn::new_zeroed()).unwrap();
        let outcome = Pending::start(session, &CALLER, getattr).unwrap().await;
        assert_eq!(outcome.err(), Some(Errno::NOTCONN));
    };
    let tasks = (0..IN_FLIGHT).map(|_| Box::pin(task(Arc::clone(&session))) as Pin<Box<dyn Future<Output = _>>>);
    run(tasks.collect(), |is_ready| {
        fake.vanish();
        session.drive(0, &mut || is_ready());
    });
    server.join().unwrap();
}

#[test]
fn parts_that_no_request_can_have_are_refused() {
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    let device = Arc::new(device(&fake, SLEEPING));
    let server = serve(Arc::clone(&fake), 1, 0, || {});
    let session = begin(&device);
    let buffer = Arc::new(session.channel().buffer(4096).unwrap());
    let write = || Request::<Write>::new(&CALLER, NodeId::ROOT, &WriteIn::new_zeroed()).unwrap();
    for range in [0..buffer.len() + 1, usize::MAX - 1..usize::MAX, std::ops::Range { start: 2, end: 1 }] {
        assert_eq!(write().data(Arc::clone(&buffer), range).err(), Some(Errno::INVAL));
    }
    fake.vanish();
    server.join().unwrap();
}
