//! Listens for connections to allowed hosts, and passes them to the host.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    super::while_doing,
    names::{Lookup, Names},
};
use crate::network::{
    AllowedHost,
    frame::{self, Frame},
    link::{Link, STACK_LEN},
};

/// How long to wait after a connection could not be accepted.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The listeners, which grow with the names that are looked up.
#[derive(Debug)]
pub(super) struct Listeners {
    names: Names,
    link: Arc<Link>,
    /// The number of the last stream.
    streams: Arc<AtomicU32>,
}

/// Listens for all hosts that are known from the start; `channel` leads to the host.
///
/// # Errors
///
/// Returns an error if the system refuses a listener.
pub(super) fn start(channel: File, hosts: &[AllowedHost]) -> io::Result<Listeners> {
    let link = Link::new(channel.try_clone()?);
    let listeners = Listeners { names: Names::new(hosts), link: Arc::clone(&link), streams: Arc::default() };
    for host in hosts {
        if let Some(address) = host.host.own_address() {
            listeners.listen(address, &host.host.to_string(), &host.ports.iter().copied().collect())?;
        }
    }
    for name in listeners.names.single() {
        listeners.look_up(name)?;
    }
    spawn(move || read(channel, &link))?;
    Ok(listeners)
}

impl Listeners {
    /// Returns the address of a name in lower case, if it is allowed, and listens there.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many names, or the system refuses a listener.
    pub(super) fn look_up(&self, name: &str) -> io::Result<Option<Ipv4Addr>> {
        match self.names.lookup(name) {
            Lookup::Known(address) => Ok(Some(address)),
            Lookup::New(address, ports) => self.listen(address.into(), name, &ports).map(|()| Some(address)),
            Lookup::NotAllowed => Ok(None),
            Lookup::Full => Err(io::Error::other("too many names")),
        }
    }

    /// Tells the host that a program asked for a name that is not allowed.
    pub(super) fn denied(&self, name: &str) {
        // Without the host there is nobody to tell.
        let _ = self.link.send(Frame::Denied { host: name });
    }

    /// Accepts connections to `address`, which stands for `host`.
    fn listen(&self, address: IpAddr, host: &str, ports: &BTreeSet<u16>) -> io::Result<()> {
        for &port in ports {
            let listener = TcpListener::bind(SocketAddr::new(address, port))
                .map_err(while_doing(format!("cannot listen for {host} at {address}, port {port}")))?;
            let (link, streams, host) = (Arc::clone(&self.link), Arc::clone(&self.streams), host.to_owned());
            spawn(move || accept(&listener, &host, port, &link, &streams))?;
        }
        Ok(())
    }
}

/// Passes each connection of a listener to the host.
fn accept(listener: &TcpListener, host: &str, port: u16, link: &Arc<Link>, streams: &AtomicU32) {
    loop {
        let Ok((socket, _)) = listener.accept() else {
            // Without descriptors, it waits for connections to end.
            thread::sleep(RETRY_AFTER);
            continue;
        };
        let number = streams.fetch_add(1, Ordering::Relaxed);
        // What does not fit is closed, as by a host that is too busy.
        let opened = link.open(number).and_then(|()| link.send(Frame::Open { stream: number, port, host }));
        if opened.is_ok() {
            let link = Arc::clone(link);
            // The host's answer to the end of the stream frees its place.
            let _ = spawn(move || relay(&link, number, socket));
        }
    }
}

fn relay(link: &Link, number: u32, socket: TcpStream) {
    // The other side's TCP gathers what belongs together.
    let _ = socket.set_nodelay(true);
    link.relay(number, Some(socket));
}

/// Applies what the host sends, until the machine ends.
fn read(mut channel: File, link: &Link) {
    let mut buffer = Vec::new();
    while let Ok(Some(frame)) = frame::read(&mut channel, &mut buffer) {
        if let Ok(Some(Frame::Closed { stream })) = link.apply(frame) {
            link.remove(stream);
        }
    }
    link.close();
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_LEN).spawn(work).map(drop)
}
