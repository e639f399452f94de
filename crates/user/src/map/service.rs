//! From the signal handler to a thread that can serve the fault, and back.
//!
//! The thread that faulted may hold any lock, so its handler does nothing but post the fault in a [`Slot`] and sleep.
//! Threads of our own take posts, find the mapping and serve it with all that the library has.
//!
//! Serving a fault waits for the daemon of its mount, which may never answer. So one thread more than serve is there to
//! take the next post, which may be another mount's: the one that takes a post starts another if it was the last.
//!
//! Order: a slot goes FREE, CLAIMED (by a handler), POSTED, TAKEN (by a thread), AGAIN or FAILS, FREE.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
};

use parking_lot::RwLock;
use rustix::thread::futex::{self, Flags};

use super::space;
use crate::fault::{Fault, Served, serve_with};

/// Faults under way at once; more wait for a slot. Looked through for each post.
const SLOTS: usize = 512;
/// Threads that stay when there is nothing to serve. A fault waits for the daemon most of its time, so there may be
/// more than processors.
const IDLE_MAX: usize = 4;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const AGAIN: u32 = 4;
const FAILS: u32 = 5;

/// One fault under way. All but `state` belongs to who has set that.
struct Slot {
    state: AtomicU32,
    address: AtomicUsize,
    is_write: AtomicBool,
}

static ALL: [Slot; SLOTS] =
    [const { Slot { state: AtomicU32::new(FREE), address: AtomicUsize::new(0), is_write: AtomicBool::new(false) } };
        SLOTS];
/// Counts posts; the threads sleep on it.
static POSTS: AtomicU32 = AtomicU32::new(0);
/// Counts slots that were given back; handlers without one sleep on it.
static RETURNS: AtomicU32 = AtomicU32::new(0);
static WITHOUT_SLOT: AtomicU32 = AtomicU32::new(0);
/// Threads that serve nothing now, those that are being started included.
static IDLE: AtomicUsize = AtomicUsize::new(0);
/// The process that has the threads: a child made by fork(2) has none.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Who serves the faults of an area.
pub(super) trait Faults: Send + Sync {
    /// Makes the access possible; false where it is not and will not be. Runs on a thread of its own, and may block.
    fn fault(&self, address: usize, is_write: bool) -> bool;
}

type Areas = BTreeMap<usize, (usize, Arc<dyn Faults>)>;

fn areas() -> &'static RwLock<Areas> {
    static AREAS: OnceLock<RwLock<Areas>> = OnceLock::new();
    AREAS.get_or_init(RwLock::default)
}

/// Has faults at `addresses` served by `faults`, until [`remove`].
///
/// Errors: those of starting the threads, with the first mapping.
pub(super) fn add(addresses: Range<usize>, faults: Arc<dyn Faults>) -> io::Result<()> {
    start()?;
    areas().write().insert(addresses.start, (addresses.end, faults));
    Ok(())
}

/// Ends that. Faults under way still refer to what served them.
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
        for _ in 0..IDLE_MAX {
            start_thread().map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
        }
        serve_with(post);
        Ok(())
    });
    started.map_err(io::Error::from_raw_os_error)
}

fn start_thread() -> io::Result<()> {
    IDLE.fetch_add(1, Ordering::SeqCst);
    let thread = std::thread::Builder::new().name("transom-fault".into()).spawn(work);
    if thread.is_err() {
        IDLE.fetch_sub(1, Ordering::SeqCst);
    }
    thread.map(drop)
}

/// Hands a fault over, and waits. Runs in the signal handler: atomics and futexes only.
fn post(fault: Fault) -> Served {
    if !space::contains(fault.address) || std::process::id() != PROCESS.load(Ordering::Acquire) {
        return Served::NotOurs;
    }
    let slot = claim();
    slot.address.store(fault.address, Ordering::Relaxed);
    slot.is_write.store(fault.is_write, Ordering::Relaxed);
    slot.state.store(POSTED, Ordering::Release);
    POSTS.fetch_add(1, Ordering::SeqCst);
    // It fails for a bad address only; so does every wake here.
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
        // Where one was given back since, it does not sleep.
        let _ = futex::wait(&RETURNS, Flags::PRIVATE, returns, None);
        WITHOUT_SLOT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What each of the threads does, until enough others are idle.
fn work() {
    loop {
        let posts = POSTS.load(Ordering::SeqCst);
        let mut was_idle = true;
        for slot in &ALL {
            if slot.state.compare_exchange(POSTED, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                was_idle = false;
                if IDLE.fetch_sub(1, Ordering::SeqCst) == 1 {
                    // Where the process may have no more threads, the next post waits for one of those that it has.
                    let _ = start_thread();
                }
                let state = if serve(slot) { AGAIN } else { FAILS };
                slot.state.store(state, Ordering::Release);
                let _ = futex::wake(&slot.state, Flags::PRIVATE, 1);
                IDLE.fetch_add(1, Ordering::SeqCst);
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
    // A fault that nobody answers would be a thread that never goes on.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).unwrap_or(false)
}
