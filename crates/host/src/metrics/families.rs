//! Every metric: its name, kind, unit and meaning.
//!
//! The text that is read, `docs/metrics.md` and the tests all follow this list.

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises while the daemon lives.
    Counter,
    /// A state at the moment of reading.
    Gauge,
    /// A distribution; only rises.
    Histogram,
    /// A constant 1 whose labels tell something.
    Info,
}

/// A metric, or several that differ by a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// The name, ending with the unit where there is one, without the suffixes of OpenMetrics.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// The unit; empty for plain numbers.
    pub unit: &'static str,
    /// The label that tells its metrics apart; empty where there is one metric.
    pub label: &'static str,
    /// What it says.
    pub help: &'static str,
}

impl Kind {
    /// The word of OpenMetrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

macro_rules! families {
    ($($(#[$doc:meta])* $constant:ident: $kind:ident $name:literal, unit $unit:literal, label $label:literal, $help:literal;)*) => {
        $(
            $(#[$doc])*
            #[doc = $help]
            pub const $constant: Family =
                Family { name: $name, kind: Kind::$kind, unit: $unit, label: $label, help: $help };
        )*
        /// All of them, in the order of the text.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD: Info "transom_build", unit "", label "version", "The version of the daemon.";
    UPTIME: Gauge "transom_uptime_seconds", unit "seconds", label "", "Time since the daemon started.";
    OPERATION_DURATION: Histogram "transom_operation_duration_seconds", unit "seconds", label "operation",
        "Time from taking a request off its queue to its reply, by FUSE operation.";
    OPERATION_ERRORS: Counter "transom_operation_errors", unit "", label "operation",
        "Requests answered with an error, by FUSE operation.";
    ERRORS: Counter "transom_errors", unit "", label "errno", "Requests answered with an error, by error.";
    READ_BYTES: Counter "transom_read_bytes", unit "bytes", label "", "Bytes of file data sent to the guest by READ.";
    WRITTEN_BYTES: Counter "transom_written_bytes", unit "bytes", label "",
        "Bytes of file data taken from the guest by WRITE.";
    COPIED_BYTES: Counter "transom_copied_bytes", unit "bytes", label "",
        "Bytes that the host copied between files by COPY_FILE_RANGE.";
    DEFERRED: Counter "transom_deferred_requests", unit "requests", label "",
        "Requests that would have waited and were handed from their queue's worker to the pool.";
    INTERRUPTS: Counter "transom_interrupts", unit "", label "", "INTERRUPT requests.";
    BROKEN_QUEUES: Counter "transom_broken_queues", unit "queues", label "",
        "Queues stopped because the guest broke the rules of the ring.";
    SESSIONS: Counter "transom_sessions", unit "sessions", label "", "INIT requests accepted.";
    INODES: Gauge "transom_inodes", unit "", label "", "Inodes that the guest knows.";
    INODES_LIMIT: Gauge "transom_inodes_limit", unit "", label "", "Inodes that the guest may know.";
    INODES_REFUSED: Counter "transom_inodes_refused", unit "", label "",
        "Requests refused because the guest knew as many inodes as it may.";
    OPEN_FILES: Gauge "transom_open_files", unit "files", label "", "Files and directories that the guest has open.";
    DESCRIPTORS: Gauge "transom_descriptors", unit "descriptors", label "",
        "File descriptors held on the guest's behalf.";
    DESCRIPTORS_LIMIT: Gauge "transom_descriptors_limit", unit "", label "",
        "File descriptors that may be held on the guest's behalf.";
    LOCK_OWNERS: Gauge "transom_lock_owners", unit "owners", label "", "Pairs of an inode and an owner of POSIX locks.";
    LOCK_WAITERS: Gauge "transom_lock_waiters", unit "waiters", label "", "Requests that wait for a lock.";
    POOL_THREADS: Gauge "transom_pool_threads", unit "threads", label "", "Threads of the pool.";
    POOL_BUSY: Gauge "transom_pool_busy_threads", unit "threads", label "", "Threads of the pool that serve a request.";
    POOL_QUEUED: Gauge "transom_pool_queued_requests", unit "requests", label "",
        "Requests that wait for a thread of the pool.";
    WINDOW_BYTES: Gauge "transom_window_bytes", unit "bytes", label "", "Size of the DAX window.";
    WINDOW_RANGES: Gauge "transom_window_ranges", unit "ranges", label "",
        "Ranges of the window that are mapped, each of 2 MiB.";
    WINDOW_MAPS: Counter "transom_window_maps", unit "", label "", "Ranges mapped.";
    WINDOW_UNMAPS: Counter "transom_window_unmaps", unit "", label "", "Ranges unmapped on request.";
    WINDOW_REFUSED: Counter "transom_window_refused", unit "", label "", "Mappings that the guest asked for in vain.";
    WINDOW_MAP_DURATION: Counter "transom_window_map_duration_seconds", unit "seconds", label "",
        "Time that mapping took, until the guest could see it.";
    QUEUE_DEPTH: Gauge "transom_queue_depth_requests", unit "requests", label "queue",
        "Requests taken off a queue and not yet answered, by queue.";
}

macro_rules! counters {
    ($($variant:ident = $family:ident,)*) => {
        /// A counter that [`Metrics::add`](super::Metrics::add) raises; its family says what it counts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $(#[doc = concat!("See [`", stringify!($family), "`].")] $variant,)*
        }

        impl Counter {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// What it counts.
            pub const fn family(self) -> Family {
                match self { $(Self::$variant => $family,)* }
            }
        }
    };
}

counters! {
    ReadBytes = READ_BYTES,
    WrittenBytes = WRITTEN_BYTES,
    CopiedBytes = COPIED_BYTES,
    Deferred = DEFERRED,
    Interrupts = INTERRUPTS,
    BrokenQueues = BROKEN_QUEUES,
    Sessions = SESSIONS,
}
