//! The filter of system calls as the daemon's process has it in the end, with its options and in its namespaces.

#![expect(unsafe_code, reason = "ptrace")]

use std::{ptr, thread, time::Duration, time::Instant};

use rustix::io::Errno;
use transom_frontend::{FrontEnd, Options, fuse::Session};

use crate::{
    launch::{Bench, has_user_namespaces, is_root, skipped},
    modes,
};

/// Whether a filter of process `pid` compares anything with `number`. `None`: filters cannot be read here.
fn filters_mention(pid: u32, number: libc::c_long) -> Option<bool> {
    const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
    let pid = pid.cast_signed();
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the request takes no memory.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) } != 0 {
        return None;
    }
    // SAFETY: the request takes no memory; the status may be null.
    unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none);
        libc::waitpid(pid, ptr::null_mut(), libc::__WALL);
    }
    let mut programs = Vec::new();
    for index in 0_usize.. {
        // SAFETY: without a buffer, the request returns the number of instructions.
        let len = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, pid, index, none) };
        let Ok(len @ 1..) = usize::try_from(len) else { break };
        let mut program = vec![libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; len];
        // SAFETY: the buffer has room for all instructions; the process is stopped, so that there are no more now.
        unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, pid, index, program.as_mut_ptr()) };
        programs.push(program);
    }
    // SAFETY: the request takes no memory.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, none, none) };
    let equals = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let mentions = |one: &libc::sock_filter| one.code == equals && libc::c_long::from(one.k) == number;
    (!programs.is_empty()).then(|| programs.concat().iter().any(mentions))
}

#[test]
fn a_daemon_without_handles_is_not_allowed_to_open_them() {
    if !is_root() {
        return skipped("needs root");
    }
    for (option, expected) in [("never", false), ("prefer", true)] {
        let bench = Bench::new();
        let mut daemon = bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} --inode-file-handles={option}"));
        // A daemon that answers has all of its filters.
        let _front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
        for number in [libc::SYS_open_by_handle_at, libc::SYS_name_to_handle_at] {
            let Some(is_listed) = filters_mention(daemon.serving_pid(), number) else {
                return skipped("filters of other processes cannot be read here");
            };
            assert_eq!(is_listed, expected, "{option}: {number}");
        }
    }
}

/// The daemon signals its own thread for that, by its number in its own namespace.
#[test]
fn a_wait_for_a_lock_is_interrupted_in_every_sandbox() {
    if !is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    for mode in modes() {
        let bench = Bench::new();
        let line = format!("--socket-path {{S}} --shared-dir {{D}} --posix-lock --sandbox {mode}");
        let mut daemon = bench.start(&line);
        let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
        let mut guest = Session::begin(front_end.start_queue(1).unwrap()).unwrap();
        let mut waiter = Session::new(front_end.start_queue(2).unwrap());
        let created = guest.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
        let (nodeid, fh) = (created.entry.nodeid.get(), created.open.fh.get());
        let exclusive = libc::F_WRLCK as u32;
        guest.setlk(nodeid, fh, 1, exclusive, false).unwrap();

        let waits = thread::spawn(move || waiter.setlk(nodeid, fh, 2, exclusive, true));
        let begun_at = Instant::now();
        while !waits.is_finished() {
            // Of the waiter's first request; the daemon may not have it yet.
            let _ = guest.interrupt(2);
            assert!(begun_at.elapsed() < Duration::from_secs(60), "{mode}: it still waits");
            thread::yield_now();
        }

        assert_eq!(waits.join().unwrap().unwrap_err().errno(), Some(Errno::INTR), "{mode}");
    }
}
