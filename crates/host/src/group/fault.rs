//! Mirrors whose files were cut off.
//!
//! A front end holds a descriptor of its guest's mirror and may truncate the file. Whoever then touches the mapping
//! gets SIGBUS, which would end every daemon of the group. A handler puts anonymous memory in place of the missing page
//! instead: the guest of that front end sees no more changes, and nobody else notices. Faults elsewhere are left to the
//! handler that was there before.

#![expect(unsafe_code, reason = "a signal handler that maps memory")]

use std::{
    ffi::c_int,
    mem::MaybeUninit,
    ptr,
    sync::{
        Once,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
};

/// Ranges of addresses that may be guarded at once: of one group there are as many as mirrors, and a process of tests
/// has a few groups.
const RANGES_MAX: usize = 1 << 15;
const PAGE_LEN: usize = 4096;

/// Start and end of each guarded range; free where the start is 0.
static RANGES: [[AtomicUsize; 2]; RANGES_MAX] = [const { [const { AtomicUsize::new(0) }; 2] }; RANGES_MAX];

/// The handler that was there before. Written once, before ours is installed.
static BEFORE: Before = Before(std::cell::UnsafeCell::new(MaybeUninit::zeroed()));

struct Before(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: it is written by one thread within `Once`, before the handler that reads it is installed.
unsafe impl Sync for Before {}

/// Keeps faults in a range of memory from ending the process, until it is dropped.
#[derive(Debug)]
pub(super) struct Guard(&'static [AtomicUsize; 2]);

impl Guard {
    /// Guards a mapping of whole pages. Returns `None` if too many are guarded.
    pub(super) fn new(start: usize, len_bytes: usize) -> Option<Self> {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let free = |range: &&[AtomicUsize; 2]| range[0].compare_exchange(0, usize::MAX, SeqCst, SeqCst).is_ok();
        let range = RANGES.iter().find(free)?;
        range[1].store(start + len_bytes, Release);
        range[0].store(start, Release);
        Some(Self(range))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0[1].store(0, Release);
        self.0[0].store(0, Release);
    }
}

fn install() {
    // SAFETY: a zeroed `sigaction` is a valid one: no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    // On the stack for signals, as the handler of the standard library that it replaces.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both point to `sigaction`s, of which nobody else uses `BEFORE` before the call returns: `Once` runs this
    // alone, and a fault in between does not read it, because the range is not in `RANGES` yet. The handler makes only
    // calls that are safe in one.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, (*BEFORE.0.get()).as_mut_ptr()) };
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid pointer, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let is_guarded = |range: &[AtomicUsize; 2]| {
        let start = range[0].load(Acquire);
        start != 0 && start <= address && address < range[1].load(Acquire)
    };
    if RANGES.iter().any(is_guarded) {
        let page = (address & !(PAGE_LEN - 1)) as *mut libc::c_void;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: the page is in a mapping that is ours until its guard is dropped, and whose memory is accessed as
        // atomics only, for which any bytes are valid. The call is a system call and nothing else.
        if unsafe { libc::mmap(page, PAGE_LEN, prot, flags, -1, 0) } != libc::MAP_FAILED {
            return;
        }
    }
    // The instruction faults again, and whoever handled faults before gets it.
    // SAFETY: `BEFORE` was written before this handler was installed.
    unsafe { libc::sigaction(signal, (*BEFORE.0.get()).as_ptr(), ptr::null_mut()) };
}
