//! Ports for devices that a machine gets while it runs: shares are plugged in and out.
//!
//! QEMU answers a plug once it has talked to the daemon. So that takes as long as the daemon does, and happens in a
//! thread of its own ([`Plug`]), which has QEMU for itself meanwhile.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
};

use super::Machine;
use crate::{
    Error, GuestSpec, Result, Share, SharePoint,
    daemon::Daemon,
    qmp,
    snapshot::{Monitored, SHARES_MAX},
};

/// A share in a port.
#[derive(Clone, Debug)]
pub(crate) struct Plugged {
    pub(crate) tag: String,
    /// Its number among the daemons of the machine.
    pub(crate) daemon: usize,
    pub(crate) port: usize,
}

/// A share that is about to be plugged in.
#[derive(Debug)]
pub(crate) struct Plug {
    monitored: Arc<Mutex<Monitored>>,
    point: SharePoint,
    port: usize,
}

/// A share that could not be plugged in.
#[derive(Debug)]
pub(crate) struct PlugError {
    pub(crate) source: io::Error,
    /// QEMU has nothing of it.
    is_port_free: bool,
}

impl Plug {
    /// Plugs the share in on a thread of its own, which calls `done` at the end. Errors: there is no thread.
    pub(crate) fn start(
        self,
        done: impl FnOnce(std::result::Result<(), PlugError>) + Send + 'static,
    ) -> std::result::Result<(), PlugError> {
        let run = move || done(self.run());
        thread::Builder::new().spawn(run).map(drop).map_err(|source| PlugError { source, is_port_free: true })
    }

    /// Blocks until QEMU has answered, which it does once the daemon has.
    fn run(self) -> std::result::Result<(), PlugError> {
        let mut monitored = self.monitored.lock().unwrap_or_else(PoisonError::into_inner);
        monitored.plug(&self.point, self.port).map_err(|source| {
            // What was made of it would be in the way of the next one.
            PlugError { source, is_port_free: monitored.forget(self.port).is_ok() }
        })
    }
}

/// What is left of a share that is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Nobody knows: QEMU is busy with another share.
    Unknown,
    Device,
    Daemon,
    Nothing,
}

impl Machine {
    /// Starts the daemon of `share`, and takes a port for its device. It is to be plugged in, and then the guest has to
    /// mount it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no port, or if the daemon cannot start.
    pub(crate) fn prepare_plug(&mut self, spec: &GuestSpec, share: &Share) -> Result<(Plugged, Plug)> {
        let port = self.free_port()?;
        let Some(monitored) = &self.monitored else {
            return Err(Error::Usage("shares cannot be added to it: it has no connection for that".into()));
        };
        let number = self.daemons.len() + self.late_shares;
        self.late_shares += 1;
        let tag = format!("late{}", self.late_shares);
        let daemon = Daemon::start(spec, share, &tag, &self.dir, &[])?;
        let plug = Plug { monitored: Arc::clone(monitored), point: daemon.point.clone(), port };
        self.late_daemons.insert(number, daemon);
        self.ports[port] = Some(tag.clone());
        Ok((Plugged { tag, daemon: number, port }, plug))
    }

    /// Checks a share that was plugged in, or not: without its daemon it is of no use.
    ///
    /// # Errors
    ///
    /// Returns an error if the guest cannot mount it. Nothing of it is left but, perhaps, its device.
    pub(crate) fn plugged(&mut self, plugged: &Plugged, outcome: std::result::Result<(), PlugError>) -> Result<()> {
        let error = match outcome {
            Ok(()) => match self.late_daemons.get_mut(&plugged.daemon).map(|daemon| daemon.process.ended()) {
                Some(None) => return Ok(()),
                _ => self.daemon_died(plugged.daemon),
            },
            Err(PlugError { source, is_port_free }) => {
                if is_port_free {
                    self.ports[plugged.port] = None;
                }
                Error::io("cannot plug the share in")(source)
            }
        };
        self.abandon(plugged);
        Err(error)
    }

    /// Returns the connection to QEMU, unless a share is being plugged in, or the machine has no connection.
    fn idle_monitor(&self) -> Option<MutexGuard<'_, Monitored>> {
        match self.monitored.as_ref()?.try_lock() {
            Ok(monitored) => Some(monitored),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns a port without a share. The guest may have released an abandoned device meanwhile.
    fn free_port(&mut self) -> Result<usize> {
        let mut abandoned = 0;
        for port in 0..SHARES_MAX {
            let Some(tag) = &self.ports[port] else { return Ok(port) };
            let has_daemon = |daemon: &Daemon| daemon.point.tag == *tag;
            if self.daemons.iter().chain(self.late_daemons.values()).any(has_daemon) {
                continue;
            }
            let is_forgotten = self.idle_monitor().is_some_and(|mut monitored| monitored.forget(port).is_ok());
            if is_forgotten {
                self.ports[port] = None;
                return Ok(port);
            }
            abandoned += 1;
        }
        let held = match abandoned {
            0 => String::new(),
            _ => format!("; {abandoned} of them were removed, but the guest does not let their devices go"),
        };
        Err(Error::Usage(format!("it has room for {SHARES_MAX} shares, its root among them, and all are taken{held}")))
    }

    /// Goes on with the end of a share whose device the guest has switched off: QEMU forgets the device, and the daemon
    /// ends. Returns what is still there; blocks only for QEMU's answer.
    ///
    /// # Errors
    ///
    /// Returns an error if QEMU does not answer.
    pub(crate) fn release(&mut self, plugged: &Plugged) -> io::Result<Remains> {
        if self.ports[plugged.port].as_ref() == Some(&plugged.tag) {
            if self.monitored.is_none() {
                return Ok(Remains::Nothing);
            }
            let Some(mut monitored) = self.idle_monitor() else { return Ok(Remains::Unknown) };
            let forgotten = monitored.forget(plugged.port);
            drop(monitored);
            match forgotten {
                Ok(()) => self.ports[plugged.port] = None,
                // The device is still there.
                Err(error) if error.kind() == qmp::REFUSED => return Ok(Remains::Device),
                Err(error) => return Err(error),
            }
        }
        let has_ended = |daemon: &mut Daemon| daemon.process.ended().is_some();
        if !self.late_daemons.get_mut(&plugged.daemon).is_none_or(has_ended) {
            return Ok(Remains::Daemon);
        }
        if let Some(daemon) = self.late_daemons.remove(&plugged.daemon) {
            daemon.remove();
        }
        Ok(Remains::Nothing)
    }

    /// Kills the daemon of a share, if it has not ended, so that the guest can do nothing more in it. The port stays
    /// taken until the guest lets the device go. Does not wait for the daemon's end.
    pub(crate) fn abandon(&mut self, plugged: &Plugged) {
        if let Some(daemon) = self.late_daemons.remove(&plugged.daemon) {
            daemon.abandon();
        }
    }

    /// Returns the error for a daemon that has ended and should not have.
    pub(crate) fn daemon_died(&mut self, number: usize) -> Error {
        match self.daemons.get_mut(number).or_else(|| self.late_daemons.get_mut(&number)) {
            Some(daemon) => daemon.died(),
            None => Error::Guest("the daemon of a share that was removed has ended".into()),
        }
    }

    /// Returns whether a number is that of the daemon of a share that the machine has got while it ran.
    pub(crate) fn is_late_daemon(&self, number: usize) -> bool {
        number >= self.daemons.len()
    }
}
