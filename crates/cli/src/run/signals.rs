//! Signals before the guest starts, which then has handlers of its own.
//!
//! A handler stays once it is installed, so what a signal does is decided by flags: while an image is unpacked, the
//! first one is noted and the second one ends this process; otherwise each ends it, as without a handler.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag, low_level,
};
use transom_vm::{Error, Result};

/// The signals that end a run.
pub(super) const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The handlers, until they are dropped.
#[derive(Debug)]
pub(super) struct Signals {
    number: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    handlers: Vec<SigId>,
}

impl Signals {
    /// Notes signals from now on.
    pub(super) fn note() -> Result<Self> {
        let mut signals = Self {
            number: Arc::new(AtomicUsize::new(0)),
            ends: Arc::new(AtomicBool::new(false)),
            handlers: Vec::new(),
        };
        for number in ENDING {
            let (noted, ends) = (&signals.number, &signals.ends);
            // In this order, so that the first one does not see what it sets itself.
            let registered = [
                flag::register_conditional_default(number, Arc::clone(ends)),
                flag::register_usize(number, Arc::clone(noted), number.unsigned_abs() as usize),
                flag::register(number, Arc::clone(ends)),
            ];
            for handler in registered {
                signals.handlers.push(handler.map_err(Error::io("cannot take over the signals"))?);
            }
        }
        Ok(signals)
    }

    /// Returns whether one has come.
    pub(super) fn has_come(&self) -> bool {
        self.number.load(Ordering::Relaxed) > 0
    }

    /// Lets signals end this process from now on.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`] if one has come already.
    pub(super) fn let_end(&self) -> Result<()> {
        self.ends.store(true, Ordering::SeqCst);
        match self.number.load(Ordering::SeqCst) {
            0 => Ok(()),
            number => Err(Error::Interrupted(i32::try_from(number).unwrap_or(SIGINT))),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            low_level::unregister(handler);
        }
    }
}
