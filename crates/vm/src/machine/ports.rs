//! Ports for devices that a machine gets while it runs: shares are plugged in and out.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use super::Machine;
use crate::{Error, GuestSpec, Result, Share, daemon::Daemon, snapshot::SHARES_MAX};

/// How long QEMU may take to forget a device that the guest has released.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// A share in a port.
#[derive(Clone, Debug)]
pub(crate) struct Plugged {
    pub(crate) tag: String,
    /// Its number among the daemons of the machine.
    pub(crate) daemon: usize,
    pub(crate) port: usize,
}

impl Machine {
    /// Starts the daemon of `share` and plugs its device in. The guest has to mount it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no port, if the daemon cannot start, or if QEMU refuses the device.
    pub(crate) fn plug(&mut self, spec: &GuestSpec, share: &Share) -> Result<Plugged> {
        let port = (0..SHARES_MAX).find(|&port| self.ports[port].is_none()).ok_or_else(|| {
            Error::Usage(format!("it has room for {SHARES_MAX} shares, its root among them, and all are taken"))
        })?;
        let Some(monitored) = &mut self.monitored else {
            return Err(Error::Usage("shares cannot be added to it: it has no connection for that".into()));
        };
        self.late_shares += 1;
        let tag = format!("late{}", self.late_shares);
        let daemon = Daemon::start(spec, share, &tag, &self.dir, &[])?;
        if let Err(error) = monitored.plug(&daemon.point, port) {
            // What was made of it would be in the way of the next one.
            let _ = monitored.forget(port);
            return Err(Error::io("cannot plug the share in")(error));
        }
        self.daemons.push(daemon);
        self.ports[port] = Some(tag.clone());
        Ok(Plugged { tag, daemon: self.daemons.len() - 1, port })
    }

    /// Takes the device out of its port after the guest has switched it off. The daemon ends then. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if QEMU still has the device. The daemon is killed then, and the port stays taken.
    pub(crate) fn unplug(&mut self, plugged: &Plugged) -> io::Result<()> {
        let released = self.release(plugged);
        if released.is_err() {
            self.daemons[plugged.daemon].process.kill();
        }
        released
    }

    fn release(&mut self, plugged: &Plugged) -> io::Result<()> {
        let begun = Instant::now();
        let Some(monitored) = &mut self.monitored else { return Ok(()) };
        loop {
            match monitored.forget(plugged.port) {
                // The device is still there.
                Err(_) if begun.elapsed() < RELEASE_MAX => thread::sleep(Duration::from_millis(20)),
                result => {
                    result?;
                    self.ports[plugged.port] = None;
                    return Ok(());
                }
            }
        }
    }
}
