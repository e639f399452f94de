//! The table of scenarios.

/// One boot: which guest, over which daemon, does what.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) guest: Guest,
    pub(crate) daemon: Daemon,
    /// Options of the daemon, as on its command line.
    pub(crate) options: &'static [&'static str],
    pub(crate) job: Job,
    pub(crate) runs_by_default: bool,
}

/// The kernel, and what runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    /// User Mode Linux.
    Uml,
    /// Debian's cloud kernel of this version under QEMU.
    Qemu(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Daemon {
    Transomd,
    /// virtiofsd, the peer.
    Virtiofsd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// The list of file-system cases.
    Cases,
    Pjdfstest,
}

/// The cache modes, and what else changes how a guest's kernel behaves.
const MODES: [&[&str]; 5] = [
    &["--cache=never"],
    &["--cache=metadata"],
    &["--cache=auto"],
    &["--cache=always"],
    &["--cache=auto", "--writeback"],
];

/// What a share needs to be as good as the bare directory, and is off unless asked for: ACLs and extended attributes,
/// O_NOATIME, set-id bits cleared by the host, and the capabilities behind `trusted.*` and the immutable flag.
const ALWAYS: [&str; 4] =
    ["--posix-acl", "--preserve-noatime", "--killpriv-v2", "--modcaps=+sys_admin:+linux_immutable"];

/// The same, of options that are only ours.
const OWN: [&str; 1] = ["--birth-times"];

impl Scenario {
    /// `guest/daemon/options/job`.
    pub(crate) fn name(&self) -> String {
        let guest = match self.guest {
            Guest::Uml => "uml".into(),
            Guest::Qemu(version) => format!("qemu-{version}"),
        };
        let daemon = match self.daemon {
            Daemon::Transomd => "transomd",
            Daemon::Virtiofsd => "virtiofsd",
        };
        let options: Vec<_> = self.options.iter().map(|option| option.trim_start_matches("--")).collect();
        let job = match self.job {
            Job::Cases => "cases",
            Job::Pjdfstest => "pjdfstest",
        };
        format!("{guest}/{daemon}/{}/{job}", options.join(","))
    }

    /// The whole command line of the daemon but socket and directory.
    pub(crate) fn daemon_args(&self) -> Vec<&'static str> {
        let own: &[&str] = if self.daemon == Daemon::Transomd { &OWN } else { &[] };
        ALWAYS.iter().chain(own).chain(self.options).copied().collect()
    }
}

/// All scenarios, in the order of running: the fast guest first.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for daemon in [Daemon::Transomd, Daemon::Virtiofsd] {
        let runs_by_default = daemon == Daemon::Transomd;
        let mut add = |guest, options, job| all.push(Scenario { guest, daemon, options, job, runs_by_default });
        for options in MODES {
            add(Guest::Uml, options, Job::Cases);
        }
        for options in MODES {
            add(Guest::Uml, options, Job::Pjdfstest);
        }
        // An emulated guest takes a minute for what User Mode Linux does in seconds: one mode for each kernel.
        add(Guest::Qemu("6.1"), &["--cache=auto"], Job::Cases);
        add(Guest::Qemu("6.12"), &["--cache=never"], Job::Cases);
        add(Guest::Qemu("7"), &["--cache=always"], Job::Cases);
        add(Guest::Qemu("6.1"), &["--cache=auto"], Job::Pjdfstest);
    }
    all
}
