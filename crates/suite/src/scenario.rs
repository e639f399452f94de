//! The table of scenarios.

use transom_vm::{Dax, DaxMode, MountedBy};

use crate::job::{FileSystem, Job, Program};

/// One boot: which guest, over which daemon, does what.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) guest: Guest,
    pub(crate) daemon: Daemon,
    /// Options of the daemon, as on its command line.
    pub(crate) options: &'static [&'static str],
    /// The share's window, if it has one.
    pub(crate) dax: Option<Dax>,
    pub(crate) job: Job,
    /// Whether it is the cell of its matrix (kernel, cache mode, daemon, job) that `make test` runs. `make test-full`
    /// runs all.
    pub(crate) runs_by_default: bool,
}

/// The kernel, and what runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    /// User Mode Linux.
    Uml,
    /// The same, with an overlay of the share that one of the two kernels mounts.
    UmlOverlay(MountedBy),
    /// Debian's cloud kernel of this version under QEMU.
    Qemu(&'static str),
    /// The kernel that runs here, by way of `/dev/fuse`.
    Mount,
    /// The same, which reads and writes the host's files itself.
    Passthrough,
    /// The same as [`Self::Mount`], in a coherence group.
    Coherent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Daemon {
    Transomd,
    /// virtiofsd, the peer.
    Virtiofsd,
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

/// The peer loses a race when it holds inodes by file handles: it answers ESTALE if another caller replaces a file
/// between LOOKUP and OPEN. Descriptors keep the replaced file.
const PEER: [&str; 1] = ["--inode-file-handles=never"];

/// What programs with locks need.
const LOCKS: [&str; 2] = ["--posix-lock", "--flock"];

impl Scenario {
    /// `guest/daemon/options/job`.
    pub(crate) fn name(&self) -> String {
        let guest = match self.guest {
            Guest::Uml | Guest::UmlOverlay(_) => "uml".into(),
            Guest::Qemu(version) => format!("qemu-{version}"),
            Guest::Mount | Guest::Passthrough | Guest::Coherent => "mount".into(),
        };
        let daemon = match self.daemon {
            Daemon::Transomd => "transomd",
            Daemon::Virtiofsd => "virtiofsd",
        };
        let options: Vec<_> = self.options.iter().map(|option| option.trim_start_matches("--")).collect();
        let dax = self.dax.map(|dax| match dax.mode {
            DaxMode::Inode => format!("dax-inode-{}M", dax.window_len >> 20),
            DaxMode::Always => format!("dax-always-{}M", dax.window_len >> 20),
        });
        let way = match self.guest {
            Guest::Passthrough => Some("passthrough"),
            Guest::Coherent => Some("coherent"),
            Guest::UmlOverlay(MountedBy::Daemon) => Some("overlay-host"),
            Guest::UmlOverlay(MountedBy::Guest) => Some("overlay-guest"),
            Guest::Mount | Guest::Uml | Guest::Qemu(_) => None,
        };
        let words: Vec<&str> = dax.as_deref().into_iter().chain(way).chain(options).collect();
        format!("{guest}/{daemon}/{}/{}", words.join(","), self.job.name())
    }

    /// The whole command line of the daemon but socket and directory.
    pub(crate) fn daemon_args(&self) -> Vec<&'static str> {
        let own: &[&str] = match self.daemon {
            Daemon::Transomd => &OWN,
            Daemon::Virtiofsd => &PEER,
        };
        let locks: &[&str] = if matches!(self.job, Job::TwoCallers(_)) { &LOCKS } else { &[] };
        ALWAYS.iter().chain(own).chain(locks).chain(self.options).copied().collect()
    }
}

impl Scenario {
    /// Returns the defect of the guest's kernel by which the scenario may hang, so that it runs only if it is named.
    pub(crate) fn defect_of_guest(&self) -> Option<&'static str> {
        let may_hang = self.guest == Guest::Qemu("7") && matches!(self.job, Job::Fsx(_)) && self.dax.is_some();
        may_hang.then_some(
            "Linux 7.2 may hang a program that has mapped a file which others truncate (docs/dax.md); runs by name",
        )
    }
}

/// All scenarios, in the order of running. Of those of `make test`, the list of cases in emulated guests takes longest:
/// it begins first, so that nothing long is left for the end.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = without_window();
    all.extend(with_window());
    all.extend(with_nvdimm());
    all.sort_by_key(|scenario| !(matches!(scenario.guest, Guest::Qemu(_)) && scenario.job == Job::Cases));
    all
}

/// Kernels differ in their DAX: every job can run on each. In `make test` each runs on one of them.
fn with_window() -> Vec<Scenario> {
    const AUTO: &[&str] = &["--cache=auto"];
    const NEVER: &[&str] = &["--cache=never"];
    /// Small files too.
    const ALL_FILES: &[&str] = &["--cache=auto", "--dax-policy=always"];
    /// The other path is another daemon's, which truncates what this one has mapped.
    const TWO_PATHS: &[&str] = &["--cache=never", "--no-dax-guard"];
    const TWO_PATHS_ALL_FILES: &[&str] = &["--cache=never", "--no-dax-guard", "--dax-policy=always"];
    /// As NEVER, taken for a front end that needs no second request before the guest may look at a mapping.
    const NO_BARRIER: &[&str] = &["--cache=never", "--front-end=qemu-without-barrier"];
    let mut all = Vec::new();
    let mut add = |series, mode, window_mib: u64, options, job, runs_by_default| {
        let dax = Some(Dax { window_len: window_mib << 20, mode });
        let (guest, daemon) = (Guest::Qemu(series), Daemon::Transomd);
        all.push(Scenario { guest, daemon, options, dax, job, runs_by_default });
    };
    for series in ["6.1", "6.12", "7"] {
        let is = |wanted: &str| series == wanted;
        add(series, DaxMode::Always, 64, AUTO, Job::Cases, is("6.1"));
        add(series, DaxMode::Inode, 64, ALL_FILES, Job::Cases, false);
        add(series, DaxMode::Always, 64, AUTO, Job::Pjdfstest, is("7"));
        add(series, DaxMode::Inode, 64, ALL_FILES, Job::Pjdfstest, false);
        add(series, DaxMode::Always, 16, TWO_PATHS, Job::Fsx(60), false);
        add(series, DaxMode::Inode, 16, TWO_PATHS_ALL_FILES, Job::Fsx(60), false);
        add(series, DaxMode::Inode, 64, AUTO, Job::Coherence, is("7"));
        add(series, DaxMode::Inode, 256, AUTO, Job::OneCopy, is("6.1"));
        add(series, DaxMode::Always, 16, AUTO, Job::WorkingSet, is("7"));
        add(series, DaxMode::Always, 64, AUTO, Job::Reboot, is("6.1"));
        add(series, DaxMode::Always, 64, AUTO, Job::Rebind, is("6.12"));
        add(series, DaxMode::Inode, 64, AUTO, Job::DaemonKilled, is("7"));
        add(series, DaxMode::Inode, 64, AUTO, Job::VmmKilled, is("6.1"));
    }
    // Some hundreds of operations even on a busy machine: each kind comes several times. Longer runs are for rare
    // sequences of them.
    add("6.12", DaxMode::Always, 16, TWO_PATHS, Job::Fsx(20), true);
    // The unit tests of the barrier show its order, and here a guest has to get along with it. Without the barrier, the
    // first wrong read comes after 500 to 7,000 reads of a thread, so that only a long run shows it by a guest.
    add("7", DaxMode::Always, 16, NEVER, Job::FreshMappings(500), true);
    add("7", DaxMode::Always, 16, NEVER, Job::FreshMappings(2_000), false);
    add("7", DaxMode::Always, 16, NEVER, Job::FreshMappings(100_000), false);
    add("7", DaxMode::Always, 16, NO_BARRIER, Job::FreshMappings(100_000), false);
    add("6.12", DaxMode::Always, 16, TWO_PATHS, Job::Fsx(1800), false);
    all
}

/// Most are asked for by name: they take long, or measure. The kernel 6.12 panics now and then as it boots with an
/// NVDIMM.
fn with_nvdimm() -> Vec<Scenario> {
    let (daemon, options, dax) = (Daemon::Transomd, &["--cache=auto"], None);
    let mut all = Vec::new();
    for on in [FileSystem::Ext4, FileSystem::Xfs] {
        let crashes = |crashes| Job::Crashes { on, crashes };
        let jobs = [
            ("7", crashes(4), on == FileSystem::Ext4),
            ("7", crashes(200), false),
            ("6.12", crashes(200), false),
            ("6.12", Job::SyncFaults { on }, false),
        ];
        all.extend(jobs.map(|(series, job, runs_by_default)| Scenario {
            guest: Guest::Qemu(series),
            daemon,
            options,
            dax,
            job,
            runs_by_default,
        }));
    }
    all
}

/// In `make test` each cache mode runs where that is quickest: on a mount, or else under User Mode Linux. The oldest
/// kernel runs the list of cases in a machine too. Others run jobs with a window there, which are slow enough.
fn without_window() -> Vec<Scenario> {
    let mut all = Vec::new();
    for daemon in [Daemon::Transomd, Daemon::Virtiofsd] {
        let mut add = |guest, options, job, in_test| {
            let runs_by_default = in_test && daemon == Daemon::Transomd;
            all.push(Scenario { guest, daemon, options, dax: None, job, runs_by_default });
        };
        for options in MODES {
            let is_on_mounts = mounts()
                .iter()
                .any(|mount| mount.job == Job::Cases && mount.options == options && mount.runs_by_default);
            add(Guest::Uml, options, Job::Cases, !is_on_mounts);
        }
        for options in MODES {
            add(Guest::Uml, options, Job::Pjdfstest, options == ["--cache=always"]);
        }
        // An emulated guest takes a minute for what User Mode Linux does in seconds: one mode for each kernel, and in
        // `make test` only the oldest one, over QEMU's own virtio-fs device.
        add(Guest::Qemu("6.1"), &["--cache=auto"], Job::Cases, true);
        add(Guest::Qemu("6.12"), &["--cache=never"], Job::Cases, false);
        add(Guest::Qemu("7"), &["--cache=always"], Job::Cases, false);
        add(Guest::Qemu("6.1"), &["--cache=auto"], Job::Pjdfstest, false);
    }
    all.extend(mounts());
    all.extend(overlays());
    all
}

/// Compared with overlayfs of this host instead of the bare directory.
fn overlays() -> Vec<Scenario> {
    let mut all = Vec::new();
    for mounted_by in [MountedBy::Daemon, MountedBy::Guest] {
        for (job, runs_by_default) in [(Job::Cases, true), (Job::Pjdfstest, false)] {
            let (guest, daemon) = (Guest::UmlOverlay(mounted_by), Daemon::Transomd);
            all.push(Scenario { guest, daemon, options: &["--cache=auto"], dax: None, job, runs_by_default });
        }
    }
    all
}

/// The kernel that runs here: quick enough for both daemons.
fn mounts() -> Vec<Scenario> {
    const NEVER: &[&str] = &["--cache=never"];
    const AUTO: &[&str] = &["--cache=auto"];
    const WRITEBACK: &[&str] = &["--cache=auto", "--writeback"];
    /// Locks are the daemon's instead of the guest's kernel's.
    const LOCKS: &[&str] = &["--cache=auto", "--posix-lock", "--flock"];
    /// Some thirty seconds on a quiet machine.
    const PROGRAMS: Job = Job::TwoCallers(450);
    let mut all = Vec::new();
    let mut add = |guest, daemon, options, job, runs_by_default| {
        all.push(Scenario { guest, daemon, options, dax: None, job, runs_by_default });
    };
    add(Guest::Mount, Daemon::Transomd, AUTO, Job::Cases, true);
    add(Guest::Mount, Daemon::Transomd, NEVER, Job::Cases, true);
    add(Guest::Mount, Daemon::Transomd, WRITEBACK, Job::Cases, true);
    add(Guest::Mount, Daemon::Transomd, LOCKS, Job::Cases, true);
    add(Guest::Mount, Daemon::Transomd, AUTO, Job::Pjdfstest, true);
    add(Guest::Passthrough, Daemon::Transomd, AUTO, Job::Cases, true);
    add(Guest::Passthrough, Daemon::Transomd, NEVER, Job::Cases, false);
    add(Guest::Passthrough, Daemon::Transomd, AUTO, Job::Pjdfstest, true);
    add(Guest::Mount, Daemon::Virtiofsd, AUTO, Job::Cases, true);
    add(Guest::Mount, Daemon::Virtiofsd, AUTO, Job::Pjdfstest, false);
    add(Guest::Mount, Daemon::Transomd, AUTO, PROGRAMS, true);
    add(Guest::Mount, Daemon::Transomd, NEVER, PROGRAMS, true);
    add(Guest::Mount, Daemon::Transomd, WRITEBACK, PROGRAMS, true);
    add(Guest::Passthrough, Daemon::Transomd, AUTO, PROGRAMS, true);
    all.extend(two_guests());
    all.extend(foreign_programs());
    all
}

/// More than one guest of one directory. Mounts in a group follow within some time, those that cache nothing at once,
/// and others when what they have cached expires.
fn two_guests() -> Vec<Scenario> {
    const NEVER: &[&str] = &["--cache=never"];
    const AUTO: &[&str] = &["--cache=auto"];
    let of = |guest, daemon, options, job, runs_by_default| Scenario {
        guest,
        daemon,
        options,
        dax: None,
        job,
        runs_by_default,
    };
    let coherent = |job, runs_by_default| of(Guest::Coherent, Daemon::Transomd, &[], job, runs_by_default);
    let split = |daemon, options| of(Guest::Mount, daemon, options, Job::SplitCases, false);
    vec![
        coherent(Job::Cases, true),
        coherent(Job::Pjdfstest, false),
        coherent(Job::SplitCases, true),
        coherent(Job::Stale { rounds: 100, is_checked: true }, true),
        coherent(Job::Stale { rounds: 3000, is_checked: true }, false),
        coherent(Job::Stale { rounds: 20, is_checked: false }, true),
        split(Daemon::Transomd, NEVER),
        split(Daemon::Transomd, AUTO),
        split(Daemon::Virtiofsd, NEVER),
        split(Daemon::Virtiofsd, AUTO),
    ]
}

/// Programs of others, each of which runs by default in one way of mounting, so that together they cover all ways.
fn foreign_programs() -> Vec<Scenario> {
    /// Programs that map files shared, as SQLite does, need the option where files bypass the page cache.
    const NEVER: &[&str] = &["--cache=never", "--allow-mmap"];
    const AUTO: &[&str] = &["--cache=auto"];
    const ALWAYS: &[&str] = &["--cache=always"];
    const WRITEBACK: &[&str] = &["--cache=auto", "--writeback"];
    let ways = [
        (Guest::Mount, AUTO, Some(Program::StressNg)),
        (Guest::Mount, NEVER, Some(Program::Sqlite)),
        (Guest::Mount, ALWAYS, Some(Program::Dbench)),
        (Guest::Mount, WRITEBACK, Some(Program::Postgres)),
        (Guest::Passthrough, AUTO, Some(Program::Fio)),
        (Guest::Passthrough, NEVER, None),
    ];
    let mut all = Vec::new();
    for daemon in [Daemon::Transomd, Daemon::Virtiofsd] {
        for (guest, options, default) in ways {
            for program in Program::ALL {
                let runs_by_default = daemon == Daemon::Transomd && default == Some(program);
                let job = Job::Foreign(program);
                // The peer hands no files over.
                if daemon == Daemon::Transomd || guest == Guest::Mount {
                    all.push(Scenario { guest, daemon, options, dax: None, job, runs_by_default });
                }
            }
        }
    }
    all
}

#[cfg(test)]
#[path = "scenario_test.rs"]
mod tests;
