//! Resolves a group's name to its id, without the C library's name services.
//!
//! The executable is static, and the C library would load shared objects for this. `/etc/group` is read directly;
//! groups that are defined elsewhere (LDAP, sssd) are looked up with the system's `getent`.

use super::ListenError;
use rustix::fs::Gid;
use std::fs;
use std::process::Command;

/// Returns the id of the group with this name or number.
pub(super) fn resolve(name: &str) -> Result<Gid, ListenError> {
    let in_file = || fs::read_to_string("/etc/group").ok().and_then(|text| find(&text, name));
    in_file()
        .or_else(|| ask_system(name))
        .or_else(|| name.parse().ok())
        .filter(|&gid| gid != u32::MAX)
        .map(Gid::from_raw)
        .ok_or_else(|| ListenError::NoGroup { name: name.to_owned() })
}

fn ask_system(name: &str) -> Option<u32> {
    let output = Command::new("getent").args(["group", "--", name]).output().ok()?;
    find(&String::from_utf8_lossy(&output.stdout), name)
}

/// Finds the id of `name` in lines of the form `name:password:number:members`.
fn find(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name);
        found.then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let text = "root:x:0:\nkvm2:x:7:\nkvm:x:108:a,b\nbroken\nodd:x:y:\n";

        assert_eq!(find(text, "kvm"), Some(108));
        assert_eq!(find(text, "root"), Some(0));
        assert_eq!(find(text, "kv"), None);
        assert_eq!(find(text, "odd"), None);
        assert_eq!(find(text, "broken"), None);
    }

    #[test]
    fn a_number_stands_for_itself() {
        assert_eq!(resolve("4242").unwrap().as_raw(), 4242);
        assert!(resolve("4294967295").is_err());
        assert!(resolve("no such group").is_err());
    }
}
