//! What a guest does not see: by default the secrets of a host whose root it has, and what `--hide` says.
//!
//! The rules become arguments of the daemons, which enforce them. `docs/run.md` has the list for people; a test
//! compares the two.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use transom_vm::{Error, Result, Root, Share};

/// Directories that hold homes.
const HOMES: [&str; 3] = ["/home", "/root", "/var/home"];
/// Places in the user's home with programs rather than data.
const TOOLS: [&str; 7] = [".cargo/bin", ".cargo/registry", ".rustup", ".pyenv", ".nvm", ".local/bin", ".local/lib"];
/// The guest has its own.
const OWN: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];
/// Secrets of the system: passwords, keys, mail, state of services and of other sandboxes.
const SYSTEM: [&str; 43] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
    "/etc/docker",
    "/etc/containers/auth.json",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/cni",
    "/etc/openvpn",
    "/etc/wireguard",
    "/etc/ppp",
    "/etc/NetworkManager/system-connections",
    "/etc/wpa_supplicant",
    "/etc/ipsec.secrets",
    "/etc/swanctl",
    "/etc/cups",
    "/etc/mysql",
    "/var/backups",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/incus",
    "/var/lib/kubelet",
    "/var/lib/libvirt",
    "/var/lib/lxd",
    "/var/lib/mysql",
    "/var/lib/postgresql",
    "/var/lib/rancher",
    "/var/lib/systemd",
    "/var/mail",
    "/var/spool",
];
/// Credentials of programs and agents, wherever they are.
const NAMES: [&str; 31] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".oci",
    ".netrc",
    "_netrc",
    ".npmrc",
    "npmrc",
    ".yarnrc.yml",
    ".pypirc",
    "pip.conf",
    ".git-credentials",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".password-store",
    ".terraform.d",
    ".terraformrc",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".copilot",
    ".cursor",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
];
/// Users of people begin here, up to that of `nobody`.
const UIDS: std::ops::Range<u32> = 1000..65534;

/// Adds the arguments that hide `hide` and, if the guest has the host's root, its secrets except `show`.
///
/// # Errors
/// Returns an error if nothing that is shared contains one of the paths, or one is all of a share.
pub(super) fn apply(hide: &[PathBuf], show: &[PathBuf], root: &mut Root, shares: &mut [Share]) -> Result<()> {
    let hide = hide.iter().map(|path| real(path)).collect::<Result<Vec<_>>>()?;
    let mut is_used = vec![false; hide.len()];
    let root = match root {
        Root::Host(share) => Some(share),
        Root::Minimal => None,
    };
    match &root {
        Some(root) if root.host == Path::new("/") => {}
        _ if show.is_empty() => {}
        _ => return Err(Error::Usage("--show shows what --root / hides; there is no --root /".into())),
    }
    for share in root.into_iter().chain(shares) {
        if share.host == Path::new("/") && share.guest == Path::new("/") {
            let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
            share.daemon_args.extend(secrets(show, &passwd)?);
        }
        for (path, is_used) in hide.iter().zip(&mut is_used) {
            *is_used |= hide_one(share, path)?;
        }
    }
    match is_used.iter().position(|is_used| !is_used) {
        Some(at) => Err(Error::Usage(format!("--hide {:?}: nothing that contains it is shared", hide[at]))),
        None => Ok(()),
    }
}

/// Adds the arguments that hide those of the paths `hide` that are in `share`. They are resolved already.
///
/// # Errors
/// Returns an error if one is all of the share.
pub(super) fn hide_in(share: &mut Share, hide: &[PathBuf]) -> Result<()> {
    hide.iter().try_for_each(|path| hide_one(share, path).map(drop))
}

/// Returns whether the path is in the share.
fn hide_one(share: &mut Share, path: &Path) -> Result<bool> {
    let Ok(below) = path.strip_prefix(&share.host) else { return Ok(false) };
    if below.as_os_str().is_empty() {
        return Err(Error::Usage(format!("--hide {path:?} hides all of a share: do not share it")));
    }
    share.daemon_args.push(argument("hide", &Path::new("/").join(below)));
    Ok(true)
}

/// Returns the arguments for a share of the host's root, whose `/etc/passwd` is `passwd`. Nothing is hidden if `/` is
/// shown.
fn secrets(show: &[PathBuf], passwd: &str) -> Result<Vec<OsString>> {
    let show = show.iter().map(|path| real(path)).collect::<Result<Vec<_>>>()?;
    if show.iter().any(|path| path == Path::new("/")) {
        return Ok(Vec::new());
    }
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| is_home(home));
    let home = home.map(|home| real(&home)).transpose()?;
    let homes = HOMES.iter().map(PathBuf::from).chain(homes_in(passwd)).chain(home.clone());
    let contents = OWN.iter().map(PathBuf::from).chain(homes);
    let mut arguments = Vec::new();
    for path in contents {
        let path = real(&path)?;
        if !is_of_system(&path) {
            arguments.push(argument("hide-contents", &path));
        }
    }
    for path in SYSTEM.iter().map(Path::new) {
        arguments.push(argument("hide", path));
        let real = real(path)?;
        if real != path {
            arguments.push(argument("hide", &real));
        }
    }
    arguments.extend(NAMES.iter().map(|name| argument("hide-name", Path::new(name))));
    arguments.extend(home.iter().flat_map(|home| TOOLS.map(|tools| argument("show", &home.join(tools)))));
    arguments.extend(show.iter().map(|path| argument("show", path)));
    Ok(arguments)
}

fn argument(option: &str, value: &Path) -> OsString {
    let mut argument = OsString::from(format!("--{option}="));
    argument.push(value);
    argument
}

/// Returns the homes of people in the text of `/etc/passwd`.
fn homes_in(passwd: &str) -> Vec<PathBuf> {
    let home = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        let is_person = UIDS.contains(&fields.get(2)?.parse().ok()?);
        let home = PathBuf::from(fields.get(5)?);
        (is_person && is_home(&home)).then_some(home)
    };
    passwd.lines().filter_map(home).collect()
}

/// Returns whether a home at this path may be hidden: one at `/` or `/usr` is the system.
fn is_home(path: &Path) -> bool {
    path.is_absolute() && path != Path::new("/") && !path.starts_with("/usr") && path != Path::new("/var")
}

/// Returns whether the guest needs the contents of the directory at this path, which a link calls a home.
fn is_of_system(path: &Path) -> bool {
    const DIRECTORIES: [&str; 8] = ["/", "/bin", "/etc", "/lib", "/opt", "/sbin", "/usr", "/var"];
    DIRECTORIES.iter().any(|directory| path == Path::new(directory))
        || path.parent() == Some(Path::new("/usr")) && path != Path::new("/usr/home")
}

/// Returns the absolute path without symbolic links, as far as it exists.
pub(super) fn real(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(Error::io(format!("cannot find {path:?}")))?;
    let existing = path.ancestors().find_map(|above| Some((fs::canonicalize(above).ok()?, above)));
    Ok(existing.map_or_else(
        || path.clone(),
        |(real, above)| {
            path.strip_prefix(above)
                .map_or_else(|_| path.clone(), |rest| real.components().chain(rest.components()).collect())
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root::Host(Share { host: "/".into(), guest: "/".into(), ..Share::default() })
    }

    fn words(root: &Root) -> Vec<String> {
        let Root::Host(share) = root else { return Vec::new() };
        share.daemon_args.iter().map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_homes_of_people_are_hidden_and_not_the_system() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/srv/me:/bin/sh\nnobody:x:65534:65534::/nonexistent:\n\
                      odd:x:1001:1001::/:/bin/sh\nbroken\nbin:x:2:2::/bin:";
        assert_eq!(homes_in(passwd), [PathBuf::from("/srv/me")]);
    }

    #[test]
    fn the_hosts_root_comes_without_secrets_unless_they_are_shown() {
        let mut all = root();
        apply(&[], &[], &mut all, &mut []).unwrap();
        let all = words(&all);
        for word in ["--hide-contents=/home", "--hide=/etc/shadow", "--hide-name=.npmrc", "--hide-contents=/proc"] {
            assert!(all.iter().any(|known| known == word), "{word}: {all:?}");
        }
        let mut some = root();
        apply(&["/usr/share/x".into()], &["/etc/ssh".into()], &mut some, &mut []).unwrap();
        let some = words(&some);
        assert!(some.contains(&"--show=/etc/ssh".into()) && some.contains(&"--hide=/usr/share/x".into()), "{some:?}");
        let mut none = root();
        apply(&[], &["/".into()], &mut none, &mut []).unwrap();
        assert_eq!(words(&none), Vec::<String>::new());
    }

    #[test]
    fn a_link_that_is_called_a_home_does_not_hide_the_system() {
        for (path, expected) in
            [("/", true), ("/usr", true), ("/usr/share", true), ("/var", true), ("/var/home", false)]
        {
            assert_eq!(is_of_system(Path::new(path)), expected, "{path}");
        }
        for path in ["/usr/home", "/usr/home/me", "/usr/local/home", "/opt/homes", "/data"] {
            assert!(!is_of_system(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_home_is_hidden_where_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().canonicalize().unwrap().join("data");
        fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink("data", folder.path().join("link")).unwrap();
        let passwd = format!("me:x:1000:1000::{}:/bin/sh", folder.path().join("link/me").display());
        let arguments = secrets(&[], &passwd).unwrap();
        assert!(arguments.contains(&argument("hide-contents", &data.join("me"))), "{arguments:?}");
    }

    #[test]
    fn a_path_is_hidden_in_every_share_that_contains_it() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().canonicalize().unwrap();
        fs::create_dir(host.join("sub")).unwrap();
        std::os::unix::fs::symlink("sub", host.join("link")).unwrap();
        let share = |host: &Path| Share { host: host.into(), guest: "/mnt".into(), ..Share::default() };
        let mut shares = [share(&host), share(&host.join("sub"))];
        apply(&[folder.path().join("link/.env")], &[], &mut Root::Minimal, &mut shares).unwrap();
        assert_eq!(
            shares.map(|share| share.daemon_args),
            [["--hide=/sub/.env"], ["--hide=/.env"]].map(|list| list.map(OsString::from).to_vec())
        );

        for (path, reason) in [(host.clone(), "all of a share"), ("/nowhere".into(), "nothing that contains it")] {
            let error = apply(&[path], &[], &mut Root::Minimal, &mut [share(&host)]).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let error = apply(&[], &["/etc".into()], &mut Root::Minimal, &mut []).unwrap_err().to_string();
        assert!(error.contains("there is no --root /"), "{error}");
    }

    #[test]
    fn every_hidden_place_is_documented() {
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.md")).unwrap();
        for place in HOMES.iter().chain(&TOOLS).chain(&OWN).chain(&SYSTEM).chain(&NAMES) {
            assert!(page.contains(&format!("`{place}`")) || page.contains(&format!("`~/{place}`")), "{place}");
        }
    }
}
