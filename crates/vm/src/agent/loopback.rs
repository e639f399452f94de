//! Brings up the loopback device, which many test suites need.
//!
//! One rtnetlink message sets the flag "up" on interface 1, which is always the loopback of a new machine.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const LOOPBACK_INDEX: i32 = 1;
const IFF_UP: u32 = 1;

/// Brings the device up.
///
/// # Errors
///
/// Returns the kernel's error.
pub(super) fn bring_up() -> io::Result<()> {
    // Protocol 0 of netlink is routing and devices.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let mut message = Vec::with_capacity(32);
    // nlmsghdr: length, type, flags, sequence, port.
    message.extend_from_slice(&32_u32.to_ne_bytes());
    message.extend_from_slice(&RTM_NEWLINK.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // ifinfomsg: family and type (unspecified), index, flags, the flags to change.
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    message.extend_from_slice(&IFF_UP.to_ne_bytes());
    message.extend_from_slice(&IFF_UP.to_ne_bytes());
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
