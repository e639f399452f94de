//! Hands faults from the signal handler to threads that can serve them.
//!
//! The faulting thread may hold any lock, so its handler only posts the fault in a [`Slot`] and sleeps. Service threads
//! take posted faults, find the mapping and serve it.
//!
//! Serving a fault waits for the daemon of its mount, which may never answer. Therefore one idle thread is left for the
//! next post, which may concern another mount: a thread that takes a post and was the last idle one starts another.
//! Where the process may have no more threads or mappings, nobody is idle, and the next post waits until a fault is
//! served.
//!
//! States of a slot: FREE, CLAIMED (by a handler), POSTED, TAKEN (by a thread), AGAIN or FAILS, FREE.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
        mpsc,
    },
};

use parking_lot::RwLock;
use rustix::thread::futex::{self, Flags};

use super::{room, space};
use crate::fault::{Fault, Served, serve_with};

/// Maximum number of concurrent faults; more wait for a slot. All slots are scanned for each post.
const SLOTS: usize = 512;
/// Number of idle threads kept. May exceed the number of CPUs, because serving a fault is mostly waiting for the
/// daemon.
const IDLE_MAX: usize = 4;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const AGAIN: u32 = 4;
const FAILS: u32 = 5;

/// One fault in progress. The other fields belong to whoever set `state`.
struct Slot {
    state: AtomicU32,
    address: AtomicUsize,
    is_write: AtomicBool,
}

static ALL: [Slot; SLOTS] =
    [const { Slot { state: AtomicU32::new(FREE), address: AtomicUsize::new(0), is_write: AtomicBool::new(false) } };
        SLOTS];
/// Counts posts; idle threads wait on it.
static POSTS: AtomicU32 = AtomicU32::new(0);
/// Counts slots that were freed; handlers without a slot wait on it.
static RETURNS: AtomicU32 = AtomicU32::new(0);
static WITHOUT_SLOT: AtomicU32 = AtomicU32::new(0);
/// Number of idle threads, including those being started.
static IDLE: AtomicUsize = AtomicUsize::new(0);
/// The process that has the service threads; a child made by fork(2) has none.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Serves the faults of an area.
pub(super) trait Faults: Send + Sync {
    /// Makes the access possible. Returns false if it is not, now or later. Runs on a service thread, and may block.
    fn fault(&self, address: usize, is_write: bool) -> bool;
}

type Areas = BTreeMap<usize, (usize, Arc<dyn Faults>)>;

fn areas() -> &'static RwLock<Areas> {
    static AREAS: OnceLock<RwLock<Areas>> = OnceLock::new();
    AREAS.get_or_init(RwLock::default)
}

/// Lets `faults` serve faults at `addresses`, until [`remove`].
///
/// # Errors
///
/// Returns the error of starting the service threads, with the first mapping.
pub(super) fn add(addresses: Range<usize>, faults: Arc<dyn Faults>) -> io::Result<()> {
    start()?;
    areas().write().insert(addresses.start, (addresses.end, faults));
    Ok(())
}

/// Undoes [`add`]. Faults in progress keep a reference to their `Faults`.
pub(super) fn remove(start: usize) {
    let gone = areas().write().remove(&start);
    drop(gone);
}

fn find(address: usize) -> Option<Arc<dyn Faults>> {
    let areas = areas().read();
    let (_, (end, faults)) = areas.range(..=address).next_back()?;
    (address < *end).then(|| Arc::clone(faults))
}

fn start() -> io::Result<()> {
    static STARTED: OnceLock<Result<(), i32>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        PROCESS.store(std::process::id(), Ordering::Release);
        let (has_begun, begun) = mpsc::channel();
        for _ in 0..IDLE_MAX {
            let has_begun = has_begun.clone();
            // If one cannot be started, this returns at once; the others stay, and wait for work.
            start_thread(move || _ = has_begun.send(()))
                .map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
        }
        // Where no mapping is left, a thread that begins ends the process ([`room::is_left`]), which may use up its
        // mappings as soon as this returns.
        for () in begun.iter().take(IDLE_MAX) {}
        serve_with(post);
        Ok(())
    });
    started.map_err(io::Error::from_raw_os_error)
}

/// Starts a service thread, which calls `begin` first.
fn start_thread(begin: impl FnOnce() + Send + 'static) -> io::Result<()> {
    IDLE.fetch_add(1, Ordering::SeqCst);
    let run = move || {
        begin();
        work();
    };
    let thread = std::thread::Builder::new().name("transom-fault".into()).spawn(run);
    if thread.is_err() {
        IDLE.fetch_sub(1, Ordering::SeqCst);
    }
    thread.map(drop)
}

/// Posts a fault and waits for its outcome. Runs in the signal handler, so it uses atomics and futexes only.
fn post(fault: Fault) -> Served {
    if !space::contains(fault.address) || std::process::id() != PROCESS.load(Ordering::Acquire) {
        return Served::NotOurs;
    }
    let slot = claim();
    slot.address.store(fault.address, Ordering::Relaxed);
    slot.is_write.store(fault.is_write, Ordering::Relaxed);
    slot.state.store(POSTED, Ordering::Release);
    POSTS.fetch_add(1, Ordering::SeqCst);
    // A wake fails only for an invalid address; the same holds for every wake below.
    let _ = futex::wake(&POSTS, Flags::PRIVATE, 1);
    let served = loop {
        match slot.state.load(Ordering::Acquire) {
            AGAIN => break Served::Again,
            FAILS => break Served::Fails,
            state => drop(futex::wait(&slot.state, Flags::PRIVATE, state, None)),
        }
    };
    slot.state.store(FREE, Ordering::Release);
    RETURNS.fetch_add(1, Ordering::SeqCst);
    if WITHOUT_SLOT.load(Ordering::SeqCst) > 0 {
        let _ = futex::wake(&RETURNS, Flags::PRIVATE, 1);
    }
    served
}

fn claim() -> &'static Slot {
    loop {
        let returns = RETURNS.load(Ordering::SeqCst);
        let is_claimed =
            |slot: &&Slot| slot.state.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if let Some(slot) = ALL.iter().find(is_claimed) {
            return slot;
        }
        WITHOUT_SLOT.fetch_add(1, Ordering::SeqCst);
        // Returns at once if a slot was freed since.
        let _ = futex::wait(&RETURNS, Flags::PRIVATE, returns, None);
        WITHOUT_SLOT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs in each service thread, until enough others are idle.
fn work() {
    loop {
        let posts = POSTS.load(Ordering::SeqCst);
        let mut was_idle = true;
        for slot in &ALL {
            if slot.state.compare_exchange(POSTED, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                was_idle = false;
                if IDLE.fetch_sub(1, Ordering::SeqCst) == 1 {
                    // If the process may not have more threads, the next post waits for an existing one.
                    if room::is_left() {
                        let _ = start_thread(|| {});
                    }
                }
                let state = if serve(slot) { AGAIN } else { FAILS };
                // Before the answer, which the next post may follow at once: this thread does not block until it looks
                // for that one.
                IDLE.fetch_add(1, Ordering::SeqCst);
                slot.state.store(state, Ordering::Release);
                let _ = futex::wake(&slot.state, Flags::PRIVATE, 1);
            }
        }
        if was_idle {
            let fewer = |idle: usize| idle.checked_sub(1).filter(|&left| left >= IDLE_MAX);
            if IDLE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
                return;
            }
            let _ = futex::wait(&POSTS, Flags::PRIVATE, posts, None);
        }
    }
}

fn serve(slot: &Slot) -> bool {
    let (address, is_write) = (slot.address.load(Ordering::Relaxed), slot.is_write.load(Ordering::Relaxed));
    let serve = || find(address).is_some_and(|faults| faults.fault(address, is_write));
    // After a panic the faulting thread must still be answered, or it would sleep forever.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).unwrap_or(false)
}
