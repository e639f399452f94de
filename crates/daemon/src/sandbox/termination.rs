//! SIGTERM, SIGHUP and SIGINT end the daemon at once.
//!
//! The signals are blocked before any thread exists, so that each thread inherits that, and one thread waits for them.
//! That works for the first process of a pid namespace too, for which signals have no default action, and a signal
//! that comes before the thread is there is kept for it.

use crate::listen::Traces;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::Weak;
use std::thread;

/// The exit status after a signal: that of virtiofsd.
const EXIT_STATUS: i32 = 1;

/// The signals that end the daemon.
pub(super) fn signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT].into_iter().collect()
}

/// Keeps the signals until `watch` takes them. To be called before the first thread is started.
pub(super) fn hold_signals() -> io::Result<()> {
    let mut held = signals();
    // A guest that writes past the process's limit of file sizes gets EFBIG; the signal beside it would end the daemon.
    held.add(Signal::SIGXFSZ);
    Ok(held.thread_block()?)
}

/// Starts the thread that ends the process at a signal, after removing `traces` if they are still there.
///
/// Nothing is lost by it: what a guest was told is done has been handed to the host's kernel.
pub fn watch(traces: Weak<Traces>) -> io::Result<()> {
    let wait = move || {
        let signal = signals().wait();
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
