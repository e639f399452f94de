//! SIGTERM, SIGHUP and SIGINT end the daemon at once; SIGHUP does not if a supervisor takes it as the order to upgrade.
//!
//! The signals are blocked before the first thread starts, so that all threads inherit the mask, and one thread waits
//! for them. This also works for the first process of a pid namespace, for which signals have no default action. A
//! signal that arrives before the waiting thread exists stays pending.

use crate::listen::Traces;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::Weak;
use std::thread;

/// The exit status after a signal, the same as virtiofsd.
const EXIT_STATUS: i32 = 1;

/// The signals that end the daemon.
pub(super) fn signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT].into_iter().collect()
}

/// Blocks the signals until `watch` takes them. Must be called before the first thread starts.
pub(super) fn hold_signals() -> io::Result<()> {
    let mut held = signals();
    // A guest that writes past the process's file size limit gets EFBIG; the signal sent with it would end the daemon.
    held.add(Signal::SIGXFSZ);
    Ok(held.thread_block()?)
}

/// Starts the thread that ends the process on a signal, after removing `traces` if they still exist.
///
/// No data is lost: everything that a guest was told is done has been passed to the host's kernel. With
/// `is_supervised`, SIGHUP is left to the supervisor: who sends it to all processes wants an upgrade too.
pub fn watch(traces: Weak<Traces>, is_supervised: bool) -> io::Result<()> {
    let wait = move || {
        let mut signal = signals().wait();
        while is_supervised && signal == Ok(Signal::SIGHUP) {
            signal = signals().wait();
        }
        if let Some(traces) = traces.upgrade() {
            traces.remove();
        }
        if let Ok(signal) = signal {
            tracing::info!(%signal, "ending");
        }
        std::process::exit(EXIT_STATUS);
    };
    thread::Builder::new().name("signals".into()).stack_size(128 * 1024).spawn(wait)?;
    Ok(())
}
