//! Goes on after the death of the serving process: `--resilient`.
//!
//! The keeper inside the sandbox has started another process, which says where the rings stand. It is set up as the
//! front end has set up the one before; the front end waits for nothing but an answer. See `sandbox/outlive.rs`.

use std::{collections::BTreeMap, time::Instant};

use rustix::process::Signal;
use tracing::{error, info};

use super::{Supervisor, message::Connection, switch};
use crate::upgrade::control::{Answer, RingPosition};

impl Supervisor {
    /// Goes on if the daemon has said that it is another process now.
    pub(super) fn go_on_after_death(&mut self) {
        if !self.is_resilient || !switch::is_readable(&self.current.control) {
            return;
        }
        match self.current.control.receive_answer() {
            Ok(Some(Answer::Restarted(rings))) => {
                let begun = Instant::now();
                match self.reconnect(&rings) {
                    Ok(()) => {
                        info!(pause_us = begun.elapsed().as_micros() as u64, "the daemon goes on after its death")
                    }
                    Err(reason) => {
                        error!("the daemon has died, and the session cannot go on: {reason}");
                        self.relay = None;
                        self.current.signal(Signal::TERM);
                    }
                }
            }
            // It has ended, which is found out elsewhere.
            Ok(None) => _ = self.signals.wait(&[], Some(Instant::now() + switch::PAUSE)),
            Ok(Some(answer)) => error!(?answer, "the daemon sent an unexpected answer"),
            Err(error) => error!(%error, "lost the daemon"),
        }
    }

    fn reconnect(&mut self, rings: &[RingPosition]) -> Result<(), String> {
        let connected = self.current.connect().and_then(Connection::new);
        let mut connection = connected.map_err(|error| format!("cannot connect to it: {error}"))?;
        // A daemon whose front end has left meanwhile finds out by the end of this connection.
        let Some(relay) = &mut self.relay else { return Ok(()) };
        if let Some(obstacle) = relay.setup.obstacle() {
            return Err(obstacle);
        }
        relay.forget_asked();
        let positions: BTreeMap<u32, u32> = rings
            .iter()
            // Otherwise the front end has been told the position, and may have set up another.
            .filter(|ring| !ring.is_stopped || relay.awaits_base(ring.ring.into()))
            .map(|ring| (ring.ring.into(), ring.position.into()))
            .collect();
        self.set_up(&mut connection)?;
        self.set_rings_up(&mut connection, &positions)?;
        self.start_rings(&mut connection);
        match &mut self.relay {
            Some(relay) => relay.ask_again().map_err(|error| format!("it does not answer: {error}")),
            None => Ok(()),
        }
    }
}
