//! Configures the guest's network devices by rtnetlink: each request is one message, which the kernel acknowledges.

use std::{io, net::IpAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

/// The loopback device of a new machine.
pub(super) const LOOPBACK: u32 = 1;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
/// No duplicate of the address is looked for, so that it can be used at once.
const IFA_F_NODAD: u8 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const RTA_OIF: u16 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Brings a device up.
///
/// # Errors
///
/// Returns the kernel's error.
pub(super) fn bring_up(device: u32) -> io::Result<()> {
    // ifinfomsg: family and type (unspecified), index, flags, the flags to change.
    let mut body = vec![0; 4];
    for word in [device, IFF_UP, IFF_UP] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    request(RTM_NEWLINK, 0, &body)
}

/// Assigns an address to a device, in a network of `prefix_len` bits.
///
/// # Errors
///
/// Returns the kernel's error.
pub(super) fn add_address(device: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
    // ifaddrmsg: family, length of the prefix, flags, scope, index.
    let (family, octets) = parts(address);
    let mut body = vec![family, prefix_len, IFA_F_NODAD, RT_SCOPE_UNIVERSE];
    body.extend_from_slice(&device.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &octets);
    attribute(&mut body, IFA_ADDRESS, &octets);
    request(RTM_NEWADDR, NLM_F_CREATE, &body)
}

/// Sends what has no other route through `gateway`, which `device` reaches.
///
/// # Errors
///
/// Returns the kernel's error.
pub(super) fn add_default_route(device: u32, gateway: IpAddr) -> io::Result<()> {
    // rtmsg: family, lengths of destination and source, service, table, protocol, scope, type, flags.
    let (family, octets) = parts(gateway);
    let mut body = vec![family, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_UNIVERSE, RTN_UNICAST, 0, 0, 0, 0];
    attribute(&mut body, RTA_GATEWAY, &octets);
    attribute(&mut body, RTA_OIF, &device.to_ne_bytes());
    request(RTM_NEWROUTE, NLM_F_CREATE, &body)
}

fn parts(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    }
}

/// Appends an attribute, whose length is a multiple of four as the next one's place requires.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
}

fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    // Protocol 0 of netlink is routing and devices.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    // nlmsghdr: length, type, flags, sequence, port.
    let mut message = Vec::with_capacity(16 + body.len());
    message.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST_ACK | flags).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    send(&socket, &message, SendFlags::empty())?;

    let mut answer = [0; 256];
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // An error message carries the negative errno after its header; zero is the acknowledgement.
    match (answer.get(4..6), answer.get(16..20)) {
        (Some(kind), Some(code)) if len >= 20 && kind == NLMSG_ERROR.to_ne_bytes() => {
            match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(-code)),
            }
        }
        _ => Err(io::Error::other(format!("unexpected reply of {len} bytes"))),
    }
}
