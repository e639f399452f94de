//! Resolves a name as the programs of this machine do.

use std::{
    io,
    net::IpAddr,
    process::{Command, Stdio},
};

/// Addresses of a name that are looked at.
const ADDRESSES_MAX: usize = 16;

/// Returns the addresses of `name`, the preferred one first. Blocks.
///
/// It runs `getent`: this program is static, and the modules of the C library that `/etc/nsswitch.conf` may name work
/// only in programs that are linked dynamically. `name` is checked, so that it is no option.
///
/// # Errors
///
/// Returns an error for a person to read.
pub(super) fn addresses(name: &str) -> Result<Vec<IpAddr>, String> {
    let mut command = Command::new("getent");
    command.args(["ahosts", name]).stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            "getent, which resolves names, is not installed on the host; give its address by --resolve".into()
        }
        _ => format!("cannot run getent: {error}"),
    })?;
    let found = parse(&String::from_utf8_lossy(&output.stdout));
    if found.is_empty() { Err("the host cannot resolve the name".into()) } else { Ok(found) }
}

/// Parses lines that begin with an address, each of which occurs once for every kind of socket.
fn parse(output: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    // A link-local address may come with the name of an interface; no name may lead there, so it can be left out.
    for address in output.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()) {
        if !found.contains(&address) && found.len() < ADDRESSES_MAX {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_taken_once_and_in_order() {
        let output =
            "2001:db8::1     STREAM example.org\n2001:db8::1     DGRAM  \n192.0.2.1       STREAM \nfe80::1%eth0 RAW\n";
        let expected: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        assert_eq!(parse(output), expected);
    }

    #[test]
    fn the_hosts_own_name_is_resolved_by_its_resolver() {
        match addresses("localhost") {
            Ok(found) => assert!(found.iter().all(IpAddr::is_loopback), "{found:?}"),
            Err(error) if error.contains("not installed") => eprintln!("SKIPPED: {error}"),
            Err(error) => panic!("{error}"),
        }
        assert!(addresses("name.invalid").is_err());
    }
}
