//! What a guest does in a scenario.

use std::time::Duration;

/// What a guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// The list of file-system cases.
    Cases,
    /// The same list, each case split between two mounts of one directory: one acts, the other looks.
    SplitCases,
    Pjdfstest,
    /// This many rounds of each member of a coherence group, which look for one stale answer. Unless they are checked,
    /// the members never look at the version table, and stale answers must be found.
    Stale {
        rounds: u64,
        is_checked: bool,
    },
    /// Random operations on one file for this many seconds, at a path with a window and at one without.
    Fsx(u64),
    /// This many random programs of root and an ordinary user.
    TwoCallers(u64),
    /// Two guests and the host share a mapping.
    Coherence,
    /// What a guest reads through the window takes no memory of its own.
    OneCopy,
    /// Four times as much data as the window holds.
    WorkingSet,
    /// This many reads of a MiB, most of them from a mapping made for the read.
    FreshMappings(u64),
    /// The guest reboots.
    Reboot,
    /// The guest's driver leaves the device and takes it again.
    Rebind,
    /// The daemon is killed.
    DaemonKilled,
    /// The virtual machine monitor is killed.
    VmmKilled,
    /// This many crashes of machines with an NVDIMM, while a guest of transomd in them stores durably.
    Crashes {
        on: FileSystem,
        crashes: u64,
    },
    /// The latency of such stores.
    SyncFaults {
        on: FileSystem,
    },
    /// A third-party program.
    Foreign(Program),
}

impl Job {
    /// How long a job may take because it is long, on slow machines too.
    pub(crate) fn duration(self) -> Duration {
        match self {
            Self::Fsx(seconds) => Duration::from_secs(seconds),
            Self::FreshMappings(reads) => Duration::from_millis(100) * u32::try_from(reads).unwrap_or(u32::MAX),
            _ => Duration::ZERO,
        }
    }

    /// Whether no other may run beside it: it looks for the processes of any machine, or at the clock.
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Self::DaemonKilled | Self::VmmKilled | Self::SyncFaults { .. })
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Cases => "cases".into(),
            Self::SplitCases => "split-cases".into(),
            Self::Stale { rounds, is_checked: true } => format!("stale-{rounds}"),
            Self::Stale { rounds, is_checked: false } => format!("stale-unchecked-{rounds}"),
            Self::Pjdfstest => "pjdfstest".into(),
            Self::TwoCallers(_) => "two-callers".into(),
            Self::Fsx(seconds) => format!("fsx-{seconds}s"),
            Self::Coherence => "coherence".into(),
            Self::OneCopy => "one-copy".into(),
            Self::WorkingSet => "working-set".into(),
            Self::FreshMappings(reads) => format!("fresh-mappings-{reads}"),
            Self::Reboot => "reboot".into(),
            Self::Rebind => "rebind".into(),
            Self::DaemonKilled => "daemon-killed".into(),
            Self::VmmKilled => "vmm-killed".into(),
            Self::Crashes { on, crashes } => format!("nvdimm-{}-crashes-{crashes}", on.name()),
            Self::SyncFaults { on } => format!("nvdimm-{}-faults", on.name()),
            Self::Foreign(program) => program.name().into(),
        }
    }
}

/// A third-party program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// stress-ng's stressors of the class "filesystem", with `--verify`.
    StressNg,
    /// fio with checksums in the data.
    Fio,
    Dbench,
    /// SQLite in WAL mode with writers that are killed.
    Sqlite,
    /// PostgreSQL with pgbench, an immediate stop, recovery, and `pg_amcheck`.
    Postgres,
}

impl Program {
    /// All programs, the quickest first.
    pub(crate) const ALL: [Self; 5] = [Self::Dbench, Self::Fio, Self::Sqlite, Self::Postgres, Self::StressNg];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::StressNg => "stress-ng",
            Self::Fio => "fio",
            Self::Dbench => "dbench",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// What is on the NVDIMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}
