//! The handlers of SIGSEGV and SIGBUS.
//!
//! A fault is first offered to the function set with [`serve_with`]. If that does not serve it, the fault ends a
//! [`copy`](super::copy::copy) early, raises SIGBUS if it concerned a mapped file, or else goes to the previously
//! installed handler. Nothing here allocates or takes a lock, because the interrupted code may hold any lock.

#![expect(unsafe_code, reason = "signal handlers")]

use std::{
    ptr,
    sync::{
        Once, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use super::instructions;

/// A page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Address of the byte accessed.
    pub address: usize,
    /// Whether the access was a store.
    pub is_write: bool,
}

/// The outcome of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The address is not ours.
    NotOurs,
    /// The access is to be retried.
    Again,
    /// There is nothing to access, now or later.
    Fails,
}

/// Bit of the page-fault error code: the access was a write.
const ERROR_IS_WRITE: i64 = 2;

/// `fn(Fault) -> Served`, or 0.
static SERVER: AtomicUsize = AtomicUsize::new(0);
static SEGV_BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static BUS_BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Offers every page fault of every thread to `serve` from now on.
///
/// `serve` runs in a signal handler and must neither allocate nor take a lock. It may block.
pub fn serve_with(serve: fn(Fault) -> Served) {
    SERVER.store(serve as usize, Ordering::Release);
    install();
}

/// Installs the handlers once, and keeps the previous ones for signals that are not ours.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        instructions::landing(0);
        for (signal, before) in [(libc::SIGSEGV, &SEGV_BEFORE), (libc::SIGBUS, &BUS_BEFORE)] {
            before.get_or_init(|| action_of(signal));
            install_one(signal);
        }
    });
}

fn action_of(signal: c_int) -> libc::sigaction {
    // SAFETY: the structure consists of integers and pointers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is a valid place for the result; no new action is set.
    let status = unsafe { libc::sigaction(signal, ptr::null(), &mut action) };
    assert_eq!(status, 0, "sigaction(2) fails only for an invalid signal");
    action
}

fn install_one(signal: c_int) {
    // SAFETY: the structure consists of integers and pointers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    // Use the alternate stack if the thread has one, because the fault may be a stack overflow.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY:
    // 1. `on_fault` has the signature that SA_SIGINFO requires, and does nothing that is not async-signal-safe.
    // 2. The previous action is kept, and gets every signal that is not ours.
    let status = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    assert_eq!(status, 0, "sigaction(2) fails only for an invalid signal");
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both pointers, which are valid and unshared while the handler runs.
    let (siginfo, ucontext) = unsafe { (&*info, &mut *context.cast::<ucontext_t>()) };
    let errno = errno();
    // A signal sent by a process has no address.
    let is_fault = siginfo.si_code > 0;
    // SAFETY: a fault has an address.
    let address = is_fault.then(|| unsafe { siginfo.si_addr() } as usize);
    let served = match (signal, address) {
        (libc::SIGSEGV, Some(address)) => offer(Fault { address, is_write: is_write(ucontext) }),
        _ => Served::NotOurs,
    };
    match (served, address) {
        (Served::Again, _) => {}
        (_, Some(_)) if lands(ucontext) => {}
        (Served::Fails, Some(address)) => raise_sigbus(address),
        _ => pass_on(signal, info, context),
    }
    set_errno(errno);
}

fn offer(fault: Fault) -> Served {
    let serve = SERVER.load(Ordering::Acquire);
    if serve == 0 {
        return Served::NotOurs;
    }
    // SAFETY: only `serve_with` stores here, and it stores a `fn(Fault) -> Served`.
    let serve = unsafe { std::mem::transmute::<usize, fn(Fault) -> Served>(serve) };
    serve(fault)
}

fn is_write(context: &ucontext_t) -> bool {
    context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_IS_WRITE != 0
}

/// Ends the interrupted copy, if there is one. Returns whether there was.
fn lands(context: &mut ucontext_t) -> bool {
    let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let landing = instructions::landing(*at as usize);
    if let Some(landing) = landing {
        *at = landing as i64;
    }
    landing.is_some()
}

/// Sends this thread the signal that the kernel sends for an access past the end of a file.
///
/// It is delivered when this handler returns, before the access is retried, to the program's handler; without one it
/// ends the process.
fn raise_sigbus(address: usize) {
    // SAFETY: the structure consists of integers and pointers, for which zeros are valid.
    let mut info: siginfo_t = unsafe { std::mem::zeroed() };
    info.si_signo = libc::SIGBUS;
    info.si_code = libc::BUS_ADRERR;
    // SAFETY:
    // 1. On Linux, the union of a fault begins with its address, at the first multiple of 8 after three integers:
    //    offset 16, within the 128 bytes.
    // 2. The call reads `info`, which is a whole siginfo_t; a process may send any code to itself.
    unsafe {
        ptr::from_mut(&mut info).cast::<usize>().add(2).write(address);
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &info);
    }
}

/// Calls the previous handler; without one, lets the signal have its default effect.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = if signal == libc::SIGSEGV { &SEGV_BEFORE } else { &BUS_BEFORE };
    let Some(before) = before.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault recurs when the access is retried, and ends the process. SAFETY: the action was in force before,
            // and has only the kernel's default behaviour.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
            // SAFETY: the pointer is the one that the kernel passed.
            if unsafe { (*info).si_code } <= 0 {
                // A signal that was sent does not recur. SAFETY: the call takes no pointer.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the handler has this signature, and it gets the arguments that the kernel passed.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the handler has this signature.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}

fn errno() -> c_int {
    // SAFETY: the pointer is to a variable of this thread.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: the pointer is to a variable of this thread.
    unsafe { *libc::__errno_location() = errno };
}
