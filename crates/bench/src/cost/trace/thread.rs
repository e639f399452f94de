//! One traced thread: a step, and what it counts.

use std::collections::BTreeSet;

use anyhow::Context as _;
use nix::{
    errno::Errno,
    libc::user_regs_struct,
    sys::{ptrace, signal::Signal},
    unistd::Pid,
};

use super::{
    calls,
    clock::Clock,
    functions::{Function, Size},
    process::Process,
};
use crate::cost::counts::Counts;

/// A thread of the daemon.
pub(super) struct Thread {
    pub(super) tid: Pid,
    /// Which of the traced processes it belongs to.
    pub(super) process: usize,
    pub(super) state: State,
    /// To be delivered with the next step.
    pub(super) signal: Option<Signal>,
    /// The function under way whose instructions count by themselves.
    in_library: Option<Return>,
    /// The allocating function under way; what it calls is no allocation of the daemon's.
    in_allocator: Option<Return>,
    last_pc: u64,
    call: Option<SystemCall>,
    /// Its next stop is before a system call, not after it.
    is_entering: bool,
    /// The words that it has changed atomically, if that is recorded.
    pub(super) atomics: Option<BTreeSet<u64>>,
}

/// What the thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was begun by another thread, and has not stopped yet.
    New,
    /// It was stopped by us, most likely in a system call that the kernel begins anew.
    Interrupted,
    /// It is stopped before an instruction.
    Stopped,
    /// It is in a system call, which may wait.
    InCall,
}

/// Where a function ends: behind this call, with the stack above.
#[derive(Clone, Copy)]
struct Return {
    pc: u64,
    sp: u64,
}

/// A system call under way.
struct SystemCall {
    number: i64,
    args: [u64; 4],
    /// The timeout was taken away, and is put back.
    is_without_timeout: bool,
}

impl Thread {
    pub(super) fn new(tid: Pid, process: usize, state: State) -> Self {
        Self {
            tid,
            process,
            state,
            signal: None,
            in_library: None,
            in_allocator: None,
            last_pc: 0,
            call: None,
            is_entering: false,
            atomics: None,
        }
    }

    /// Returns whether the thread is not stopped.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::New | State::InCall)
    }

    /// Lets the stopped thread execute one instruction, and counts it. It is in a system call then if [`Thread::state`]
    /// says so; otherwise it stops at once.
    pub(super) fn step(&mut self, process: &mut Process, clock: &Clock, counts: &mut Counts) -> anyhow::Result<()> {
        if self.state == State::Interrupted {
            return self.enter_call();
        }
        let mut regs = ptrace::getregs(self.tid).context(REGISTERS)?;
        self.leave(&regs);
        while let Some(function) = process.function_at(regs.rip).filter(|_| self.in_library.is_none()) {
            let has_returned = self.enter(function, &mut regs, process, clock, counts)?;
            if !has_returned {
                break;
            }
        }
        let is_call = process.is_system_call(regs.rip)?;
        if let Some(atomics) = &mut self.atomics {
            atomics.extend(process.atomic_at(&regs));
        }
        // An instruction with a repeat prefix stops once for each time.
        if self.last_pc != regs.rip || is_call {
            match self.in_library {
                Some(_) => counts.library_instructions += 1.0,
                None => counts.instructions += 1.0,
            }
        }
        self.last_pc = regs.rip;
        if is_call {
            self.begin_call(regs, counts)?;
            return self.enter_call();
        }
        done(ptrace::step(self.tid, self.signal.take()))
    }

    /// Lets the thread go on in its system call.
    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        done(ptrace::syscall(self.tid, None))
    }

    /// Lets the thread run to its next system call, before which it is.
    ///
    /// A step would leave a signal behind with a thread that is then let go while it waits.
    fn enter_call(&mut self) -> anyhow::Result<()> {
        self.state = State::InCall;
        self.is_entering = true;
        done(ptrace::syscall(self.tid, self.signal.take()))
    }

    /// The thread has stopped before or after its system call.
    pub(super) fn at_call(&mut self, process: &Process, counts: &mut Counts) -> anyhow::Result<()> {
        if std::mem::take(&mut self.is_entering) {
            return self.go_on();
        }
        self.state = State::Stopped;
        let Some(call) = self.call.take() else { return Ok(()) };
        let result = self.restore_timeout(&call)?.rax as i64;
        let SystemCall { number, args, .. } = call;
        let is_wake = number == libc::SYS_futex && matches!(args[1] & FUTEX_COMMAND, FUTEX_WAKE | FUTEX_WAKE_BITSET);
        if is_wake && result > 0 {
            counts.wakes += result as f64;
        }
        if number == libc::SYS_write && result == 8 && process.is_eventfd(args[0]) {
            counts.wakes += 1.0;
        }
        Ok(())
    }

    /// Ends the functions that have returned.
    fn leave(&mut self, regs: &user_regs_struct) {
        let has_returned = |end: &Return| regs.rip == end.pc && regs.rsp > end.sp;
        self.in_library = self.in_library.filter(|end| !has_returned(end));
        self.in_allocator = self.in_allocator.filter(|end| !has_returned(end));
    }

    /// Counts a call of `function`; returns whether it is done already.
    fn enter(
        &mut self,
        function: Function,
        regs: &mut user_regs_struct,
        process: &Process,
        clock: &Clock,
        counts: &mut Counts,
    ) -> anyhow::Result<bool> {
        let end = Return { pc: process.word(regs.rsp)?, sp: regs.rsp };
        match function {
            Function::Allocate(size) => {
                if self.in_allocator.is_none() {
                    counts.allocations += 1.0;
                    counts.allocated_bytes += size_of(size, regs) as f64;
                    self.in_allocator = Some(end);
                }
                return Ok(false);
            }
            Function::Copy => {
                counts.copied_bytes += regs.rdx as f64;
                self.in_library = Some(end);
            }
            Function::Library => self.in_library = Some(end),
            Function::ClockGettime => {
                counts.clock_reads += 1.0;
                if let Some(time) = clock.read(regs.rdi as i32, counts) {
                    process.write_words(regs.rsi, time)?;
                    regs.rax = 0;
                    regs.rip = end.pc;
                    regs.rsp += 8;
                    ptrace::setregs(self.tid, *regs).context(REGISTERS)?;
                    return Ok(true);
                }
                self.in_library = Some(end);
            }
        }
        Ok(false)
    }

    fn begin_call(&mut self, mut regs: user_regs_struct, counts: &mut Counts) -> anyhow::Result<()> {
        let number = regs.rax as i64;
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10];
        // Where the vDSO cannot read a clock it asks the kernel, which the machine decides.
        if number == libc::SYS_clock_gettime {
            if self.in_library.is_none() {
                counts.clock_reads += 1.0;
            }
        } else {
            counts.add_system_call(calls::name(number));
        }
        // A time that a thread has from our clock is past on the kernel's: it would never sleep. What happens by
        // time alone is not a request's.
        let is_wait = number == libc::SYS_futex && matches!(args[1] & FUTEX_COMMAND, FUTEX_WAIT | FUTEX_WAIT_BITSET);
        let is_without_timeout = is_wait && regs.r10 != 0;
        if is_without_timeout {
            regs.r10 = 0;
            ptrace::setregs(self.tid, regs).context(REGISTERS)?;
        }
        self.call = Some(SystemCall { number, args, is_without_timeout });
        Ok(())
    }

    /// Puts the timeout back that [`Thread::begin_call`] has taken away, and returns the registers.
    fn restore_timeout(&self, call: &SystemCall) -> anyhow::Result<user_regs_struct> {
        let mut regs = ptrace::getregs(self.tid).context(REGISTERS)?;
        if call.is_without_timeout {
            regs.r10 = call.args[3];
            ptrace::setregs(self.tid, regs).context(REGISTERS)?;
        }
        Ok(regs)
    }

    /// Lets the stopped thread go for good.
    pub(super) fn release(&mut self) {
        // A thread that is gone needs nothing.
        if let Some(call) = self.call.take() {
            let _ = self.restore_timeout(&call);
        }
        let _ = ptrace::detach(self.tid, self.signal);
    }
}

const REGISTERS: &str = "the registers of a thread";

/// A thread that was killed meanwhile is no error here: whoever waits for it learns that.
fn done(result: nix::Result<()>) -> anyhow::Result<()> {
    match result {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).context("letting a thread go on"),
    }
}

/// The bits of a futex operation that say what it does.
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAKE_BITSET: u64 = 10;

fn size_of(size: Size, regs: &user_regs_struct) -> u64 {
    match size {
        Size::First => regs.rdi,
        Size::Second => regs.rsi,
        Size::Third => regs.rdx,
        Size::FirstTimesSecond => regs.rdi.saturating_mul(regs.rsi),
    }
}
