//! A signal that does nothing but interrupt the system call that one thread waits in.
#![expect(unsafe_code, reason = "signal handlers and tgkill")]

/// A thread that can be interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Thread(libc::pid_t);

extern "C" fn do_nothing(_: libc::c_int) {}

impl Thread {
    /// The calling thread, made ready to be interrupted.
    pub fn current() -> Self {
        // SAFETY: a zeroed `sigaction` is a valid one: no flags, hence no restart of calls, and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = do_nothing as *const () as usize;
        // SAFETY: the handler touches nothing, and `action` outlives the call.
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
        // SAFETY: takes no argument.
        Self(unsafe { libc::gettid() })
    }

    /// Interrupts the call that the thread is in, if it is in one.
    pub fn interrupt(self) {
        // SAFETY: takes numbers; a thread that has ended makes it fail and nothing else.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGUSR1) };
    }
}
