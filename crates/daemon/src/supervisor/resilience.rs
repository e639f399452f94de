//! Goes on after the death of the serving process: `--resilient`.
//!
//! The keeper inside the sandbox has started another process, which says where the rings stand. It is set up as the
//! front end has set up the one before; the front end waits for nothing but an answer. See `sandbox/outlive.rs`.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{error, info};

use super::{
    Supervisor,
    generation::Generation,
    message::Connection,
    prepare::Passing,
    step::{Refusal, STEP_MAX},
};
use crate::upgrade::control::RingPosition;

impl Supervisor {
    /// Goes on if the daemon has said that it is another process now.
    pub(super) fn go_on_after_death(&mut self) {
        if !self.is_resilient {
            return;
        }
        match self.current.restarted() {
            Ok(rings) => self.go_on(&rings),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Usual at its end, of which a signal tells.
                info!(%error, "the daemon says no more");
                self.signals.is_ending = true;
            }
        }
    }

    fn go_on(&mut self, rings: &[RingPosition]) {
        let begun = Instant::now();
        match self.reconnect(rings) {
            Ok(()) => info!(pause_us = begun.elapsed().as_micros() as u64, "the daemon goes on after its death"),
            // That process has died too, and the next one has said so.
            Err(_) if self.has_died() || self.signals.is_ending => {}
            Err(reason) => {
                error!("the daemon has died, and the session cannot go on: {reason}");
                self.relay = None;
                self.signals.is_ending = true;
            }
        }
    }

    /// Returns whether the daemon is another process now, or has ended, and [`Supervisor::go_on_after_death`] is due.
    pub(super) fn has_died(&self) -> bool {
        self.is_resilient && has_said_something(&self.current)
    }

    /// Sets the present daemon up like the process that has died.
    fn reconnect(&mut self, rings: &[RingPosition]) -> Result<(), Refusal> {
        self.check_front_end()?;
        let Some(relay) = &mut self.relay else {
            if self.front_ends > 0 {
                // The front end has left, perhaps before the process that died could end its session. The end of this
                // connection tells the next process.
                self.current.connect().map_err(|error| format!("cannot connect to the next process: {error}"))?;
            }
            return Ok(());
        };
        relay.forget_asked();
        let positions: BTreeMap<u32, u32> = rings
            .iter()
            // Otherwise the front end has been told the position, and may have set up another.
            .filter(|ring| !ring.is_stopped || relay.awaits_base(ring.ring.into()))
            .map(|ring| (ring.ring.into(), ring.position.into()))
            .collect();
        let connected = self.current.connect().and_then(Connection::new);
        let mut connection = connected.map_err(|error| format!("cannot connect to the next process: {error}"))?;
        let deadline = Instant::now() + STEP_MAX;
        self.set_up(&mut connection, (deadline, Passing::Nothing))?;
        self.set_rings_up(&mut connection, &positions, deadline)?;
        self.serve_rings(&mut connection).map_err(|error| error.to_string())?;
        match &mut self.relay {
            Some(relay) => relay.ask_again().map_err(|error| format!("the front end cannot be answered: {error}")),
            None => Ok(()),
        }
    }
}

fn has_said_something(daemon: &Generation) -> bool {
    let at_once = Timespec::try_from(Duration::ZERO).ok();
    poll(&mut [PollFd::new(daemon, PollFlags::IN)], at_once.as_ref()).is_ok_and(|ready| ready > 0)
}
