//! The signal that makes a blocked system call of one thread return EINTR.
//!
//! Its handler does nothing and is installed without SA_RESTART. A signal that arrives before the system call begins
//! has no effect, so the sender repeats it until the waiter has left: see [`super::waiters`].

#![expect(unsafe_code, reason = "signals to threads and their masks are neither in std nor in rustix")]

use std::{mem::MaybeUninit, ptr, sync::OnceLock};

use rustix::{
    io::Errno,
    process::{Pid, getpid},
    thread::gettid,
};

/// A thread that can be interrupted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target(Pid);

/// Unblocks the signal in this thread until it is dropped.
#[derive(Debug)]
pub(super) struct Unblocked {
    before: libc::sigset_t,
}

/// Installs the handler, once per process. Errors: EBUSY if the signal already has another handler.
pub(super) fn install() -> Result<(), Errno> {
    static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *INSTALLED.get_or_init(install_once)
}

/// Returns the signal's number, near the end of the real-time signals: the C library uses the first ones, and
/// rust-vmm's virtual CPUs use SIGRTMIN.
fn number() -> libc::c_int {
    libc::SIGRTMAX() - 2
}

extern "C" fn do_nothing(_: libc::c_int) {}

fn install_once() -> Result<(), Errno> {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action, the call writes the present one to `before`, which is a `struct sigaction` of ours.
    if unsafe { libc::sigaction(number(), ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the call succeeded, so it wrote all of `before`.
    if unsafe { before.assume_init() }.sa_sigaction != libc::SIG_DFL {
        return Err(Errno::BUSY);
    }
    // SAFETY: all zeroes is a valid `struct sigaction`: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY:
    // 1. `action` is initialised, and without SA_SIGINFO its handler is called with one int, as `do_nothing` wants.
    // 2. `do_nothing` touches nothing, and so may run at any point of any thread.
    // 3. Nobody loses a handler: the signal had the default action, which would have ended the process.
    if unsafe { libc::sigaction(number(), &raw const action, ptr::null_mut()) } != 0 {
        return Err(Errno::INVAL);
    }
    Ok(())
}

impl Target {
    /// Returns the calling thread.
    pub(super) fn this_thread() -> Self {
        Self(gettid())
    }

    /// Sends the signal to the thread, which belongs to this process and waits; [`install`] has succeeded.
    pub(super) fn interrupt(self) {
        let (process, thread) = (getpid().as_raw_nonzero().get(), self.0.as_raw_nonzero().get());
        // SAFETY: the call takes three numbers. If the thread has ended and its number now belongs to another thread
        // of this process, that thread runs a handler that does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, number()) };
    }
}

/// Unblocks the signal in the calling thread, whatever mask the thread was started with.
pub(super) fn unblock() -> Unblocked {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY:
    // 1. `sigemptyset` writes all of `set`, before it is read.
    // 2. The number is a signal's; `before` receives the mask. No call fails for valid arguments.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), number());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), before.as_mut_ptr());
        Unblocked { before: before.assume_init() }
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        // SAFETY: `before` is a mask that the kernel wrote.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}
