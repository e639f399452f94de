//! Values of the options of `transom run`.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, IsTerminal, Read as _},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use transom_vm::{Error, Result, User};

/// The value of --accel.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Accel {
    Auto,
    Kvm,
    Tcg,
}

/// The value of --vmm.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum VmmName {
    /// A PC emulator; runs any kernel
    Qemu,
    /// User Mode Linux: a kernel that runs as a process and boots in a tenth of a second, without DAX
    Uml,
}

/// The value of --tty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tty {
    Auto,
    Always,
    Never,
}

impl Tty {
    /// Returns whether it does, here.
    pub(crate) fn is_wanted(self) -> bool {
        match self {
            Self::Auto => io::stdin().is_terminal() && io::stdout().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

pub(crate) fn default_cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cpus).unwrap_or(1).min(4)
}

/// Parses `512`, `512M` or `2G` to a number of MiB.
pub(crate) fn parse_memory_mib(words: &str) -> std::result::Result<u32, String> {
    /// Debian's cloud kernel with the minimal root panics with 96 MiB, and works with 112 MiB.
    const LEAST_MIB: u64 = 128;
    const MIB: u64 = 1 << 20;
    let has_unit = words.ends_with(|last: char| last.is_ascii_alphabetic());
    let mib = transom_size::parse(&if has_unit { words.to_owned() } else { format!("{words}M") })? / MIB;
    match u32::try_from(mib) {
        Ok(_) if mib < LEAST_MIB => Err(format!("{mib} MiB is too little; a guest needs {LEAST_MIB} MiB")),
        Ok(mib) => Ok(mib),
        Err(_) => Err(format!("{words} exceeds the memory of any machine")),
    }
}

/// Parses a limit of time.
pub(crate) fn parse_seconds(words: &str) -> std::result::Result<Duration, String> {
    /// More than thirty years: no clock overflows when it is added.
    const SECONDS_MAX: u64 = 1_000_000_000;
    let seconds: f64 = words.parse().map_err(|_| format!("invalid number of seconds {words:?}"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) if limit <= Duration::from_secs(SECONDS_MAX) => Ok(limit),
        Err(error) if seconds.is_nan() || seconds < 0.0 => Err(error.to_string()),
        Ok(_) | Err(_) => Err(format!("{words} seconds are too many; at most {SECONDS_MAX} are allowed")),
    }
}

/// Parses `NAME=VALUE`, or `NAME` for the value that it has here.
pub(crate) fn parse_variable(pair: &OsStr) -> Result<(OsString, OsString)> {
    let bytes = pair.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) if at > 0 => Ok((OsStr::from_bytes(&bytes[..at]).into(), OsStr::from_bytes(&bytes[at + 1..]).into())),
        None if !bytes.is_empty() => match env::var_os(pair) {
            Some(value) => Ok((pair.into(), value)),
            None => Err(Error::Usage(format!("--env {}: it is not set here; give NAME=VALUE", pair.display()))),
        },
        _ => Err(Error::Usage(format!("invalid variable {pair:?}: expected NAME=VALUE or NAME"))),
    }
}

/// Parses `UID`, `UID:GID`, `NAME` or `NAME:GROUP`; names are those of the guest's root at `root`, if it has one.
pub(crate) fn parse_user(words: &str, root: Option<&Path>) -> Result<User> {
    let (user, group) = words.split_once(':').map_or((words, None), |(user, group)| (user, Some(group)));
    let known = |file: &str| {
        let root = root.ok_or_else(|| {
            Error::Usage(format!("--user {words}: the minimal root has no names of users; give UID or UID:GID"))
        })?;
        read_in(root, file).map_err(Error::io(format!("cannot read {file} of {root:?}")))
    };
    let find = |file: &str, name: &str| {
        let text = known(file)?;
        let line = text.lines().find(|line| line.split(':').next() == Some(name));
        let numbers =
            line.map(|line| line.split(':').skip(2).map_while(|word| word.parse().ok()).collect::<Vec<u32>>());
        numbers
            .filter(|numbers| !numbers.is_empty())
            .ok_or_else(|| Error::Usage(format!("--user {words}: there is no {name:?} in the guest's /{file}")))
    };
    let (uid, own) = match user.parse() {
        Ok(uid) => (uid, uid),
        Err(_) => {
            let numbers = find("etc/passwd", user)?;
            (numbers[0], numbers.get(1).copied().unwrap_or(numbers[0]))
        }
    };
    let gid = match group {
        None => own,
        Some(group) => match group.parse() {
            Ok(gid) => gid,
            Err(_) => find("etc/group", group)?[0],
        },
    };
    Ok(User { uid, gid })
}

/// Returns the home of the user in `USER[:GROUP]`, if the guest's root at `root` knows it.
pub(super) fn home_of(words: &str, root: &Path) -> Option<String> {
    let user = words.split(':').next()?;
    let text = read_in(root, "etc/passwd").ok()?;
    let lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut found = lines.filter(|fields| fields.first() == Some(&user) || fields.get(2) == Some(&user));
    Some((*found.next()?.get(5)?).to_owned())
}

/// Reads a file of the guest's root. Links in it do not lead out of it, and what is no file is not read: an image may
/// have anything there.
fn read_in(root: &Path, file: &str) -> io::Result<String> {
    const LEN_MAX: u64 = 16 << 20;
    let (plain, resolve) = (OFlags::CLOEXEC | OFlags::NONBLOCK, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS);
    let root = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let opened = fs::File::from(openat2(root, file, plain, Mode::empty(), resolve)?);
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    opened.take(LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns where a share is mounted unless the user says where.
pub(super) fn guest_path(host: &Path, has_host_root: bool) -> PathBuf {
    match has_host_root {
        true => host.to_owned(),
        false => Path::new("/mnt").join(host.file_name().unwrap_or(OsStr::new("root"))),
    }
}

/// Parses the path of a working directory.
pub(crate) fn parse_workdir(words: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(words);
    if path.is_absolute() { Ok(path) } else { Err("the guest's working directory is an absolute path".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_memory_mib("512"), Ok(512));
        assert_eq!(parse_memory_mib("512M"), Ok(512));
        assert_eq!(parse_memory_mib("2GiB"), Ok(2048));
        assert_eq!(parse_memory_mib("131072k"), Ok(128));
        for words in ["", "G", "1X", "1", "99999999999T"] {
            assert!(parse_memory_mib(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn seconds_have_a_bound() {
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_seconds("1e9"), Ok(Duration::from_secs(1_000_000_000)));
        for words in ["1e10", "1e19", "1e300", "inf"] {
            assert!(parse_seconds(words).unwrap_err().contains("at most 1000000000"), "{words}");
        }
        for words in ["", "x", "-1", "nan"] {
            assert!(parse_seconds(words).is_err(), "{words}");
        }
    }

    #[test]
    fn variables_have_a_name() {
        assert_eq!(parse_variable(OsStr::new("A=b=c")).unwrap(), ("A".into(), "b=c".into()));
        assert!(parse_variable(OsStr::new("=x")).is_err());
        assert!(parse_variable(OsStr::new("")).is_err());
        let error = parse_variable(OsStr::new("TRANSOM_UNSET_FOR_SURE")).unwrap_err().to_string();
        assert!(error.contains("not set here"), "{error}");
        assert_eq!(parse_variable(OsStr::new("PATH")).unwrap().1, env::var_os("PATH").unwrap());
    }

    #[test]
    fn users_are_numbers_or_names_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nme:x:1000:1001::/home/me:/bin/sh\n")
            .unwrap();
        fs::write(root.path().join("etc/group"), "staff:x:50:me\n").unwrap();
        let parse = |words| parse_user(words, Some(root.path()));
        for (words, uid, gid) in [("1000", 1000, 1000), ("5:6", 5, 6), ("me", 1000, 1001), ("me:staff", 1000, 50)] {
            assert_eq!(parse(words).unwrap(), User { uid, gid }, "{words}");
        }
        assert!(parse("you").unwrap_err().to_string().contains("no \"you\" in the guest's /etc/passwd"));
        assert!(parse_user("me", None).unwrap_err().to_string().contains("has no names"));
        assert!(parse_workdir("relative").is_err() && parse_workdir("/abs").is_ok());
    }
}
