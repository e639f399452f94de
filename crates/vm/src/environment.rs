//! The command's environment: variables that every program expects, those of the host that are valid in the guest, and
//! those of the [`GuestSpec`].

use std::{collections::BTreeMap, env, ffi::OsString, path::Path};

use crate::{GuestSpec, Root};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables copied from the host if the guest has the host's root, with its programs and home directories.
const WITH_HOST_ROOT: [&str; 5] = ["PATH", "HOME", "SHELL", "USER", "LOGNAME"];
/// Variables always copied from the host, which affect only how text is displayed.
const ALWAYS: [&str; 6] = ["TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ"];

/// Returns the complete environment of `spec`'s command.
pub(crate) fn of(spec: &GuestSpec) -> Vec<(OsString, OsString)> {
    let is_host_root = matches!(&spec.root, Root::Host(share) if share.host == Path::new("/"));
    from(env::vars_os(), is_host_root, &spec.env)
}

fn from(
    host: impl Iterator<Item = (OsString, OsString)>,
    is_host_root: bool,
    asked: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let standard = [
        ("PATH", PATH),
        ("HOME", "/root"),
        ("USER", "root"),
        ("LOGNAME", "root"),
        ("TERM", "dumb"),
        ("LANG", "C.UTF-8"),
    ];
    let mut environment: BTreeMap<OsString, OsString> =
        standard.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let passes = |name: &OsString| {
        name.to_str().is_some_and(|name| {
            ALWAYS.contains(&name) || name.starts_with("LC_") || is_host_root && WITH_HOST_ROOT.contains(&name)
        })
    };
    environment.extend(host.filter(|(name, _)| passes(name)));
    environment.extend(asked.iter().cloned());
    environment.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(host: &[(&str, &str)], is_host_root: bool, asked: &[(&str, &str)], name: &str) -> Option<String> {
        let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|&(n, v)| (n.into(), v.into())).collect::<Vec<_>>();
        let environment = from(owned(host).into_iter(), is_host_root, &owned(asked));
        environment.into_iter().find(|pair| pair.0 == name).map(|pair| pair.1.into_string().unwrap())
    }

    #[test]
    fn the_host_path_is_for_the_host_root_only() {
        let host = [("PATH", "/home/me/bin"), ("SECRET", "x")];
        assert_eq!(value(&host, true, &[], "PATH").as_deref(), Some("/home/me/bin"));
        assert_eq!(value(&host, false, &[], "PATH").as_deref(), Some(PATH));
        assert_eq!(value(&host, true, &[], "SECRET"), None);
    }

    #[test]
    fn what_was_asked_for_wins() {
        assert_eq!(value(&[("LANG", "de_DE")], false, &[("LANG", "C")], "LANG").as_deref(), Some("C"));
        assert_eq!(value(&[("LC_TIME", "x")], false, &[], "LC_TIME").as_deref(), Some("x"));
    }
}
