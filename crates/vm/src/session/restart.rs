//! Whether a run that failed may start again, in a machine that boots.

use std::sync::Arc;

use signal_hook::consts::SIGWINCH;

use super::Session;
use crate::{Error, Result, event::Event, machine::Machine, qmp::Patience};

impl Session<'_> {
    /// Returns the error that stands for `error` if nothing of the task has happened and booting may help.
    pub(crate) fn not_resumed(&self, error: Error, machine: &mut Machine) -> Error {
        if !machine.is_late() {
            return error;
        }
        match error {
            Error::NotResumed { .. } | Error::Interrupted(_) => error,
            // A snapshot may have led there, but the caller's time is up, or the command may have run.
            Error::TimedOut(_) if !self.is_command_started => machine.without_snapshot(error),
            Error::Panicked { .. } if self.is_going => machine.without_snapshot(error),
            Error::TimedOut(_) => error,
            _ if self.is_going => error,
            _ => machine.not_resumed(&error),
        }
    }

    /// Returns how long others may wait in this session's place.
    pub(crate) fn patience(&self) -> Patience {
        let until = self.spec.timeout.map(|timeout| self.begun + timeout);
        Patience { is_interrupted: Arc::clone(&self.is_interrupted), until }
    }

    /// Checks that the run may go on in another session.
    ///
    /// # Errors
    ///
    /// Returns the signal that has ended it, or that its time is up.
    pub(crate) fn check(&self) -> Result<()> {
        while let Ok(event) = self.events.try_recv() {
            if let Event::Signal(number) = event
                && number != SIGWINCH
            {
                return Err(Error::Interrupted(number));
            }
        }
        match self.spec.timeout {
            Some(timeout) if self.begun.elapsed() >= timeout => Err(Error::TimedOut(timeout)),
            _ => Ok(()),
        }
    }
}
