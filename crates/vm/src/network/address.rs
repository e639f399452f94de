//! Addresses to which a name must not lead unless the caller says so.
//!
//! Whoever owns a name decides where it leads: to this machine's own services, to the private network around it, or to
//! the metadata service of a cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Returns what kind of address it is, if a name must not lead there.
///
/// Asks the kernel for this machine's own addresses; does not block.
pub(super) fn reserved(address: IpAddr) -> Option<&'static str> {
    let kind = match address {
        IpAddr::V4(v4) => reserved_v4(v4),
        IpAddr::V6(v6) => reserved_v6(v6),
    };
    kind.or_else(|| is_own(address).then_some("an address of this machine"))
}

fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    // IANA's registry of special-purpose addresses (RFC 6890), without those for documentation, which lead nowhere.
    match address.octets() {
        [127, ..] => Some("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Some("a private address"),
        [169, 254, ..] => Some("a link-local address, where clouds have their metadata"),
        [0, ..] | [192, 0, 0, _] | [198, 18..=19, ..] => Some("a reserved address"),
        [224..=255, ..] => Some("a multicast or reserved address"),
        _ => None,
    }
}

fn reserved_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        reserved_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        // 6to4 and Teredo lead to an IPv4 address that they contain.
        [0x2002, ..] | [0x2001, 0, ..] => Some("an address of a tunnel"),
        // Of the rest, only these are assigned to hosts.
        [0x2000..=0x3fff, ..] => None,
        _ => Some("a reserved address"),
    }
}

/// Returns whether packets to `address` stay on this machine: the kernel binds sockets only to such addresses.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_public_are_reserved() {
        let addresses = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2002:7f00:1::",
            "2001::1",
            "100::1",
            "64:ff9b:1::1",
        ];
        for address in addresses {
            assert!(reserved(address.parse().unwrap()).is_some(), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not() {
        let addresses = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "128.0.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2606:4700::1111",
            "2a00::1",
            "2001:4860::8888",
        ];
        for address in addresses {
            assert_eq!(reserved(address.parse().unwrap()), None, "{address}");
        }
    }
}
