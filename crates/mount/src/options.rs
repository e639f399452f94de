//! [`Options`]: how a share is mounted, as in `mount -o`.

use std::{ffi::OsString, time::Duration};

use rustix::mount::MountFlags;

use super::{coherence, passthrough, reconnect};

/// The options of a mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the source in `/proc/mounts`. By default the shared directory or the socket.
    pub fsname: Option<String>,
    /// Users other than the one who mounts may use it. By default set for root. Others need `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel checks permissions by owner and mode, as it does for virtio-fs in a virtual machine.
    pub default_permissions: bool,
    /// Flags of mount(2): `ro`, `nosuid`, `nodev`, `noexec` and others.
    pub flags: MountFlags,
    /// The most threads, each with a request queue. The number of the daemon's queues is another bound.
    pub threads: u16,
    /// The longest time in nanoseconds that a thread polls before it sleeps; 0 for never.
    pub poll_max_ns: u32,
    /// The kernel reads, writes and maps the daemon's files itself, without requests.
    pub passthrough: bool,
    /// When the daemon is gone, the mount continues with another one. This is the longest time that it may be without
    /// one.
    ///
    /// The process that mounts should not have files of the mount open then: starting a daemon closes its copies of
    /// them, which would wait for writes that wait for the daemon.
    pub reconnect: Option<Duration>,
    /// The kernel keeps attributes, data and names until the version table of the daemon's coherence group says that
    /// somebody else has changed them; names for 30 seconds at most.
    pub coherent: bool,
}

/// The default of [`Options::reconnect`] if it is set: longer than an upgrade takes.
const RECONNECT_DEFAULT: Duration = Duration::from_secs(60);

impl Default for Options {
    /// Returns one thread for every two processors, up to four: each is paired with a worker of the daemon. A thread
    /// polls for 100 µs, twice the time between the requests of one caller if both sides sleep.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self {
            fsname: None,
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            flags: MountFlags::empty(),
            threads: (processors / 2).clamp(1, 4) as u16,
            poll_max_ns: 100_000,
            passthrough: false,
            reconnect: None,
            coherent: false,
        }
    }
}

/// Why an option was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("unknown mount option {0:?}")]
    Unknown(String),
    /// Its value cannot be used.
    #[error("mount option {option:?}: it takes {wanted}")]
    Value {
        /// The option with its value.
        option: String,
        /// What its value may be.
        wanted: &'static str,
    },
}

impl Options {
    /// Takes a list of options with commas between, as in `fstab`. Of two that contradict each other the later one
    /// counts.
    ///
    /// Options that `mount(8)` and `systemd` keep for themselves (`noauto`, `_netdev`, `nofail`, `user`, `x-…`) are
    /// passed over.
    pub fn parse(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.parse_one(option))
    }

    fn parse_one(&mut self, option: &str) -> Result<(), OptionError> {
        match option {
            "allow_other" => self.allow_other = true,
            "passthrough" => self.passthrough = true,
            "coherent" => self.coherent = true,
            "reconnect" => self.reconnect = Some(RECONNECT_DEFAULT),
            "default_permissions" => self.default_permissions = true,
            "no_default_permissions" => self.default_permissions = false,
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" | "users" | "owner" | "group" => {
            }
            _ => return self.parse_other(option),
        }
        Ok(())
    }

    fn parse_other(&mut self, option: &str) -> Result<(), OptionError> {
        let invalid = |wanted| OptionError::Value { option: option.to_owned(), wanted };
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == option) {
            if ATIME_FLAGS.contains(*flag) {
                self.flags.remove(ATIME_FLAGS);
            }
            self.flags.insert(*flag);
            return Ok(());
        }
        if let Some((_, flag)) = INVERSE_FLAGS.iter().find(|(name, _)| *name == option) {
            self.flags.remove(*flag);
            return Ok(());
        }
        match option.split_once('=') {
            Some(("fsname", "")) => return Err(invalid("a name")),
            Some(("fsname", name)) => self.fsname = Some(name.to_owned()),
            Some(("threads", count)) => {
                self.threads =
                    count.parse().ok().filter(|&n| n > 0).ok_or_else(|| invalid("a number from 1 to 65535"))?;
            }
            Some(("reconnect", seconds)) => {
                let seconds: u32 = seconds
                    .parse()
                    .ok()
                    .filter(|&n| n > 0)
                    .ok_or_else(|| invalid("a number of seconds, at least 1"))?;
                self.reconnect = Some(Duration::from_secs(seconds.into()));
            }
            Some(("poll_us", us)) => {
                let ns = us.parse::<u32>().ok().and_then(|us| us.checked_mul(1000));
                self.poll_max_ns = ns.ok_or_else(|| invalid("a number of microseconds, at most 4294967"))?;
            }
            _ if option.starts_with("x-") || option.starts_with("comment=") => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    /// What a transomd that is started for a mount with these options has to be told, before any arguments of others.
    pub fn daemon_args(&self) -> Vec<OsString> {
        let mut args = if self.passthrough { passthrough::daemon_args(self.threads) } else { Vec::new() };
        if self.reconnect.is_some() {
            args.extend(reconnect::daemon_args());
        }
        if self.coherent {
            args.extend(coherence::daemon_args());
        }
        args
    }

    /// For `fusermount3 -o`, the kernel's flags by name.
    ///
    /// Errors: an option that it does not pass on.
    pub(super) fn for_fusermount(&self, source: &str) -> Result<String, RootOnly> {
        let mut words = vec![format!("fsname={}", escape(source)), "subtype=transom".to_owned()];
        words.extend(self.words().map(str::to_owned));
        for (name, flag) in FLAGS.iter().filter(|(_, flag)| self.flags.contains(*flag)) {
            if ROOT_ONLY.contains(*flag) {
                return Err(RootOnly(name));
            }
            // It is the kernel's default.
            if *flag != MountFlags::RELATIME {
                words.push((*name).to_owned());
            }
        }
        Ok(words.join(","))
    }

    /// The options of the file system itself.
    pub(super) fn words(&self) -> impl Iterator<Item = &'static str> {
        [(self.default_permissions, "default_permissions"), (self.allow_other, "allow_other")]
            .into_iter()
            .filter_map(|(is_on, word)| is_on.then_some(word))
    }
}

/// An option that only root can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mount option {0} takes root: without root, fusermount3 mounts, and it does not pass that option on")]
pub(super) struct RootOnly(&'static str);

/// Options of mount(2).
const FLAGS: [(&str, MountFlags); 12] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("lazytime", MountFlags::LAZYTIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
];

/// Options that take a flag of mount(2) back.
const INVERSE_FLAGS: [(&str, MountFlags); 11] = [
    ("rw", MountFlags::RDONLY),
    ("suid", MountFlags::NOSUID),
    ("dev", MountFlags::NODEV),
    ("exec", MountFlags::NOEXEC),
    ("atime", MountFlags::NOATIME),
    ("diratime", MountFlags::NODIRATIME),
    ("async", MountFlags::SYNCHRONOUS),
    // The kernel's default is relatime, with or without its flag.
    ("norelatime", MountFlags::RELATIME),
    ("nostrictatime", MountFlags::STRICTATIME),
    ("nolazytime", MountFlags::LAZYTIME),
    ("symfollow", MountFlags::NOSYMFOLLOW),
];

/// How access times are kept: one of these at a time. mount(2) would prefer `strictatime` whichever came last.
const ATIME_FLAGS: MountFlags = MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);

/// Flags that fusermount3 does not know (before libfuse 3.15) or clears where it should set them (later).
const ROOT_ONLY: MountFlags = MountFlags::STRICTATIME.union(MountFlags::LAZYTIME).union(MountFlags::NOSYMFOLLOW);

/// A comma or a backslash in a value, as `fusermount3` reads it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_fstab_becomes_flags_and_values() {
        let mut options = Options::default();
        options.parse("defaults,ro,nosuid,nofail,_netdev,x-systemd.automount,threads=2,poll_us=0,fsname=a").unwrap();
        assert_eq!(options.reconnect, None);
        options.parse("reconnect").unwrap();
        assert_eq!(options.reconnect, Some(RECONNECT_DEFAULT));
        options.parse("reconnect=5").unwrap();
        assert_eq!(options.reconnect, Some(Duration::from_secs(5)));
        assert_eq!(options.flags, MountFlags::RDONLY | MountFlags::NOSUID);
        assert_eq!((options.threads, options.poll_max_ns), (2, 0));
        assert_eq!(options.fsname.as_deref(), Some("a"));
    }

    #[test]
    fn the_later_of_two_options_counts() {
        let mut options = Options::default();
        options.parse("ro,rw,noexec").unwrap();
        assert_eq!(options.flags, MountFlags::NOEXEC);
    }

    #[test]
    fn the_last_word_on_access_times_counts() {
        for (list, flags) in [
            ("noatime,strictatime", MountFlags::STRICTATIME),
            ("strictatime,noatime", MountFlags::NOATIME),
            ("strictatime,relatime", MountFlags::RELATIME),
            ("strictatime,nostrictatime", MountFlags::empty()),
            ("noatime,nodiratime,atime", MountFlags::NODIRATIME),
            ("relatime,norelatime", MountFlags::empty()),
        ] {
            let mut options = Options::default();
            options.parse(list).unwrap();
            assert_eq!(options.flags, flags, "{list}");
        }
    }

    #[test]
    fn an_option_that_fusermount_does_not_pass_on_is_named_with_the_reason() {
        for option in ["strictatime", "lazytime", "nosymfollow"] {
            let mut options = Options::default();
            options.parse(option).unwrap();
            let error = options.for_fusermount("share").unwrap_err().to_string();
            assert!(error.contains(option) && error.contains("takes root"), "{error}");
        }
        let mut options = Options { allow_other: false, ..Options::default() };
        options.parse("relatime,lazytime,nolazytime,noexec").unwrap();
        let words = options.for_fusermount("share").unwrap();
        assert_eq!(words, "fsname=share,subtype=transom,default_permissions,noexec");
    }

    #[test]
    fn an_option_that_is_unknown_or_has_a_bad_value_is_named() {
        let parse = |option: &str| Options::default().parse(&format!("rw,{option}"));
        assert_eq!(parse("dax=always"), Err(OptionError::Unknown("dax=always".to_owned())));
        for option in
            ["threads=0", "threads=many", "threads=", "poll_us=9999999999", "poll_us=-1", "reconnect=0", "fsname="]
        {
            let error = parse(option).unwrap_err();
            assert!(matches!(&error, OptionError::Value { option: named, .. } if named == option), "{error}");
        }
    }

    #[test]
    fn commas_in_names_do_not_end_them() {
        let options = Options { allow_other: false, ..Options::default() };
        let list = options.for_fusermount("/srv/a,b\\c").unwrap();
        assert_eq!(list, "fsname=/srv/a\\,b\\\\c,subtype=transom,default_permissions");
    }
}
