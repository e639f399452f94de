//! The network of `transom run`: its options, and what the guest was refused.

use std::{net::IpAddr, sync::Arc};

use clap::Args;
use serde_json::{Value, json};
use transom_vm::{
    Error, Result,
    network::{AllowedHost, Network, Policy, Refused},
};

use crate::tell::tell;

/// The options.
#[derive(Debug, Args)]
pub(super) struct NetworkArgs {
    /// Let the guest connect to a host, by TCP; may be repeated [default: the guest has no network]
    ///
    /// HOST is a name, `*.NAME` for all names below one, or an address (`[ADDRESS]:PORT` for IPv6). Without PORT, it is
    /// ports 80 and 443. The guest has no network device: names resolve to addresses of its own, and each connection
    /// goes through this program, which resolves the name as programs of the host do. What else the guest asks for is
    /// refused, and listed at the end. A name that leads to the host itself or to a private network is refused too,
    /// unless --resolve says so; `localhost:PORT` is a service of the host, at the same place in the guest.
    #[arg(long = "allow-host", value_name = "HOST[:PORT[,PORT]...]", conflicts_with = "network")]
    allow_host: Vec<AllowedHost>,

    /// The address of an allowed host, instead of what the host's resolver says; may be repeated
    #[arg(long, value_name = "NAME:ADDRESS", value_parser = parse_resolve, requires = "allow_host")]
    resolve: Vec<(String, IpAddr)>,

    /// Give the guest the whole network, by QEMU's user-mode network [default: the guest has no network]
    ///
    /// The guest can then reach what the host can: the internet, the networks around it, and services that listen on
    /// the host's loopback device, at 10.0.2.2. Nobody can connect to the guest. It has IPv4 only. --allow-host gives
    /// it less.
    #[arg(long)]
    network: bool,
}

impl NetworkArgs {
    /// Returns what the guest can reach. `vmm_has_network` is whether the VMM has a user-mode network.
    ///
    /// # Errors
    ///
    /// An option has no effect, or the VMM does not support it.
    pub(super) fn network(&self, vmm_has_network: bool) -> Result<Network> {
        if self.network && !vmm_has_network {
            return Err(Error::Usage(
                "--network: User Mode Linux is built without network devices; use --vmm qemu, or --allow-host HOST, \
                 which works with both"
                    .into(),
            ));
        }
        match self.allow_host.as_slice() {
            _ if self.network => Ok(Network::Whole),
            [] => Ok(Network::Off),
            hosts => {
                let policy = Policy::new(hosts.to_vec(), self.resolve.clone()).map_err(Error::Usage)?;
                Ok(Network::Allowed(Arc::new(policy)))
            }
        }
    }
}

/// Parses `NAME:ADDRESS`; an IPv6 address may stand in brackets.
fn parse_resolve(words: &str) -> std::result::Result<(String, IpAddr), String> {
    let (name, address) = words.split_once(':').ok_or("expected NAME:ADDRESS")?;
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address = bare.parse().map_err(|_| format!("{address:?} is no address; expected NAME:ADDRESS"))?;
    Ok((name.to_owned(), address))
}

/// Prints to standard error what the guest was refused.
pub(super) fn report(refused: &[Refused]) {
    for Refused { host, reason, count } in refused {
        let times = if *count == 1 { String::new() } else { format!(", {count} times") };
        match host {
            Some(host) => tell(format!("network: {host} was refused{times}: {reason}")),
            None => tell(format!("network: refused{times}: {reason}")),
        }
    }
}

/// Returns the list for `--json`.
pub(super) fn refused_json(refused: &[Refused]) -> Value {
    let one = |refused: &Refused| json!({ "host": refused.host, "reason": refused.reason, "count": refused.count });
    refused.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_name_is_read() {
        let found = |words| parse_resolve(words).map(|(name, address)| format!("{name} {address}"));
        assert_eq!(found("a.org:192.0.2.1").as_deref(), Ok("a.org 192.0.2.1"));
        assert_eq!(found("a.org:2001:db8::1").as_deref(), Ok("a.org 2001:db8::1"));
        assert_eq!(found("a.org:[2001:db8::1]").as_deref(), Ok("a.org 2001:db8::1"));
        for words in ["a.org", "a.org:", "a.org:b.org", "a.org:443:192.0.2.1"] {
            assert!(found(words).is_err(), "{words}");
        }
    }
}
