//! The thread of a daemon that carries out the supervisor's orders.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    thread,
};

use transom_host::{passthrough::Passthrough, server::Server};

use super::{
    control::{Answer, Control, Order, RingPosition, VERSION},
    transfer,
};
use crate::backend::{Monitor, Ownership};

/// Exit status if the supervisor is gone, as after a signal.
const ORPHANED: i32 = 1;

/// Tells the supervisor that this daemon is ready, or that it goes on after a death with rings at the positions in
/// `restarted`, and carries its orders out from now on, on a thread of its own.
pub fn start(
    control: Control,
    restarted: Option<Vec<RingPosition>>,
    server: Arc<Server<Passthrough>>,
    monitor: Arc<Monitor>,
    ownership: Arc<Ownership>,
) -> io::Result<()> {
    control.answer(&restarted.map_or(Answer::Ready(VERSION), Answer::Restarted))?;
    thread::Builder::new().name("upgrade".into()).spawn(move || {
        let error = loop {
            match obey(&control, &server, &monitor, &ownership) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        // Nobody would end this daemon any more.
        tracing::error!(%error, "lost the supervisor: ending");
        std::process::exit(ORPHANED);
    })?;
    Ok(())
}

fn obey(control: &Control, server: &Server<Passthrough>, monitor: &Monitor, ownership: &Ownership) -> io::Result<()> {
    let outcome = match control.receive_order()?.ok_or(io::ErrorKind::BrokenPipe)? {
        Order::Check => server.file_system().hand_over_obstacle().map_or(Ok(()), |obstacle| Err(obstacle.to_string())),
        Order::HandOver(socket) => hand_over(server, monitor, &socket),
        Order::TakeOver(socket) => {
            ownership.share();
            take_over(server, &socket)
        }
        Order::Begin => {
            ownership.take();
            Ok(())
        }
        // No destructor runs: it would release the locks that the other daemon has now.
        Order::End => std::process::exit(0),
    };
    control.answer(&outcome.map_or_else(Answer::Refused, |()| Answer::Done))
}

fn take_over(server: &Server<Passthrough>, socket: &OwnedFd) -> Result<(), String> {
    let (state, descriptors) = transfer::receive(socket.as_fd()).map_err(|error| error.to_string())?;
    server.take_over(&state, descriptors).map_err(|error| error.to_string())
}

fn hand_over(server: &Server<Passthrough>, monitor: &Monitor, socket: &std::os::fd::OwnedFd) -> Result<(), String> {
    let held = monitor.held();
    if held > 0 {
        return Err(format!("{held} requests of the guest wait for a lock: try again when they have it"));
    }
    let session = server.hand_over().map_err(|error| error.to_string())?;
    transfer::send(socket.as_fd(), &session).map_err(|error| format!("the session cannot be sent: {error}"))
}
