//! The addresses of this guest that stand for the names of allowed hosts.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
};

use crate::network::{AllowedHost, HostPattern};

/// Names that get an address. Each takes a listener, which is a descriptor and a thread, for every port; with two
/// descriptors for each connection they stay below the usual limit of 1024.
const NAMES_MAX: usize = 128;

/// The names. The first one has the address 127.1.0.2; that before it is the resolver's.
#[derive(Debug)]
pub(super) struct Names {
    hosts: Vec<AllowedHost>,
    /// In the order of their addresses. Protected by itself.
    known: Mutex<Vec<String>>,
}

/// What becomes of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// It has this address.
    Known(Ipv4Addr),
    /// It has this address from now on, and these ports.
    New(Ipv4Addr, BTreeSet<u16>),
    NotAllowed,
    /// There are too many names.
    Full,
}

impl Names {
    pub(super) fn new(hosts: &[AllowedHost]) -> Self {
        Self { hosts: hosts.to_vec(), known: Mutex::default() }
    }

    /// Returns the names that are allowed one by one, and have no address of their own.
    pub(super) fn single(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().filter(|host| host.host.own_address().is_none()).filter_map(|host| match &host.host {
            HostPattern::Name(name) => Some(name.as_str()),
            HostPattern::Below(_) | HostPattern::Address(_) => None,
        })
    }

    /// Looks up a name in lower case.
    pub(super) fn lookup(&self, name: &str) -> Lookup {
        if name == crate::network::LOCALHOST {
            return Lookup::Known(Ipv4Addr::LOCALHOST);
        }
        let is_name = |host: &&AllowedHost| !matches!(host.host, HostPattern::Address(_)) && host.is_about(name);
        let ports: BTreeSet<u16> = self.hosts.iter().filter(is_name).flat_map(|host| &host.ports).copied().collect();
        if ports.is_empty() {
            return Lookup::NotAllowed;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter().position(|other| other == name) {
            Some(position) => Lookup::Known(address(position)),
            None if known.len() >= NAMES_MAX => Lookup::Full,
            None => {
                known.push(name.to_owned());
                Lookup::New(address(known.len() - 1), ports)
            }
        }
    }
}

fn address(position: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(position + 2).expect("there are at most NAMES_MAX names").to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_has_all_its_ports() {
        let hosts = ["a.org:22", "*.b.org", "x.b.org:8080", "192.0.2.1"].map(|host| host.parse().unwrap());
        let names = Names::new(&hosts);
        assert_eq!(names.lookup("a.org"), Lookup::New(Ipv4Addr::new(127, 1, 0, 2), [22].into()));
        assert_eq!(names.lookup("x.b.org"), Lookup::New(Ipv4Addr::new(127, 1, 0, 3), [80, 443, 8080].into()));
        assert_eq!(names.lookup("a.org"), Lookup::Known(Ipv4Addr::new(127, 1, 0, 2)));
        assert_eq!(names.lookup("localhost"), Lookup::Known(Ipv4Addr::LOCALHOST));
        for name in ["b.org", "c.org", "192.0.2.1", ""] {
            assert_eq!(names.lookup(name), Lookup::NotAllowed, "{name}");
        }
        for number in 2..NAMES_MAX {
            assert!(matches!(names.lookup(&format!("n{number}.b.org")), Lookup::New(..)));
        }
        assert_eq!(names.lookup("one-more.b.org"), Lookup::Full);
        assert_eq!(names.lookup("n127.b.org"), Lookup::Known(Ipv4Addr::new(127, 1, 0, 129)));
        assert_eq!(address(254), Ipv4Addr::new(127, 1, 1, 0));
    }
}
