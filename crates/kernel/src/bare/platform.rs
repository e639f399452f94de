//! The platform of the guest library: a thread on each processor, which halts while it waits.

use alloc::boxed::Box;
use core::sync::atomic::{Ordering, fence};

use transom_guest::{
    Platform,
    platform::{self, PageSize},
};

use super::{
    arch,
    lock::RawLock,
    processors::{self, Quiet},
};

/// How long a processor waits before it is clear that a wake was lost: far longer than a busy machine takes.
pub(super) const LOST_NS: u64 = 120_000_000_000;

/// The size of a page, which is chosen when the kernel is built: see `Cargo.toml`.
pub(super) const PAGE_SIZE: PageSize = match (cfg!(feature = "pages-16k"), cfg!(feature = "pages-64k")) {
    (false, false) => PageSize::Kib4,
    (true, false) => PageSize::Kib16,
    (false, true) => PageSize::Kib64,
    (true, true) => panic!("a kernel has pages of one size"),
};

const _: () = assert!(cfg!(target_arch = "aarch64") || matches!(PAGE_SIZE, PageSize::Kib4), "a choice of aarch64 only");

/// Bytes of a page.
pub(super) const PAGE_LEN: u64 = PAGE_SIZE.bytes();
/// Number of pages in 2 MiB.
pub(super) const PAGES_PER_HUGE: u64 = PAGE_SIZE.pages_per_huge();

/// The bare machine.
pub(super) struct Bare;

impl Platform for Bare {
    const PAGE_SIZE: PageSize = PAGE_SIZE;

    type RawMutex = RawLock;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        arch::now_ns()
    }

    fn spawn(&self, _name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn is_single_threaded(&self) -> bool {
        processors::running() == 1
    }
}

/// An event: each waiter checks its condition after every interrupt, and a wake interrupts all who wait. There are as
/// many waiters as processors, so it would not pay to know who waits for what.
#[derive(Default)]
pub(super) struct Event;

impl platform::Event for Event {
    /// Panics after [`LOST_NS`] without a wake and without a deadline before that: somebody has lost it.
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        let me = processors::this();
        let begun_ns = arch::now_ns();
        loop {
            // An interrupt between the check and the pause is delivered in the pause, and ends it.
            let quiet = Quiet::begin();
            me.set_waiting(true);
            // The mark comes before the check, and in `wake_all` the change before the look at the mark: either the
            // change is seen here, or the mark is seen there.
            fence(Ordering::SeqCst);
            let is_over = is_done();
            let now_ns = arch::now_ns();
            if is_over || deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns) {
                me.set_waiting(false);
                return is_over;
            }
            assert!(deadline_ns.is_some() || now_ns - begun_ns < LOST_NS, "nobody has woken this processor");
            quiet.pause(deadline_ns.map_or(LOST_NS, |deadline_ns| (deadline_ns - now_ns).min(LOST_NS)));
        }
    }

    /// May be called by interrupt handlers: the interrupt has ended this processor's own pause.
    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        processors::call_waiting();
    }
}
