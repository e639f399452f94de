//! The guest's network: the hosts that are allowed, or a device that QEMU connects.
//!
//! Allowed hosts have addresses of this machine's loopback device: a name gets one of 127.1.0.0/16, an address is added
//! to the device, so that programs use it unchanged. [`dns`] answers for the names, [`listeners`] accept connections
//! and pass them to the host.

mod dns;
mod listeners;
mod names;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{channels, mounts::NO_DEVICE, netlink, while_doing};
use crate::{network::AllowedHost, protocol::GuestNetwork};

/// Where the agent answers questions for names. Programs of the guest can still listen on port 53 of 127.0.0.1.
const RESOLVER: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);

/// Addresses in QEMU's user-mode network, as its documentation has them.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const GUEST_PREFIX_LEN: u8 = 24;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const NETWORK_RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

/// A device that is plugged into the running machine appears within this time.
const APPEAR_MAX: Duration = Duration::from_secs(10);

/// Names the resolver in the root, before shares are mounted there: what is written stays in the guest's memory.
pub(super) fn name_resolver(network: &GuestNetwork) -> io::Result<()> {
    let resolver = match network {
        GuestNetwork::Off => return Ok(()),
        GuestNetwork::Allowed(_) => {
            // What the host knows of other machines leads to addresses that are not there.
            replace("/etc/hosts", "127.0.0.1 localhost\n")?;
            RESOLVER
        }
        GuestNetwork::Whole => NETWORK_RESOLVER,
    };
    replace("/etc/resolv.conf", &format!("nameserver {resolver}\n"))
}

/// Writes a file in place of what is there, which may be a symbolic link.
fn replace(path: &str, content: &str) -> io::Result<()> {
    let doing = || format!("cannot replace {path}");
    fs::create_dir_all("/etc").map_err(while_doing(doing()))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(while_doing(doing())(error)),
        _ => {}
    }
    fs::write(path, content).map_err(while_doing(doing()))
}

/// Connects the guest. `channel` is the device of the channel for allowed hosts.
///
/// # Errors
///
/// Something cannot be configured. The error is of the kind [`NO_DEVICE`] if no network device appears.
pub(super) fn start(network: &GuestNetwork, channel: &str) -> io::Result<()> {
    match network {
        GuestNetwork::Off => Ok(()),
        GuestNetwork::Allowed(hosts) => start_allowed(hosts, channel),
        GuestNetwork::Whole => configure_device(),
    }
}

fn start_allowed(hosts: &[AllowedHost], channel: &str) -> io::Result<()> {
    for address in hosts.iter().filter_map(|host| host.host.own_address()) {
        if !address.is_loopback() {
            let prefix_len = if address.is_ipv4() { 32 } else { 128 };
            netlink::add_address(netlink::LOOPBACK, address, prefix_len)
                .map_err(while_doing(format!("cannot give the loopback device the address {address}")))?;
        }
    }
    let listeners = listeners::start(channels::open_one(channel)?, hosts)?;
    dns::serve(IpAddr::from(RESOLVER), listeners).map_err(while_doing(format!("cannot answer for names at {RESOLVER}")))
}

/// Configures the device of QEMU's user-mode network.
fn configure_device() -> io::Result<()> {
    let device = network_device()?;
    netlink::bring_up(device).map_err(while_doing("cannot bring up the network device"))?;
    netlink::add_address(device, GUEST.into(), GUEST_PREFIX_LEN)
        .map_err(while_doing(format!("cannot give the network device the address {GUEST}")))?;
    netlink::add_default_route(device, GATEWAY.into())
        .map_err(while_doing(format!("cannot add the route to {GATEWAY}")))
}

/// Returns the number of the network device, which may appear a moment later.
fn network_device() -> io::Result<u32> {
    let deadline = Instant::now() + APPEAR_MAX;
    loop {
        for entry in fs::read_dir(Path::new("/sys/class/net"))? {
            let index = fs::read_to_string(entry?.path().join("ifindex"))?;
            match index.trim().parse() {
                Ok(netlink::LOOPBACK) | Err(_) => {}
                Ok(device) => return Ok(device),
            }
        }
        if Instant::now() >= deadline {
            let seconds = APPEAR_MAX.as_secs();
            return Err(io::Error::new(NO_DEVICE, format!("no network device appeared within {seconds} s")));
        }
        thread::sleep(Duration::from_millis(1));
    }
}
