//! Ports for devices that a machine gets while it runs: shares are plugged in and out.

use std::io;

use super::Machine;
use crate::{Error, GuestSpec, Result, Share, daemon::Daemon, qmp, snapshot::SHARES_MAX};

/// A share in a port.
#[derive(Clone, Debug)]
pub(crate) struct Plugged {
    pub(crate) tag: String,
    /// Its number among the daemons of the machine.
    pub(crate) daemon: usize,
    pub(crate) port: usize,
}

/// What is left of a share that is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    Device,
    Daemon,
    Nothing,
}

impl Machine {
    /// Starts the daemon of `share` and plugs its device in. The guest has to mount it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no port, if the daemon cannot start, or if QEMU refuses the device.
    pub(crate) fn plug(&mut self, spec: &GuestSpec, share: &Share) -> Result<Plugged> {
        let port = self.free_port()?;
        let Some(monitored) = &mut self.monitored else {
            return Err(Error::Usage("shares cannot be added to it: it has no connection for that".into()));
        };
        let number = self.daemons.len() + self.late_shares;
        self.late_shares += 1;
        let tag = format!("late{}", self.late_shares);
        let daemon = Daemon::start(spec, share, &tag, &self.dir, &[])?;
        if let Err(error) = monitored.plug(&daemon.point, port) {
            // What was made of it would be in the way of the next one.
            let _ = monitored.forget(port);
            daemon.abandon();
            return Err(Error::io("cannot plug the share in")(error));
        }
        self.late_daemons.insert(number, daemon);
        self.ports[port] = Some(tag.clone());
        Ok(Plugged { tag, daemon: number, port })
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
            if self.monitored.as_mut().is_some_and(|monitored| monitored.forget(port).is_ok()) {
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
            let Some(monitored) = &mut self.monitored else { return Ok(Remains::Nothing) };
            match monitored.forget(plugged.port) {
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
