//! What `--allow-host` names: a host, or all below a name, and its ports.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::frame::NAME_MAX;

/// The ports of a host for which none are named: HTTP and HTTPS.
const DEFAULT_PORTS: [u16; 2] = [80, 443];
/// The most ports of one host: the agent has a listener for each.
const PORTS_MAX: usize = 64;
/// The longest part of a name, as DNS has it.
const LABEL_MAX: usize = 63;
/// The name that means the machine itself: the guest's, which stands for this one on the allowed ports.
pub(crate) const LOCALHOST: &str = "localhost";

/// Hosts that a guest can reach, and on which ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedHost {
    /// Which hosts.
    pub host: HostPattern,
    /// On which ports; never empty.
    pub ports: Vec<u16>,
}

/// One host, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPattern {
    /// The host with this name, in lower case and without a dot at its end.
    Name(String),
    /// Hosts whose name ends in a dot and this.
    Below(String),
    /// The host with this address.
    Address(IpAddr),
}

impl AllowedHost {
    /// Returns whether it is about a host that the guest calls `host`: a name in lower case, or an address.
    pub(crate) fn is_about(&self, host: &str) -> bool {
        match &self.host {
            HostPattern::Name(name) => name == host,
            HostPattern::Below(name) => host
                .strip_suffix(name.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            HostPattern::Address(address) => host.parse() == Ok(*address),
        }
    }
}

/// Returns `name` in lower case and without a dot at its end, if it can be the name of a host.
pub(crate) fn normalised(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
    };
    (name.len() <= NAME_MAX && name.split('.').all(is_label)).then_some(name)
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        if words.contains("://") {
            return Err(format!("{words:?} is an address of the web; name its host only"));
        }
        let (host, ports) = split(words)?;
        let host = match (host.parse::<IpAddr>(), host.strip_prefix("*.")) {
            (Ok(address), _) => HostPattern::Address(address),
            (Err(_), Some(name)) => HostPattern::Below(checked(name)?),
            (Err(_), None) => HostPattern::Name(checked(host)?),
        };
        let ports = match ports {
            None => DEFAULT_PORTS.to_vec(),
            Some(ports) => ports.split(',').map(port).collect::<Result<Vec<_>, _>>()?,
        };
        if ports.len() > PORTS_MAX {
            return Err(format!("{} ports; a host has {PORTS_MAX} at most", ports.len()));
        }
        Ok(Self { host, ports })
    }
}

/// Splits the ports off. Colons are also part of IPv6 addresses, which stand in brackets before ports.
fn split(words: &str) -> Result<(&str, Option<&str>), String> {
    if words.parse::<Ipv6Addr>().is_ok() {
        return Ok((words, None));
    }
    if let Some(rest) = words.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("'[' without ']'")?;
        address.parse::<Ipv6Addr>().map_err(|_| format!("{address:?} is no IPv6 address"))?;
        return match rest.strip_prefix(':') {
            Some(ports) => Ok((address, Some(ports))),
            None if rest.is_empty() => Ok((address, None)),
            None => Err(format!("expected ':PORT' after ']', not {rest:?}")),
        };
    }
    Ok(words.split_once(':').map_or((words, None), |(host, ports)| (host, Some(ports))))
}

fn checked(name: &str) -> Result<String, String> {
    match normalised(name) {
        // Resolvers also take "10.1" and "2130706433" for addresses, and no top-level domain is a number.
        Some(name) if !ends_in_number(&name) => Ok(name),
        _ if !name.is_ascii() => Err(format!("write {name:?} as DNS has it, with xn--")),
        _ => Err(format!("{name:?} is not the name of a host, *.NAME, or an address")),
    }
}

fn ends_in_number(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()))
}

fn port(word: &str) -> Result<u16, String> {
    word.parse()
        .ok()
        .filter(|&port| port != 0)
        .ok_or_else(|| format!("{word:?} is no port; a port is a number from 1 to 65535"))
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl HostPattern {
    /// Returns the address at which programs in the guest find the host, if it is not one of the agent's choice.
    pub(crate) fn own_address(&self) -> Option<IpAddr> {
        match self {
            Self::Name(name) if name == LOCALHOST => Some(Ipv4Addr::LOCALHOST.into()),
            Self::Address(address) => Some(*address),
            Self::Name(_) | Self::Below(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(words: &str) -> AllowedHost {
        words.parse().unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    #[test]
    fn hosts_are_names_wildcards_and_addresses_with_ports() {
        let cases: [(&str, &str, &[u16]); 8] = [
            ("Example.ORG.", "example.org", &[80, 443]),
            ("example.org:22,443", "example.org", &[22, 443]),
            ("*.example.org", "*.example.org", &[80, 443]),
            ("192.0.2.1:5432", "192.0.2.1", &[5432]),
            ("2001:db8::1", "2001:db8::1", &[80, 443]),
            ("[2001:db8::1]:22", "2001:db8::1", &[22]),
            ("[2001:db8::1]", "2001:db8::1", &[80, 443]),
            ("localhost:8080", "localhost", &[8080]),
        ];
        for (words, host, ports) in cases {
            let AllowedHost { host: pattern, ports: found } = allowed(words);
            assert_eq!((pattern.to_string().as_str(), found.as_slice()), (host, ports), "{words}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        let long = "a".repeat(64);
        let names = ["", "*", "*.", "*.*.org", "a b", "a/b", "-a", "a..b", "example.org:", "example.org:0", "a:65536"];
        let others = ["a:b", "[::1", "[::1]x", "10.1", "2130706433", "https://example.org", "bücher.example", &long];
        for words in names.into_iter().chain(others) {
            assert!(words.parse::<AllowedHost>().is_err(), "{words}");
        }
        let many = (1..=65).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        assert!(format!("a:{many}").parse::<AllowedHost>().is_err());
    }

    #[test]
    fn a_wildcard_is_about_names_below_it_only() {
        let below = allowed("*.example.org");
        assert!(below.is_about("a.example.org") && below.is_about("a.b.example.org"));
        for host in ["example.org", ".example.org", "badexample.org", "example.org.evil.net", "a.example.orgs"] {
            assert!(!below.is_about(host), "{host}");
        }
        let address = allowed("192.0.2.1");
        assert!(
            address.is_about("192.0.2.1") && !address.is_about("192.0.2.10") && !address.is_about("192.0.2.1.nip.io")
        );
    }
}
