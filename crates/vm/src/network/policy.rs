//! The hosts that a guest may reach, and to which addresses they may lead.

use std::net::{IpAddr, Ipv4Addr};

use super::{
    AllowedHost, HostPattern, Refused,
    address::reserved,
    pattern::{LOCALHOST, normalised},
    refused::Counts,
    resolve,
};

/// Hosts that a guest may reach; counts what it was refused.
#[derive(Debug)]
pub struct Policy {
    hosts: Vec<AllowedHost>,
    /// Addresses of names, in place of the resolver's.
    resolve: Vec<(String, IpAddr)>,
    refused: Counts,
}

/// The reason for what no rule is about.
pub(super) const NOT_ALLOWED: &str = "not allowed";

impl Policy {
    /// Creates the policy of these hosts. `resolve` has addresses of names, in place of those that the resolver of this
    /// machine knows.
    ///
    /// # Errors
    ///
    /// Returns an error for an address of a name that is not allowed, which would have no effect.
    pub fn new(hosts: Vec<AllowedHost>, resolve: Vec<(String, IpAddr)>) -> Result<Self, String> {
        let resolve = resolve
            .into_iter()
            .map(|(name, address)| match normalised(&name) {
                Some(name) if hosts.iter().any(|host| host.is_about(&name)) => Ok((name, address)),
                Some(name) => {
                    Err(format!("--resolve {name}:{address}: the guest may not reach it; add --allow-host {name}"))
                }
                None => Err(format!("--resolve: {name:?} is not the name of a host")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { hosts, resolve, refused: Counts::default() })
    }

    /// Returns the hosts.
    pub fn hosts(&self) -> &[AllowedHost] {
        &self.hosts
    }

    /// Returns what was refused, or could not be reached, so far.
    pub fn refused(&self) -> Vec<Refused> {
        self.refused.list()
    }

    /// Counts something that was refused.
    pub(super) fn refuse(&self, host: &str, reason: &str) {
        self.refused.add(host, reason);
    }

    /// Returns the addresses to which a connection to `host` and `port` may lead, in the order in which to try them.
    /// Blocks while the name is resolved.
    ///
    /// # Errors
    ///
    /// Returns the reason if it may lead nowhere.
    pub(super) fn addresses(&self, host: &str, port: u16) -> Result<Vec<IpAddr>, String> {
        self.addresses_by(host, port, resolve::addresses)
    }

    /// As [`addresses`](Self::addresses), with another resolver.
    fn addresses_by(
        &self,
        host: &str,
        port: u16,
        resolver: impl FnOnce(&str) -> Result<Vec<IpAddr>, String>,
    ) -> Result<Vec<IpAddr>, String> {
        let is_allowed = |allowed: &AllowedHost| allowed.is_about(host) && allowed.ports.contains(&port);
        let Some(allowed) = self.hosts.iter().find(|allowed| is_allowed(allowed)) else {
            return Err(NOT_ALLOWED.into());
        };
        if let HostPattern::Address(address) = allowed.host {
            return Ok(vec![address]);
        }
        // The guest chooses names below a wildcard.
        if normalised(host).as_deref() != Some(host) {
            return Err(NOT_ALLOWED.into());
        }
        let given: Vec<_> = self.resolve.iter().filter(|(name, _)| name == host).map(|(_, address)| *address).collect();
        if !given.is_empty() {
            return Ok(given);
        }
        if host == LOCALHOST {
            return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
        }
        let mut refusal = String::new();
        let mut found = resolver(host)?;
        found.retain(|&address| match reserved(address) {
            Some(kind) => {
                refusal = format!("it leads to {address}, {kind}; if that is meant, add --resolve {host}:{address}");
                false
            }
            None => true,
        });
        if found.is_empty() { Err(refusal) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(hosts: &[&str], resolve: &[(&str, &str)]) -> Policy {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let resolve = resolve.iter().map(|(name, address)| ((*name).into(), address.parse().unwrap())).collect();
        Policy::new(hosts, resolve).unwrap()
    }

    fn found(policy: &Policy, host: &str, port: u16, answer: &[&str]) -> Result<Vec<String>, String> {
        let answer = answer.iter().map(|address| address.parse().unwrap()).collect();
        let found = policy.addresses_by(host, port, |_| Ok(answer))?;
        Ok(found.iter().map(IpAddr::to_string).collect())
    }

    #[test]
    fn only_allowed_hosts_and_ports_are_resolved() {
        let policy = policy(&["example.org", "*.example.net:22", "192.0.2.1:5432"], &[]);
        let never = |host: &str, port| policy.addresses_by(host, port, |name| panic!("{name} was resolved"));
        assert_eq!(never("192.0.2.1", 5432), Ok(vec!["192.0.2.1".parse().unwrap()]));
        for (host, port) in [
            ("example.org", 22),
            ("other.org", 80),
            ("a.example.org", 80),
            ("a.example.net", 80),
            ("192.0.2.1", 80),
            ("192.0.2.2", 5432),
            ("EXAMPLE.org", 80),
            ("example.org.", 80),
            ("-x.example.net", 22),
            ("a b.example.net", 22),
            (".example.net", 22),
            ("", 80),
        ] {
            assert_eq!(never(host, port), Err(NOT_ALLOWED.into()), "{host}:{port}");
        }
        assert_eq!(found(&policy, "example.org", 443, &["8.8.8.8"]), Ok(vec!["8.8.8.8".into()]));
        assert_eq!(found(&policy, "a.example.net", 22, &["8.8.8.8"]), Ok(vec!["8.8.8.8".into()]));
    }

    #[test]
    fn a_name_that_leads_to_this_machine_or_its_network_is_refused_unless_the_caller_says_so() {
        let plain = policy(&["example.org", "*.example.org"], &[]);
        assert_eq!(found(&plain, "example.org", 80, &["10.0.0.1", "8.8.8.8", "::1"]), Ok(vec!["8.8.8.8".into()]));
        for address in ["127.0.0.1", "169.254.169.254", "10.1.2.3", "::ffff:127.0.0.1", "fd00:ec2::254"] {
            let error = found(&plain, "a.example.org", 80, &[address]).unwrap_err();
            assert!(error.contains("--resolve a.example.org:"), "{error}");
        }
        let meant = policy(&["example.org"], &[("Example.org", "10.1.2.3")]);
        assert_eq!(found(&meant, "example.org", 80, &["8.8.8.8"]), Ok(vec!["10.1.2.3".into()]));
        let local = policy(&["localhost:80", "127.0.0.1:81"], &[]);
        assert_eq!(found(&local, "localhost", 80, &[]), Ok(vec!["127.0.0.1".into()]));
        assert_eq!(found(&local, "127.0.0.1", 81, &[]), Ok(vec!["127.0.0.1".into()]));
    }

    #[test]
    fn an_address_without_effect_is_refused() {
        let error =
            Policy::new(vec!["example.org".parse().unwrap()], vec![("other.org".into(), "8.8.8.8".parse().unwrap())]);
        assert!(error.unwrap_err().contains("--allow-host other.org"));
    }
}
