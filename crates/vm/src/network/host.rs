//! The host's end of the channel: decides about each connection that the guest asks for, and makes it.

use std::{
    fs::File,
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
    thread,
    time::Duration,
};

use super::{
    Policy,
    frame::{self, Frame, invalid},
    link::{Link, STACK_LEN},
};

/// How long a connection to one address may take: two repetitions of a lost first packet.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Serves a guest's connections in threads of their own, until the channel ends.
pub(crate) fn serve(channel: OwnedFd, policy: Arc<Policy>) -> io::Result<()> {
    let mut channel = File::from(channel);
    let link = Link::new(channel.try_clone()?);
    thread::Builder::new().name("network".into()).spawn(move || {
        let mut buffer = Vec::new();
        let result = loop {
            match frame::read(&mut channel, &mut buffer) {
                Ok(Some(frame)) => {
                    if let Err(error) = handle(frame, &link, &policy) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // The guest has no connections from here on. Its machine ends the channel.
        link.close();
        if let Err(error) = result
            && error.kind() == io::ErrorKind::InvalidData
        {
            policy.refuse("*", &format!("the guest's agent broke the protocol: {error}"));
        }
    })?;
    Ok(())
}

/// Does what the guest asks for; never blocks, and sends nothing.
///
/// # Errors
///
/// Returns an error if the guest broke the protocol.
fn handle(frame: Frame<'_>, link: &Arc<Link>, policy: &Arc<Policy>) -> io::Result<()> {
    match link.apply(frame)? {
        None => Ok(()),
        Some(Frame::Open { stream, port, host }) => {
            link.open(stream)?;
            let (link, policy, host) = (Arc::clone(link), Arc::clone(policy), host.to_owned());
            let connected = move || {
                link.relay(stream, connect(&policy, &host, port));
                link.remove(stream);
                let _ = link.send(Frame::Closed { stream });
            };
            // Without a thread for it, the connection waits for the end of the run.
            let _ = thread::Builder::new().name("network".into()).stack_size(STACK_LEN).spawn(connected);
            Ok(())
        }
        Some(Frame::Denied { host }) => {
            policy.refuse(host, super::policy::NOT_ALLOWED);
            Ok(())
        }
        Some(other) => Err(invalid(format!("a guest does not send {other:?}"))),
    }
}

/// Connects to a host, if the policy allows it; counts what it refuses and what fails. Blocks.
fn connect(policy: &Policy, host: &str, port: u16) -> Option<TcpStream> {
    let result = policy.addresses(host, port).and_then(|addresses| connect_to_one(&addresses, port));
    result.map_err(|reason| policy.refuse(&format!("{host}:{port}"), &reason)).ok()
}

/// Connects to the first address that answers.
fn connect_to_one(addresses: &[IpAddr], port: u16) -> Result<TcpStream, String> {
    let mut reason = String::new();
    for &address in addresses {
        match TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_MAX) {
            Ok(socket) => {
                // The guest's own TCP has already gathered what belongs together.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Err(error) => reason = format!("{address}: {error}"),
        }
    }
    Err(reason)
}
