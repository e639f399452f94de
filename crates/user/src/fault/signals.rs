//! The handlers of SIGSEGV and SIGBUS.
//!
//! A fault is first offered to whoever serves a range of addresses ([`serve_with`]); one that is not served ends a
//! [`copy`](super::copy::copy) with an error, raises SIGBUS where it was for a mapped file, and otherwise goes to the handler
//! that was there before. Nothing here allocates or takes a lock: the interrupted code may hold any.

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

/// An access that the processor refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Of the byte.
    pub address: usize,
    /// Whether it was a store.
    pub is_write: bool,
}

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// It is nobody's.
    NotOurs,
    /// The access is to be made again.
    Again,
    /// There is nothing to access, and there will not be.
    Fails,
}

/// Of the error that the processor pushes: the access was a write.
const ERROR_IS_WRITE: i64 = 2;

/// `fn(Fault) -> Served`, or 0.
static SERVER: AtomicUsize = AtomicUsize::new(0);
static SEGV_BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static BUS_BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Has every fault that is the processor's offered to `serve`, from now on and in every thread.
///
/// It runs in a signal handler, whatever the thread was doing: it neither allocates nor takes a lock. It may block.
pub fn serve_with(serve: fn(Fault) -> Served) {
    SERVER.store(serve as usize, Ordering::Release);
    install();
}

/// Installs the handlers, once; those that are there are kept for what is not ours.
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
    // SAFETY: a structure of integers and pointers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is one to be filled in; no action is set.
    let status = unsafe { libc::sigaction(signal, ptr::null(), &mut action) };
    assert_eq!(status, 0, "sigaction(2) fails for a wrong signal only");
    action
}

fn install_one(signal: c_int) {
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    // On the alternate stack where the thread has one: the fault may be an overflow of the ordinary one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY:
    // 1. `on_fault` has the signature that SA_SIGINFO asks for, and does nothing that is not async-signal-safe.
    // 2. The action before is kept, and gets whatever is not ours.
    let status = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    assert_eq!(status, 0, "sigaction(2) fails for a wrong signal only");
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives both for the time of the handler, to nobody else.
    let (siginfo, ucontext) = unsafe { (&*info, &mut *context.cast::<ucontext_t>()) };
    let errno = errno();
    // One that was sent has no address.
    let is_fault = siginfo.si_code > 0;
    // SAFETY: a fault has one.
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
    // SAFETY: only `serve_with` stores, and a `fn(Fault) -> Served`.
    let serve = unsafe { std::mem::transmute::<usize, fn(Fault) -> Served>(serve) };
    serve(fault)
}

fn is_write(context: &ucontext_t) -> bool {
    context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_IS_WRITE != 0
}

/// Lets the interrupted copy end, if it is one.
fn lands(context: &mut ucontext_t) -> bool {
    let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let landing = instructions::landing(*at as usize);
    if let Some(landing) = landing {
        *at = landing as i64;
    }
    landing.is_some()
}

/// Sends this thread what the kernel sends for an access beyond the end of a file.
///
/// It arrives when this handler returns, before the access is made again, at whatever handler the program has for it; or it
/// ends the process.
fn raise_sigbus(address: usize) {
    // SAFETY: a structure of integers and pointers, for which zeros are valid.
    let mut info: siginfo_t = unsafe { std::mem::zeroed() };
    info.si_signo = libc::SIGBUS;
    info.si_code = libc::BUS_ADRERR;
    // SAFETY:
    // 1. On Linux the union of a fault begins with its address, at the first multiple of 8 behind three integers: offset 16,
    //    within the 128 bytes.
    // 2. The call reads `info`, which is a whole siginfo_t; a process may send any code to itself.
    unsafe {
        ptr::from_mut(&mut info).cast::<usize>().add(2).write(address);
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &info);
    }
}

/// Calls the handler that was there before; where there was none, lets the signal do what it does by default.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = if signal == libc::SIGSEGV { &SEGV_BEFORE } else { &BUS_BEFORE };
    let Some(before) = before.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault comes again with the access, and ends the process.
            // SAFETY: an action that was in force before, with nothing but the kernel's own behaviour.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
            // SAFETY: as the kernel gave it.
            if unsafe { (*info).si_code } <= 0 {
                // One that was sent does not.
                // SAFETY: sends a signal.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: SA_SIGINFO says that it has this signature; it gets what it would have got.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO it has this signature.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}

fn errno() -> c_int {
    // SAFETY: the address of the thread's own variable.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: the address of the thread's own variable.
    unsafe { *libc::__errno_location() = errno };
}
