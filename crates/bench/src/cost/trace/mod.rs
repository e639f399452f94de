//! Runs the threads of a daemon instruction by instruction (ptrace), one thread at a time.
//!
//! A [`thread`] that waits in a system call gives way to the next one, so that which instructions are executed does not
//! depend on the machine or its load. [`functions`] that the C library chooses by the processor count by calls, and the
//! [`clock`] shows a time that follows from the counts.

mod atomics;
mod calls;
mod clock;
mod functions;
mod process;
mod thread;

use std::{collections::BTreeSet, fs, io, mem};

use anyhow::{Context as _, bail};
use nix::{
    errno::Errno,
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::counts::Counts;
use crate::process::{family, threads};
use clock::Clock;
use process::Process;
use thread::{State, Thread};

/// The threads of a daemon, under this thread's control. They go on by themselves once it is dropped.
pub(super) struct Tracer {
    processes: Vec<Process>,
    threads: Vec<Thread>,
    /// The thread whose turn it is.
    current: usize,
    counts: Counts,
    clock: Clock,
}

/// How far the daemon came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A system call was begun, or many instructions executed.
    Ran,
    /// All threads wait.
    Waits,
}

/// After so many instructions without a system call it is another thread's turn: this one may wait for that one.
const TURN_MAX: u32 = 200_000;

impl Tracer {
    /// Takes control of `pid`, the processes below it, and all their threads.
    pub(super) fn attach(pid: u32) -> anyhow::Result<Self> {
        let counts = Counts::default();
        let clock = Clock::new(&counts);
        let mut tracer = Self { processes: Vec::new(), threads: Vec::new(), current: 0, counts, clock };
        for pid in family(pid) {
            tracer.attach_process(pid)?;
        }
        Ok(tracer)
    }

    /// What has been counted so far.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Records from now on which words each thread changes atomically: locks, counts of references and others.
    pub(super) fn record_atomics(&mut self) {
        self.threads.iter_mut().for_each(|thread| thread.atomics = Some(BTreeSet::new()));
    }

    /// Returns these words for each thread that has changed any, by its number, and begins anew.
    pub(super) fn take_atomics(&mut self) -> Vec<(i32, BTreeSet<u64>)> {
        let taken = |thread: &mut Thread| (thread.tid.as_raw(), thread.atomics.as_mut().map(mem::take));
        let all = self.threads.iter_mut().map(taken);
        all.filter_map(|(tid, words)| Some((tid, words.filter(|words| !words.is_empty())?))).collect()
    }

    /// Returns the nanoseconds since the clock was set.
    pub(super) fn elapsed_ns(&self) -> i64 {
        self.clock.elapsed_ns(&self.counts)
    }

    /// Lets time go by in which nobody runs.
    pub(super) fn idle(&mut self, ns: i64) {
        self.clock.idle(ns);
    }

    /// Runs one thread until it has made a system call or waits in one.
    pub(super) fn run(&mut self) -> anyhow::Result<Progress> {
        self.look_at_waiting()?;
        let Some(index) = self.next_ready() else { return self.wait_for_any() };
        self.current = index;
        for _ in 0..TURN_MAX {
            let thread = &mut self.threads[index];
            let process = &mut self.processes[thread.process];
            thread.step(process, &self.clock, &mut self.counts)?;
            if thread.state == State::InCall {
                self.wait_or_leave(index)?;
                return Ok(Progress::Ran);
            }
            let status = waitpid(thread.tid, Some(WaitPidFlag::__WALL)).context("waiting for a thread")?;
            if !self.take_in(index, status)? {
                return Ok(Progress::Ran);
            }
        }
        self.current = index + 1;
        Ok(Progress::Ran)
    }

    fn attach_process(&mut self, pid: u32) -> anyhow::Result<()> {
        let number = self.processes.len();
        // Threads that begin meanwhile are seen in the next round.
        loop {
            let known = |tid: &u32| self.threads.iter().any(|thread| thread.tid == as_pid(*tid));
            let new: Vec<u32> = threads(pid).into_iter().filter(|tid| !known(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                self.seize(tid, number)?;
            }
        }
        self.processes.push(Process::open(pid)?);
        Ok(())
    }

    fn seize(&mut self, tid: u32, process: usize) -> anyhow::Result<()> {
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK;
        let tid = as_pid(tid);
        match ptrace::seize(tid, options) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(()),
            Err(Errno::EPERM) => bail!(NOT_PERMITTED),
            Err(error) => return Err(error).context("tracing the daemon"),
        }
        ptrace::interrupt(tid).context("stopping a thread")?;
        let status = waitpid(tid, Some(WaitPidFlag::__WALL)).context("waiting for a thread to stop")?;
        self.threads.push(Thread::new(tid, process, State::InCall));
        self.take_in(self.threads.len() - 1, status)?;
        Ok(())
    }

    /// Takes in what has happened to threads in system calls.
    fn look_at_waiting(&mut self) -> anyhow::Result<bool> {
        let mut has_news = false;
        let mut index = 0;
        while let Some(thread) = self.threads.get(index) {
            let mut is_there = true;
            if thread.is_running() {
                let status = waitpid(thread.tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
                match status.context("waiting for a thread")? {
                    WaitStatus::StillAlive => {}
                    status => {
                        has_news = true;
                        is_there = self.take_in(index, status)?;
                    }
                }
            }
            index += usize::from(is_there);
        }
        Ok(has_news)
    }

    /// The thread whose turn it is: the current one as long as it does not wait.
    fn next_ready(&self) -> Option<usize> {
        let count = self.threads.len();
        (0..count).map(|ahead| (self.current + ahead) % count).find(|index| !self.threads[*index].is_running())
    }

    /// Waits until one of the threads stops, or all of them sleep.
    fn wait_for_any(&mut self) -> anyhow::Result<Progress> {
        loop {
            let are_asleep =
                self.threads.iter().all(|thread| is_asleep(self.processes[thread.process].pid(), thread.tid));
            if self.look_at_waiting()? {
                return Ok(Progress::Ran);
            }
            if are_asleep {
                return Ok(Progress::Waits);
            }
            std::thread::yield_now();
        }
    }

    /// Waits for the end of a thread's system call, unless it sleeps in it.
    fn wait_or_leave(&mut self, index: usize) -> anyhow::Result<()> {
        loop {
            let Thread { tid, process, .. } = self.threads[index];
            let is_asleep = is_asleep(self.processes[process].pid(), tid);
            let status = waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
            match status.context("waiting for a thread")? {
                WaitStatus::StillAlive if is_asleep => return Ok(()),
                WaitStatus::StillAlive => std::thread::yield_now(),
                status => {
                    if !self.take_in(index, status)? || self.threads[index].state != State::InCall {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes in what happened to a thread; returns whether it is still there.
    fn take_in(&mut self, index: usize, status: WaitStatus) -> anyhow::Result<bool> {
        let thread = &mut self.threads[index];
        match status {
            WaitStatus::PtraceSyscall(_) => thread.at_call(&self.processes[thread.process], &mut self.counts)?,
            WaitStatus::Stopped(_, Signal::SIGTRAP) => thread.state = State::Stopped,
            WaitStatus::Stopped(_, signal) => {
                thread.signal = Some(signal);
                thread.state = State::Interrupted;
            }
            WaitStatus::PtraceEvent(_, _, EVENT_STOP) => {
                let is_new = thread.state == State::New;
                thread.state = if is_new { State::Stopped } else { State::Interrupted };
            }
            // A new thread, which stops by itself; this one is still in its call.
            WaitStatus::PtraceEvent(tid, _, _) => {
                let new = ptrace::getevent(tid).context("asking for a new thread")?;
                thread.go_on()?;
                let new = Thread::new(Pid::from_raw(new as i32), thread.process, State::New);
                self.threads.push(new);
            }
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                self.threads.remove(index);
                if self.threads.is_empty() {
                    bail!("the daemon ended");
                }
                return Ok(false);
            }
            other => bail!("a thread of the daemon did what is not expected: {other:?}"),
        }
        Ok(true)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            // A thread that is gone needs nothing.
            if thread.is_running() && ptrace::interrupt(thread.tid).is_ok() {
                let _ = waitpid(thread.tid, Some(WaitPidFlag::__WALL));
            }
            thread.release();
        }
    }
}

/// PTRACE_EVENT_STOP of linux/ptrace.h.
const EVENT_STOP: i32 = 128;

const NOT_PERMITTED: &str = "tracing the daemon is not permitted (ptrace: EPERM): run as root or as the daemon's \
    user, with /proc/sys/kernel/yama/ptrace_scope at 0 or 1, and in a container with the capability SYS_PTRACE";

fn as_pid(tid: u32) -> Pid {
    Pid::from_raw(tid as i32)
}

/// Whether a thread sleeps until something wakes it.
fn is_asleep(pid: u32, tid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
    is_sleeping(&stat).unwrap_or(true)
}

fn is_sleeping(stat: &io::Result<String>) -> Option<bool> {
    let (_, rest) = stat.as_ref().ok()?.rsplit_once(") ")?;
    Some(rest.starts_with('S'))
}
